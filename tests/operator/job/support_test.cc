#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "operator/job/template.h"
#include "tests/operator/job/job_fixture.h"

namespace trainyard::control::testing {
namespace {

using ::testing::HasSubstr;

Status supported(const std::vector<std::pair<std::string, std::string>>& overrides) {
  std::vector<JobProblem> problems;
  const auto job = parseJob(kSmallJob, "job.yaml", {overrides}, &problems);
  return job.ok() ? checkSupported(*job) : job.status();
}

TEST(CheckSupported, WhatRunsIsSupported) {
  EXPECT_TRUE(supported({}).ok());
  EXPECT_TRUE(supported({{"worker.onMembershipChange", "Live"}}).ok());
  EXPECT_TRUE(
      supported({{"strategy", "AllReduce"}, {"ps", ""}, {"worker.processesPerPod", "3"}}).ok());
  EXPECT_TRUE(supported({{"training.update.backupWorkers", "1"}}).ok());
  EXPECT_TRUE(supported({{"training.update.mode", "Async"}}).ok());
  EXPECT_TRUE(supported({{"training.update", "{mode: BoundedDelay, maxDelay: 4}"}}).ok());
  EXPECT_TRUE(supported({{"training.model", "{name: mlp, hidden: [10]}"}}).ok());
  EXPECT_TRUE(supported({{"training.model", "{name: vgg19, simulatedStepSeconds: 0.5}"}}).ok());
  EXPECT_TRUE(supported({{"training.model", "{name: vgg19, dropout: 0.5}"}}).ok());
  EXPECT_TRUE(supported({{"training.model", "{name: torchscript, path: a.pt}"}}).ok());
  EXPECT_TRUE(supported({{"training.placement.strategy", "RoundRobin"}}).ok());
  EXPECT_TRUE(supported({{"training.initFrom", "''"}}).ok());
  EXPECT_TRUE(supported({{"training.batchSize", ""}, {"training.globalBatchSize", "64"}}).ok());
  EXPECT_TRUE(supported({{"training.steps", ""}, {"training.passes", "2"}}).ok());
  EXPECT_TRUE(supported({{"training.initFrom", "/old"}}).ok());
}

TEST(CheckSupported, WhatIsToComeIsRefusedByName) {
  struct Row {
    std::vector<std::pair<std::string, std::string>> overrides;
    const char* field;
  };
  const std::vector<Row> rows = {
      {{{"strategy", "AllReduce"}, {"ps", ""}, {"training.update.backupWorkers", "1"}},
       "spec.training.update.backupWorkers: 1 with strategy AllReduce"},
      {{{"worker.processesPerPod", "2"}},
       "spec.worker.processesPerPod: 2 with strategy ParameterServer"},
      {{{"worker.onMembershipChange", "Restart"}}, "spec.worker.onMembershipChange: Restart"},
  };
  for (const Row& row : rows) {
    const Status status = supported(row.overrides);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << row.field << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.field));
    EXPECT_THAT(std::string(status.message()), HasSubstr("not in this release"));
  }
}

TEST(CheckSupported, WithoutTrainingTheTemplatesSayWhatRuns) {
  const std::string runs =
      "{spec: {containers: [{name: a}, {name: task, command: [b, c], args: [d],"
      " image: x, env: [{name: E, value: f}, {name: G, valueFrom: {}}]}]}}";
  std::vector<JobProblem> problems;
  const std::vector<std::pair<std::string, std::string>> both = {
      {"training", ""}, {"ps.template", runs}, {"worker.template", runs}};
  const auto job = parseJob(kSmallJob, "job.yaml", {both}, &problems);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(checkSupported(*job).ok()) << checkSupported(*job);
  const auto command = taskCommand(*job, v1::ROLE_WORKER);
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_THAT(command->argv, ::testing::ElementsAre("b", "c", "d"));
  EXPECT_THAT(command->env, ::testing::ElementsAre(::testing::Pair("E", "f")));
  EXPECT_THAT(command->ignored,
              ::testing::UnorderedElementsAre("spec.worker.template.spec.containers[0]",
                                              "spec.worker.template.spec.containers[1].image",
                                              "spec.worker.template.spec.containers[1].env[1]."
                                              "valueFrom"));

  auto with_claims = both;
  with_claims.emplace_back("worker.volumeClaimTemplates", "[{metadata: {name: a}, spec: {}}]");
  const auto claiming = parseJob(kSmallJob, "job.yaml", {with_claims}, &problems);
  ASSERT_TRUE(claiming.ok()) << claiming.status();
  EXPECT_TRUE(checkSupported(*claiming).ok());
  EXPECT_THAT(taskCommand(*claiming, v1::ROLE_WORKER)->ignored,
              ::testing::Contains("spec.worker.volumeClaimTemplates"));
  EXPECT_THAT(taskCommand(*claiming, v1::ROLE_PS)->ignored,
              ::testing::Not(::testing::Contains("spec.ps.volumeClaimTemplates")));

  const auto refusal = [&](const std::string& field, const std::string& value) {
    auto overrides = both;
    overrides.emplace_back(field, value);
    return std::string(supported(overrides).message());
  };
  EXPECT_THAT(refusal("ps.template", "{}"),
              HasSubstr("spec.ps.template.spec.containers[0].command: missing"));
  EXPECT_THAT(refusal("worker.template", "{spec: {containers: [{command: b}]}}"),
              HasSubstr("spec.worker.template.spec.containers[0].command: expected a list"));
  for (const char* other : {"Restart", "Signal", "Ignore"}) {
    EXPECT_EQ(refusal("worker.onMembershipChange", other), "");
  }
  EXPECT_THAT(refusal("worker.onMembershipChange", "Live"),
              HasSubstr("spec.worker.onMembershipChange: Live of a program of your own is not in"));
}

TEST(CheckSupported, AModelOfAProgramsOwnNeedsTheProgram) {
  const std::vector<std::pair<std::string, std::string>> program = {
      {"training.model.name", "program"}, {"training.data", ""}};
  EXPECT_THAT(std::string(supported(program).message()),
              HasSubstr("spec.worker.template.spec.containers[0].command: missing"));
  auto whole = program;
  whole.emplace_back("worker.template", "{spec: {containers: [{command: [python3, train.py]}]}}");
  EXPECT_TRUE(supported(whole).ok()) << supported(whole);
  // It follows the membership as our own do: whatever else restarts it is not in.
  whole.emplace_back("worker.onMembershipChange", "Restart");
  EXPECT_THAT(std::string(supported(whole).message()),
              HasSubstr("spec.worker.onMembershipChange: Restart is not in this release"));
}

TEST(SetByUs, IsWhatProgramsAreToldButForWhereTheirLibraryIs) {
  EXPECT_TRUE(isSetByUs("RANK"));
  EXPECT_TRUE(isSetByUs("TRAINYARD_RANK"));
  EXPECT_FALSE(isSetByUs("TRAINYARD_LIBRARY"));
  EXPECT_FALSE(isSetByUs("PATH"));
}

}  // namespace
}  // namespace trainyard::control::testing
