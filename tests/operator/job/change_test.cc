// What may change in a job that is there: the cases that the schema's transition rules and our C++
// must agree on, and that both have a rule for every field that needs one.
#include "operator/job/change.h"

#include <set>
#include <string>
#include <vector>

#include "base/json/proto_json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/internal/schema.h"
#include "tests/operator/job/job_fixture.h"

namespace trainyard::control::testing {
namespace {

constexpr char kTable[] = "tests/conformance/validation/changes.yaml";

// As recorded: with all defaults.
Json recorded(const Json& document) {
  std::vector<JobProblem> problems;
  const auto job = parseJob(document.dump(), "job.json", {}, &problems);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? toJson(*job) : Json();
}

// What the case does to the job.
Json patchOf(const Json& one) {
  if (one.contains("scale")) return {{"spec", {{"worker", {{"replicas", one.at("scale")}}}}}};
  if (one.contains("status")) return {{"status", one.at("status")}};
  return one.at("patch");
}

std::vector<JobProblem> judge(const Json& before, const Json& after) {
  std::vector<JobProblem> problems;
  const auto changed = parseJob(after.dump(), "job.json", {}, &problems);
  if (!changed.ok()) return problems;
  v1::TrainingJob job;
  EXPECT_TRUE(fromJson(before, &job).ok());
  return checkChange(toJson(job.spec()), toJson(changed->spec()), lifeOf(job));
}

TEST(ChangeTable, EachCaseIsJudgedAsItSays) {
  const Json documents = yaml(readSource("tests/conformance/validation/cases.yaml"));
  const Json table = yaml(readSource(kTable));
  std::set<std::string> names;
  for (const Json& one : table.at("cases")) {
    const std::string name = one.at("name").get<std::string>();
    SCOPED_TRACE(name);
    EXPECT_TRUE(names.insert(name).second) << "twice";
    Json document = documentOf(documents, one);
    if (one.contains("job")) document.merge_patch(one.at("job"));
    Json before = recorded(document);
    if (one.contains("state")) before["status"]["state"] = one.at("state");
    Json after = before;
    after.merge_patch(patchOf(one));
    const std::vector<JobProblem> problems = judge(before, after);
    std::vector<std::string> refused;
    for (const JobProblem& problem : problems) {
      refused.push_back(problem.field);
      EXPECT_THAT(problem.message, ::testing::ContainsRegex(one.value("message", "nothing")));
    }
    std::vector<std::string> expected = one.value("fields", std::vector<std::string>());
    if (one.contains("field")) expected.push_back(one.at("field").get<std::string>());
    EXPECT_NE(expected.empty(), !one.value("valid", false)) << "no outcome, or two";
    EXPECT_EQ(refused, expected);
  }
  EXPECT_GE(names.size(), 60u);
}

// The fields below spec that have a rule of their own: all members of `spec` and of the objects
// that are split up.
std::vector<std::string> fieldsOfSpec() {
  const std::set<std::string> split = {"ps", "worker", "training", "runPolicy"};
  std::vector<std::string> fields;
  const Json& members = internal::jobSchema().at("properties").at("spec").at("properties");
  for (const auto& [name, schema] : members.items()) {
    if (!split.contains(name)) fields.push_back(name);
    if (!split.contains(name)) continue;
    for (const auto& [inner, ignored] : schema.at("properties").items()) {
      fields.push_back(fmt::format("{}.{}", name, inner));
    }
  }
  return fields;
}

TEST(ChangeTable, WhatMayChangeWhileTheJobRuns) {
  std::set<std::string> free;
  for (const std::string& field : fieldsOfSpec()) {
    if (mayChangeWhileRunning(field)) free.insert(field);
  }
  EXPECT_THAT(free, ::testing::UnorderedElementsAre(
                        "ps.replicas", "ps.minReplicas", "worker.replicas", "worker.minReplicas",
                        "worker.maxReplicas", "training.steps", "runPolicy.suspend",
                        "runPolicy.backoffLimit", "runPolicy.cleanPodPolicy",
                        "runPolicy.podReplacement", "runPolicy.activeDeadlineSeconds",
                        "runPolicy.ttlSecondsAfterFinished", "runPolicy.stopSeconds"));
  EXPECT_FALSE(mayChangeWhileRunning("training.optimizer.learningRate"));
  EXPECT_FALSE(mayChangeWhileRunning("training"));
  EXPECT_FALSE(mayChangeWhileRunning("worker"));
}

// Of the rule that compares them one by one after the end: a field that it leaves out could change.
TEST(ChangeTable, TheSchemasRuleForEndedJobsNamesEveryField) {
  std::string rule;
  for (const Json& each : internal::jobSchema()["x-kubernetes-validations"]) {
    if (each["message"] == "cannot change: the job has ended") rule = each["rule"];
  }
  for (const std::string& field : fieldsOfSpec()) {
    if (field == "runPolicy.ttlSecondsAfterFinished") continue;
    const bool whole = !field.starts_with("runPolicy.");
    const std::string name = whole ? field.substr(0, field.find('.')) : field.substr(10);
    const std::string of = whole ? "oldSelf.spec." : "oldSelf.spec.runPolicy.";
    EXPECT_TRUE(rule.find(of + name) != std::string::npos ||
                rule.find(of + "?" + name) != std::string::npos)
        << field;
  }
}

// One rule that names the field and compares it, at the root (where the status can be seen) or at
// the field itself.
TEST(ChangeTable, TheSchemaHasARuleForEveryOtherField) {
  const Json& schema = internal::jobSchema();
  for (const std::string& field : fieldsOfSpec()) {
    if (mayChangeWhileRunning(field)) continue;
    SCOPED_TRACE(field);
    int rules = 0;
    for (const Json& rule : schema.at("x-kubernetes-validations")) {
      if (rule.value("fieldPath", "") != ".spec." + field) continue;
      ++rules;
      EXPECT_THAT(rule.at("rule").get<std::string>(),
                  ::testing::HasSubstr(fmt::format("self.spec.{0} == oldSelf.spec.{0}", field)));
    }
    std::string path = "/properties/spec/properties/" + field;
    if (const std::size_t dot = path.find('.'); dot != std::string::npos) {
      path.replace(dot, 1, "/properties/");
    }
    const Json& own = schema.at(Json::json_pointer(path));
    for (const Json& rule : own.value("x-kubernetes-validations", Json::array())) {
      if (rule.at("rule") == "self == oldSelf") ++rules;
    }
    EXPECT_EQ(rules, 1);
  }
}

}  // namespace
}  // namespace trainyard::control::testing
