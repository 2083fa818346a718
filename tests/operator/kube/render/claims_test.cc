// The volume claims of tasks, and the volumes of their pods.
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/job/job.h"
#include "operator/kube/render/names.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr TaskKey kSecondWorker{v1::ROLE_WORKER, 1};

// `worker`: members beside its template, in flow style; `pod`: of its pod's spec.
v1::TrainingJob claimsJob(const std::string& worker, const std::string& pod = "") {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: own, namespace: team}}
spec:
  ps: {{template: {{spec: {{containers: [{{name: task, image: a, command: [b]}}]}}}}}}
  worker: {{replicas: 2, {}, template: {{spec: {{{} containers: [{{name: task, image: a, command: [b],
    volumeMounts: [{{name: data, mountPath: /data}}]}}]}}}}}}
)",
                                       worker, pod);
  auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  if (job.ok()) job->mutable_metadata()->set_uid("u1");
  return job.value_or(v1::TrainingJob());
}

constexpr char kTwoClaims[] =
    "volumeClaimTemplates: [{metadata: {name: data, labels: {team: vision, trainyard.dev/index: "
    "\"9\"}, annotations: {a: b}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: "
    "{storage: 1Gi}}}}, {metadata: {name: more}, spec: {storageClassName: fast}}]";

TEST(RenderClaims, EachIsOfOneTaskAndStaysWithoutAnOwner) {
  const std::vector<OrderedJson> claims = renderClaims(claimsJob(kTwoClaims), kSecondWorker);
  ASSERT_EQ(claims.size(), 2u);
  EXPECT_EQ(claims[0]["apiVersion"], "v1");
  EXPECT_EQ(claims[0]["kind"], "PersistentVolumeClaim");
  const OrderedJson& metadata = claims[0]["metadata"];
  EXPECT_EQ(metadata["name"], "data-own-worker-1");
  EXPECT_EQ(metadata["namespace"], "team");
  EXPECT_EQ(metadata["labels"]["trainyard.dev/job-name"], "own");
  EXPECT_EQ(metadata["labels"]["trainyard.dev/role"], "worker");
  EXPECT_EQ(metadata["labels"]["trainyard.dev/index"], "1") << "ours hold";
  EXPECT_EQ(metadata["labels"]["team"], "vision");
  EXPECT_EQ(metadata["annotations"], OrderedJson({{"a", "b"}}));
  EXPECT_FALSE(metadata.contains("ownerReferences"));
  EXPECT_EQ(claims[0]["spec"]["resources"]["requests"]["storage"], "1Gi");
  EXPECT_EQ(claims[1]["metadata"]["name"], "more-own-worker-1");
  EXPECT_EQ(claims[1]["spec"], OrderedJson({{"storageClassName", "fast"}}));
  EXPECT_TRUE(renderClaims(claimsJob(kTwoClaims), {v1::ROLE_PS, 0}).empty())
      << "each role has its own";
}

TEST(RenderClaims, ThoseThatGoWithTheJobAreOwnedByIt) {
  const auto job = claimsJob(std::string(kTwoClaims) +
                             ", persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}");
  const OrderedJson metadata = renderClaims(job, kSecondWorker).at(0)["metadata"];
  EXPECT_EQ(metadata["ownerReferences"], OrderedJson::array({ownerReference(job)}));
}

TEST(RenderClaims, ThePodHasThemAsVolumes) {
  const RenderOptions options{.agent_image = "agent:1", .runtime_image = "runtime:1"};
  const auto pod = renderPod(claimsJob(kTwoClaims, "volumes: [{name: own, emptyDir: {}}],"),
                             kSecondWorker, 3, options);
  ASSERT_TRUE(pod.ok()) << pod.status();
  std::vector<std::pair<std::string, std::string>> claims;
  for (const OrderedJson& volume : (*pod)["spec"]["volumes"]) {
    if (volume.contains("persistentVolumeClaim"))
      claims.emplace_back(volume["name"], volume["persistentVolumeClaim"]["claimName"]);
  }
  EXPECT_THAT(claims, testing::ElementsAre(testing::Pair("data", "data-own-worker-1"),
                                           testing::Pair("more", "more-own-worker-1")));
  EXPECT_EQ((*pod)["spec"]["containers"][0]["volumeMounts"][0]["name"], "data")
      << "mounted as the template says, in no life of the task by another name";
}

TEST(RenderClaims, AVolumeOfTheTemplateMayNotHaveTheSameName) {
  const Status status =
      checkTemplates(claimsJob(kTwoClaims, "volumes: [{name: more, emptyDir: {}}],"));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::StartsWith("spec.worker.volumeClaimTemplates[1].metadata.name: "));
  EXPECT_TRUE(checkTemplates(claimsJob(kTwoClaims)).ok());
}

TEST(RenderClaims, TheLongestNameIsOne) {
  const std::string longest(63, 'a');
  v1::TrainingJob job = claimsJob(
      fmt::format("volumeClaimTemplates: [{{metadata: {{name: {}}}, spec: {{}}}}]", longest));
  job.mutable_metadata()->set_name(std::string(48, 'j'));
  const OrderedJson claim = renderClaims(job, {v1::ROLE_WORKER, 4095}).at(0);
  EXPECT_LE(claim["metadata"]["name"].get<std::string>().size(), 253u);
}

}  // namespace
}  // namespace trainyard::control
