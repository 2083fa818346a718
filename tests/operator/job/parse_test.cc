#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/internal/validate.h"
#include "operator/job/job.h"
#include "tests/operator/job/job_fixture.h"

namespace trainyard::control::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string replaced(std::string from, std::string to) {
  std::string text = kSmallJob;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

v1::TrainingJob parsed(const std::vector<std::pair<std::string, std::string>>& overrides) {
  std::vector<JobProblem> problems;
  const auto job = parseJob(kSmallJob, "job.yaml", {overrides}, &problems);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : v1::TrainingJob();
}

TEST(ParseJob, TextBecomesAMessage) {
  const v1::TrainingJob job = parsed({});
  EXPECT_EQ(job.metadata().name(), "small");
  EXPECT_EQ(job.spec().ps().replicas(), 2);
  EXPECT_EQ(job.spec().training().steps(), 10);
  EXPECT_EQ(job.spec().training().optimizer().learning_rate(), 0.1);
}

TEST(ParseJob, DefaultsComeFromTheSchema) {
  const v1::TrainingJob job = parsed({});
  EXPECT_EQ(job.spec().strategy(), "ParameterServer");
  EXPECT_EQ(job.spec().storage().mount_path(), "/job");
  EXPECT_EQ(job.spec().network().task_port(), 2222);
  EXPECT_EQ(job.spec().worker().processes_per_pod(), 1);
  EXPECT_EQ(job.spec().training().update().mode(), "Sync");
  EXPECT_EQ(job.spec().training().placement().strategy(), "Balanced");
  EXPECT_EQ(job.spec().training().checkpoint().every_seconds(), 50);
  EXPECT_EQ(job.spec().training().seed(), 1);
  EXPECT_TRUE(job.spec().training().has_deterministic());
  EXPECT_EQ(job.spec().run_policy().backoff_limit(), 6);
  EXPECT_FALSE(job.spec().run_policy().has_active_deadline_seconds());
  EXPECT_FALSE(job.spec().training().optimizer().has_decay());
  EXPECT_FALSE(job.spec().worker().has_on_membership_change());
}

TEST(ParseJob, DefaultsFillOnlyObjectsThatAreThere) {
  const v1::TrainingJob job = parsed({{"training.optimizer.decay", "{every: 5, rate: 0.5}"},
                                      {"training.placement.strategy", "MinMax"},
                                      {"training.placement.minMax", "{maxShards: 2}"}});
  EXPECT_TRUE(job.spec().training().optimizer().decay().has_staircase());
  EXPECT_EQ(job.spec().training().placement().min_max().min_bytes(), 262144);
  EXPECT_FALSE(job.spec().training().placement().has_fixed_size());
}

TEST(ParseJob, ProblemsNameFileLineFieldAndExpectation) {
  EXPECT_THAT(problemsOf(replaced("replicas: 4", "replicas: 0")),
              ElementsAre("job.yaml:9: spec.worker.replicas: 0 is below the minimum 1"));
  EXPECT_THAT(
      problemsOf(replaced("steps: 10", "stepz: 10")),
      ElementsAre("job.yaml:10: spec.training.steps: exactly one of steps and passes is "
                  "needed, got neither",
                  "job.yaml:14: spec.training.stepz: unknown field; did you mean \"steps\"?"));
  EXPECT_THAT(
      problemsOf(replaced("name: SGD", "name: sgd")),
      ElementsAre("job.yaml:16: spec.training.optimizer.name: expected one of SGD, Momentum, "
                  "Adagrad, Adadelta, Adam, RMSProp, Ftrl, got \"sgd\"; did you mean SGD?"));
  EXPECT_THAT(
      problemsOf(replaced("steps: 10", "steps: ten")),
      ElementsAre("job.yaml:14: spec.training.steps: expected a whole number, got text \"ten\""));
}

TEST(ParseJob, FindsEveryProblemInFileOrder) {
  std::string text = replaced("replicas: 4", "replicas: 4\n    minReplicas: 9");
  text.replace(text.find("learningRate: 0.1"), 17, "learning_rate: yes");
  text.replace(text.find("batchSize: 32"), 13, "batchSize: -1");
  EXPECT_THAT(problemsOf(text),
              ElementsAre(HasSubstr("job.yaml:9: spec.worker.replicas: 4 is below minReplicas 9"),
                          HasSubstr("job.yaml:14: spec.training.batchSize: -1 is below"),
                          HasSubstr("job.yaml:16: spec.training.optimizer.learningRate: missing"),
                          HasSubstr("job.yaml:18: spec.training.optimizer.learning_rate: unknown "
                                    "field; did you mean \"learningRate\"?")));
}

TEST(ParseJob, AnotherKindIsOneProblem) {
  EXPECT_THAT(
      problemsOf("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n"),
      ElementsAre("job.yaml:1: apiVersion: expected trainyard.dev/v1alpha1, got \"v1\"",
                  "job.yaml:2: kind: expected TrainingJob, got \"Pod\""));
  EXPECT_THAT(problemsOf("[1, 2]"), ElementsAre("job.yaml:1: expected a TrainingJob (a mapping)"));
  EXPECT_THAT(problemsOf("a: 1"), ElementsAre("job.yaml:1: apiVersion: missing: expected "
                                              "trainyard.dev/v1alpha1",
                                              "job.yaml:1: kind: missing: expected TrainingJob"));
  EXPECT_THAT(problemsOf("apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\n"),
              ElementsAre(HasSubstr("metadata: missing"), HasSubstr("spec: missing")));
}

TEST(ParseJob, WhatTheApiserverAddsIsAccepted) {
  const std::string text = replaced("  name: small", R"(  name: small
  namespace: team
  uid: 5b3c
  generation: 3
  creationTimestamp: "2030-01-01T00:00:00Z"
  labels: {app.kubernetes.io/name: x, empty: ""}
  annotations: {note: "a b"}
  managedFields: [{manager: kubectl}]
  ownerReferences: [{kind: Workflow}])");
  std::vector<JobProblem> problems;
  const auto job = parseJob(text, "job.yaml", {}, &problems);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->metadata().generation(), 3);
  EXPECT_EQ(job->metadata().labels().at("app.kubernetes.io/name"), "x");
}

TEST(ParseJob, MetadataIsChecked) {
  const auto with = [](const std::string& line) {
    return problemsOf(replaced("  name: small", "  name: small\n  " + line));
  };
  EXPECT_THAT(with("labels: {a: -b}"),
              ElementsAre(HasSubstr("job.yaml:5: metadata.labels.a: expected letters, digits")));
  EXPECT_THAT(with("labels: {a: 1}"),
              ElementsAre(HasSubstr("metadata.labels.a: expected text, got 1")));
  EXPECT_THAT(with("nam: x"), ElementsAre(HasSubstr("metadata.nam: unknown field")));
  EXPECT_THAT(with("creationTimestamp: now"), ElementsAre(HasSubstr("expected a time such as")));
}

// Whatever the text, the answer is a job or problems; nothing throws.
TEST(ParseJob, DamagedTextIsAnsweredToo) {
  Rng rng(1);
  constexpr std::string_view kBytes = "{}[]:,-'\"\n \t#&*!|>?%@0.9ayz\\\xc3\xff";
  const std::string whole = readSource("examples/fashion-mnist/ps-sync.yaml");
  int valid = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string text = whole;
    for (int edits = 1 + static_cast<int>(rng.next() % 4); edits > 0; --edits) {
      const std::size_t at = rng.next() % text.size();
      const std::size_t length = rng.next() % 3;
      const std::size_t from = rng.next() % kBytes.size();
      text.replace(at, length, kBytes.substr(from, rng.next() % 3));
    }
    valid += problemsOf(text).empty() ? 1 : 0;
  }
  EXPECT_GT(valid, 0);
  EXPECT_LT(valid, 1000);
}

TEST(Overrides, PathsAreBelowSpecOrWritten) {
  const v1::TrainingJob job = parsed({{"training.steps", "50"},
                                      {"spec.worker.replicas", "3"},
                                      {"metadata.name", "other"},
                                      {"metadata.labels[\"a.b/c\"]", "'1'"},
                                      {"training.update.mode", "Async"},
                                      {"training.placement.rules[0]", "{match: '*', ps: 0}"},
                                      {"training.placement.rules[0].ps", "1"},
                                      {"training.optimizer.decay.every", "7"},
                                      {"training.optimizer.decay.rate", "0.5"}});
  EXPECT_EQ(job.spec().training().steps(), 50);
  EXPECT_EQ(job.spec().worker().replicas(), 3);
  EXPECT_EQ(job.metadata().name(), "other");
  EXPECT_EQ(job.metadata().labels().at("a.b/c"), "1");
  EXPECT_EQ(job.spec().training().update().mode(), "Async");
  EXPECT_EQ(job.spec().training().placement().rules(0).ps(), 1);
  EXPECT_EQ(job.spec().training().optimizer().decay().every(), 7);
}

TEST(Overrides, AnEmptyValueTakesAway) {
  const v1::TrainingJob job = parsed({{"training.steps", ""}, {"training.passes", "2"}});
  EXPECT_FALSE(job.spec().training().has_steps());
  EXPECT_EQ(job.spec().training().passes(), 2);
}

TEST(Overrides, ProblemsNameTheOverride) {
  const auto with = [](const std::string& path, const std::string& value) {
    return problemsOf(kSmallJob, {{{path, value}}});
  };
  EXPECT_THAT(with("training.steps", "0"),
              ElementsAre("--set training.steps=0: spec.training.steps: 0 is below the minimum 1"));
  EXPECT_THAT(
      with("training.stepz", "5"),
      ElementsAre("--set training.stepz=5: spec.training.stepz: unknown field; did you mean "
                  "\"steps\"?"));
  EXPECT_THAT(with("ps.replicas.x", "1"),
              ElementsAre("--set ps.replicas.x=1: spec.ps.replicas: is not a mapping"));
  EXPECT_THAT(
      with("volumes[1].name", "x"),
      ElementsAre("--set volumes[1].name=x: spec.volumes: has 0 items; index 1 is beyond its "
                  "end"));
  EXPECT_THAT(with("training[0]", "1"), ElementsAre(HasSubstr("spec.training: is not a list")));
  EXPECT_THAT(with("training.steps", "[1"), ElementsAre(HasSubstr("not valid YAML")));
  EXPECT_THAT(with("training..steps", "1"), ElementsAre(HasSubstr("an empty name")));
  EXPECT_THAT(with("rules[x]", "1"), ElementsAre(HasSubstr("expected a list index")));
  EXPECT_THAT(with("[0]", "1"), ElementsAre(HasSubstr("begins with a list index")));
  EXPECT_THAT(with("", "1"), ElementsAre(HasSubstr("an empty path")));
  EXPECT_THAT(with("ps", ""),
              ElementsAre("--set ps=: spec.ps: missing: strategy ParameterServer needs "
                          "it"));
}

TEST(JobProblemText, IsOneLineThatMovesNoCursor) {
  const JobProblem problem{"a\nb.yaml", 3, "spec[\"\x1b[2J\"]", "unknown"};
  EXPECT_EQ(problem.text(), "a\\nb.yaml:3: spec[\"\\x1b[2J\"]: unknown");
}

TEST(LoadJob, NamesTheFile) {
  const std::string dir = ::testing::TempDir() + "/load_job_" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(dir.c_str(), 0700), 0);
  std::vector<JobProblem> problems;
  const auto absent = loadJob(dir + "/no.yaml", {}, &problems);
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text(), dir + "/no.yaml: No such file or directory");
  EXPECT_FALSE(loadJob(dir, {}, &problems).ok());
  EXPECT_THAT(problems[0].text(), HasSubstr("Is a directory"));
  std::ofstream(dir + "/a.yaml") << kSmallJob;
  EXPECT_TRUE(loadJob(dir + "/a.yaml", {}, &problems).ok());
  EXPECT_THAT(problems, IsEmpty());
  std::filesystem::remove_all(dir);
}

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(internal::nearest("replica", {"replicas", "maxReplicas"}), "replicas");
  EXPECT_EQ(internal::nearest("batch_size", {"batchSize", "steps"}), "batchSize");
  EXPECT_EQ(internal::nearest("zzzz", {"steps", "passes"}), std::nullopt);
  EXPECT_EQ(internal::nearest(std::string(1000, 'x'), {"steps"}), std::nullopt);
}

}  // namespace
}  // namespace trainyard::control::testing
