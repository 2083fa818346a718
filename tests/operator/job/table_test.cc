// The cases that the schema's CEL rules and our C++ must agree on.
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/internal/schema.h"
#include "operator/job/internal/validate.h"
#include "tests/operator/job/job_fixture.h"

namespace trainyard::control::testing {
namespace {

TEST(ValidationTable, EveryCaseHasAnOutcome) {
  std::set<std::string> names;
  for (const ValidationCase& one : validationCases()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name << " twice";
    EXPECT_NE(one.valid, !one.field.empty() && !one.message.empty()) << one.name;
  }
  EXPECT_GE(names.size(), 100u);
}

TEST(ValidationTable, EachCaseIsJudgedAsItSays) {
  for (const ValidationCase& one : validationCases()) {
    SCOPED_TRACE(one.name);
    std::vector<JobProblem> problems;
    const auto job = parseJob(one.document.dump(2), "job.json", {}, &problems);
    std::string all;
    for (const JobProblem& problem : problems) all += problem.text() + "\n";
    if (one.valid) {
      EXPECT_TRUE(job.ok()) << all;
      continue;
    }
    ASSERT_FALSE(job.ok());
    // One mistake, one problem: what follows from it is not reported as well.
    ASSERT_EQ(problems.size(), 1u) << all;
    EXPECT_EQ(problems[0].field, one.field) << all;
    EXPECT_THAT(problems[0].message, ::testing::ContainsRegex(one.message));
    EXPECT_GT(problems[0].line, 0) << all;
  }
}

// What a general JSON Schema validator thinks of the same documents, before the rules across fields
// and but for the keys of lists, which JSON Schema does not know.
TEST(ValidationTable, StructureAgreesWithValijson) {
  for (ValidationCase& one : validationCases()) {
    SCOPED_TRACE(one.name);
    if (one.name == "volume_twice") continue;
    internal::Locations nowhere;
    std::vector<JobProblem> problems;
    internal::ProblemList list(nowhere, &problems);
    internal::applyDefaults(one.document, internal::jobSchema());
    internal::validate(one.document, internal::jobSchema(), list);
    EXPECT_EQ(valijsonAccepts(one.document, internal::jobSchema()), problems.empty())
        << (problems.empty() ? "" : problems.front().text());
  }
}

}  // namespace
}  // namespace trainyard::control::testing
