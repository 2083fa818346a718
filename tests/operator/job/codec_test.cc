#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "tests/operator/job/job_fixture.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control::testing {
namespace {

using ::testing::HasSubstr;

TEST(Codec, RoundTripIsExact) {
  const Json json = Json::parse(R"({
    "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "a", "generation": 9007199254740993, "labels": {"a": "1", "b": ""}},
    "spec": {
      "storage": {"mountPath": "/job", "volume": {"z": 1, "a": {"y": [1, 2.5, null, "é"], "b": {}}}},
      "volumes": [{"name": "data", "mountPath": "/data"}],
      "ps": {"replicas": 2},
      "worker": {"replicas": 0, "template": {"spec": {"containers": [{"name": "task"}]}}},
      "training": {
        "model": {"name": "mlp", "dropout": 0.0, "hidden": [512, 256]},
        "steps": 3000000000, "seed": 0, "deterministic": false,
        "optimizer": {"name": "SGD", "learningRate": 0.1, "weightDecay": 0.5, "warmupSteps": 7}}},
    "status": {"state": "Running", "conditions": [{"type": "Running", "status": "True"}]}})");
  v1::TrainingJob job;
  const Status status = fromJson(json, &job);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(job.spec().training().steps(), 3000000000);
  EXPECT_TRUE(job.spec().training().has_deterministic());
  // Text, so that order and the kind of each number count.
  EXPECT_EQ(toJson(job).dump(), json.dump());
  EXPECT_EQ(job.spec().storage().volume(), R"({"z":1,"a":{"y":[1,2.5,null,"é"],"b":{}}})");
}

TEST(Codec, WhatIsAbsentStaysAbsent) {
  EXPECT_EQ(toJson(v1::TrainingJob()).dump(), "{}");
  v1::TrainingJob job;
  job.mutable_spec()->mutable_ps();
  EXPECT_EQ(toJson(job).dump(), R"({"spec":{"ps":{}}})");
  ASSERT_TRUE(fromJson(Json::parse(R"({"spec": {"image": null}})"), &job).ok());
  EXPECT_FALSE(job.spec().has_image());
  EXPECT_FALSE(job.spec().has_ps()) << "what the message held before is gone";
}

// Kubernetes' int-or-string: a number stays one, and text text.
TEST(Codec, NumberOrText) {
  v1::TrainingJob job;
  for (const auto& [written, held] : std::map<std::string, std::string>{
           {R"("Auto")", "Auto"}, {"2", "2"}, {"-1", "-1"}, {R"("02")", "02"}}) {
    const Json json = Json::parse(R"({"spec": {"training": {"threads": )" + written + "}}}");
    ASSERT_TRUE(fromJson(json, &job).ok()) << written;
    EXPECT_EQ(job.spec().training().threads(), held);
    EXPECT_EQ(toJson(job).dump(), json.dump());
  }
}

TEST(Codec, OtherMessagesToo) {
  v1::Membership membership;
  membership.set_job("a");
  membership.set_revision(3);
  v1::MemberTask* const task = membership.add_tasks();
  task->mutable_id()->set_role(v1::ROLE_WORKER);
  task->set_port(4000000000u);
  const Json json = toJson(membership);
  EXPECT_EQ(
      json.dump(),
      R"({"job":"a","revision":3,"tasks":[{"id":{"role":"ROLE_WORKER"},"port":4000000000}]})");
  v1::Membership back;
  ASSERT_TRUE(fromJson(json, &back).ok());
  EXPECT_EQ(back.SerializeAsString(), membership.SerializeAsString());
}

TEST(Codec, RefusesWithThePath) {
  const std::vector<std::pair<const char*, const char*>> rows = {
      {R"([])", "the document: expected a mapping, got array"},
      {R"({"specs": {}})", "specs: unknown field"},
      {R"({"spec": {"worker": {"Replicas": 1}}})", "spec.worker.Replicas: unknown field"},
      {R"({"spec": []})", "spec: expected a mapping, got array"},
      {R"({"spec": {"ps": {"replicas": "2"}}})",
       "spec.ps.replicas: expected a whole number, got string"},
      {R"({"spec": {"ps": {"replicas": 2.5}}})", "spec.ps.replicas: expected a whole number"},
      {R"({"spec": {"ps": {"replicas": 2147483648}}})",
       "spec.ps.replicas: 2147483648 is out of range"},
      {R"({"spec": {"ps": {"replicas": -2147483649}}})", "out of range"},
      {R"({"spec": {"training": {"steps": 18446744073709551615}}})",
       "spec.training.steps: 18446744073"},
      {R"({"spec": {"training": {"deterministic": 1}}})", "expected true or false, got number"},
      {R"({"spec": {"training": {"optimizer": {"learningRate": "x"}}}})", "expected a number"},
      {R"({"spec": {"training": {"model": {"hidden": [1, "x"]}}}})",
       "spec.training.model.hidden[1]: "},
      {R"({"spec": {"training": {"model": {"hidden": 5}}}})",
       "spec.training.model.hidden: expected a list"},
      {R"({"spec": {"volumes": [{}, {"nam": "x"}]}})", "spec.volumes[1].nam: unknown field"},
      {R"({"spec": {"training": {"threads": 1.5}}})",
       "spec.training.threads: expected text or a whole number, got number"},
      {R"({"spec": {"training": {"threads": [2]}}})", "got array"},
      {R"({"spec": {"image": 5}})", "spec.image: expected text"},
      {R"({"spec": {"ps": {"template": "x"}}})", "spec.ps.template: expected a mapping"},
      {R"({"metadata": {"labels": {"a.b": 1}}})", "metadata.labels[\"a.b\"]: expected text"},
      {R"({"metadata": {"labels": "x"}})", "metadata.labels: expected a mapping"},
  };
  for (const auto& [text, message] : rows) {
    v1::TrainingJob job;
    const Status status = fromJson(Json::parse(text), &job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << text;
  }
  v1::TaskId id;
  EXPECT_THAT(std::string(fromJson(Json::parse(R"({"role": "ROLE_CHIEF"})"), &id).message()),
              HasSubstr("role: \"ROLE_CHIEF\" is no known value"));
  EXPECT_FALSE(fromJson(Json::parse(R"({"index": -1})"), &id).ok());
}

TEST(ToYaml, ReadsBackAsTheSameDocument) {
  const Json json = Json::parse(R"({
    "a": "plain", "b": "yes", "c": "012", "d": "", "e": "two\nlines: x", "f": "null", "g": "# no",
    "list": [1, 2.5, true, null, "x", [], {}, [[1], [2, 3]], {"k": {"l": 1}, "m": [4]}],
    "odd key: [": 1, "on": false, "path": "/data/train-images.gz", "empty": {}, "é": "é\"\\\t"})");
  const std::string text = toYaml(json);
  EXPECT_EQ(yaml(text).dump(), json.dump()) << text;
  EXPECT_THAT(text, HasSubstr("\npath: /data/train-images.gz\n"));
  EXPECT_THAT(text, HasSubstr("a: plain\nb: \"yes\"\nc: \"012\"\n"));
  EXPECT_THAT(text, HasSubstr("\n  - k:\n      l: 1\n    m:\n      - 4\n"));
  EXPECT_EQ(toYaml(Json::object()), "{}\n");
}

// A reader looks for the end of a key within 1024 characters, and control characters take six.
TEST(ToYaml, KeysOfAnyLengthAreKeys) {
  for (const std::string& key : {std::string(999, 'a'), std::string(1001, 'a'),
                                 std::string(300, '\x1e'), std::string(5000, 'a')}) {
    const Json json = {{"list", {{{key, {{"inner", 1}}}, {"next", 2}}}}, {key, 3}};
    EXPECT_EQ(yaml(toYaml(json)).dump(), json.dump()) << key.size();
  }
}

TEST(ToYaml, AResolvedJobIsAJob) {
  std::vector<JobProblem> problems;
  const auto job = parseJob(kSmallJob, "job.yaml", {}, &problems);
  ASSERT_TRUE(job.ok());
  const auto again = parseJob(toYaml(toJson(*job)), "again.yaml", {}, &problems);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(toJson(*again).dump(), toJson(*job).dump());
}

}  // namespace
}  // namespace trainyard::control::testing
