// A task whose checkpoints are in an object store, or on a disk that one task has.
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using testing::Contains;
using testing::IsEmpty;
using OrderedJson = nlohmann::ordered_json;

v1::TrainingJob storedJob(const std::string& storage, const std::string& env = "[]") {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: kept, namespace: lab}}
spec:
  storage: {}
  ps: {{template: {{spec: {{containers: [{{name: task, env: {}}}]}}}}}}
  worker: {{}}
  training:
    model: {{name: mlp}}
    data: {{format: synthetic, shape: [8, 8, 1], classes: 4, samples: 64}}
    batchSize: 8
    steps: 10
    optimizer: {{name: SGD, learningRate: 0.1}}
)",
                                       storage, env);
  const auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(v1::TrainingJob());
}

OrderedJson s3PodOf(const v1::TrainingJob& job, const TaskKey& task = {v1::ROLE_PS, 0}) {
  const auto pod =
      renderPod(job, task, 1, {.agent_image = "agent:1", .runtime_image = "runtime:1"});
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.ok() ? OrderedJson((*pod)["spec"]) : OrderedJson();
}

std::vector<OrderedJson> allNamed(const OrderedJson& list, const std::string& name) {
  std::vector<OrderedJson> found;
  for (const OrderedJson& entry : list) {
    if (entry["name"] == name) found.push_back(entry);
  }
  return found;
}

TEST(ObjectStoreTest, ThePodIsToldWhereItIsAndWhoItIs) {
  const v1::TrainingJob job = storedJob(
      "{s3: {bucket: data, endpoint: 'https://minio.lab:9000', region: here, secretName: keys, "
      "caKey: ca.pem}}");
  const OrderedJson spec = s3PodOf(job), task = spec["containers"][0];
  EXPECT_THAT(task["command"], Contains("--checkpoints=s3://data/lab/kept/checkpoints"));
  const auto value = [&](const std::string& name) {
    const auto found = allNamed(task["env"], name);
    return found.size() == 1 ? found[0] : OrderedJson();
  };
  EXPECT_EQ(value("AWS_ENDPOINT_URL_S3")["value"], "https://minio.lab:9000");
  EXPECT_EQ(value("AWS_REGION")["value"], "here");
  const OrderedJson key = {{"name", "keys"}, {"key", "AWS_SECRET_ACCESS_KEY"}};
  EXPECT_EQ(value("AWS_SECRET_ACCESS_KEY")["valueFrom"]["secretKeyRef"], key);
  EXPECT_EQ(value("AWS_ACCESS_KEY_ID")["valueFrom"]["secretKeyRef"]["name"], "keys");
  EXPECT_EQ(value("AWS_SESSION_TOKEN")["valueFrom"]["secretKeyRef"]["optional"], true);
  EXPECT_EQ(value("AWS_CA_BUNDLE")["value"], "/etc/trainyard/s3/ca.crt");
  const auto volume = allNamed(spec["volumes"], "trainyard-s3");
  ASSERT_EQ(volume.size(), 1U);
  EXPECT_EQ(volume[0]["secret"]["items"][0], OrderedJson({{"key", "ca.pem"}, {"path", "ca.crt"}}));
  EXPECT_EQ(allNamed(task["volumeMounts"], "trainyard-s3").size(), 1U);
  EXPECT_FALSE(passingStorage(job).has_value()) << "checkpoints outlive the pods";
}

TEST(ObjectStoreTest, WhatTheTemplateSetsStays) {
  const OrderedJson spec = s3PodOf(
      storedJob("{s3: {bucket: data, prefix: a/b, secretName: keys}}",
                "[{name: AWS_REGION, value: there}, {name: AWS_ACCESS_KEY_ID, value: mine}]"));
  const OrderedJson task = spec["containers"][0];
  EXPECT_THAT(task["command"], Contains("--checkpoints=s3://data/a/b/checkpoints"));
  EXPECT_EQ(allNamed(task["env"], "AWS_REGION").size(), 1U);
  EXPECT_EQ(allNamed(task["env"], "AWS_ACCESS_KEY_ID")[0]["value"], "mine");
  EXPECT_THAT(allNamed(task["env"], "AWS_ENDPOINT_URL_S3"), IsEmpty()) << "AWS's own";
  EXPECT_THAT(allNamed(spec["volumes"], "trainyard-s3"), IsEmpty());
}

TEST(ObjectStoreTest, WithoutOneNothingIsSaidOfIt) {
  const OrderedJson spec = s3PodOf(storedJob("{volume: {emptyDir: {}}}"));
  for (const OrderedJson& word : spec["containers"][0]["command"])
    EXPECT_EQ(word.get<std::string>().find("--checkpoints"), std::string::npos);
  EXPECT_THAT(allNamed(spec["containers"][0]["env"], "AWS_REGION"), IsEmpty());
}

// Of volumes that only one node can mount, the task that writes has it.
TEST(StorageAccess, TheCoordinatorAloneHasTheVolume) {
  v1::TrainingJob job =
      storedJob("{access: Coordinator, volume: {persistentVolumeClaim: {claimName: disk}}}");
  for (const char* strategy : {"ParameterServer", "AllReduce"}) {
    job.mutable_spec()->set_strategy(strategy);
    const v1::Role first = job.spec().strategy() == "AllReduce" ? v1::ROLE_WORKER : v1::ROLE_PS;
    for (const v1::Role role : {first, v1::ROLE_WORKER}) {
      for (const std::uint32_t index : {0u, 1u}) {
        const TaskKey task{role, index};
        const auto found = allNamed(s3PodOf(job, task)["volumes"], "trainyard-storage");
        ASSERT_EQ(found.size(), 1u);
        const bool mounted = role == first && index == 0;
        EXPECT_EQ(found[0].contains("persistentVolumeClaim"), mounted) << toString(task);
        EXPECT_EQ(found[0].contains("emptyDir"), !mounted) << toString(task);
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::control
