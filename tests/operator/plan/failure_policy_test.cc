#include "operator/cluster/failure_policy.h"

#include "base/core/exit_code.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace trainyard::control {
namespace {

v1::RunPolicy policyOf(const std::string& rules) {
  v1::RunPolicy policy;
  const auto read = google::protobuf::util::JsonStringToMessage(
      "{\"podFailurePolicy\": {\"rules\": [" + rules + "]}}", &policy);
  EXPECT_TRUE(read.ok()) << read.ToString();
  return policy;
}

constexpr char kFail42[] =
    R"({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42, 43]}})";
constexpr char kIgnoreOthers[] =
    R"({"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1, 137]}})";
constexpr char kDisrupted[] =
    R"({"action": "Count", "onPodConditions": [{"type": "Other", "status": "True"}, {"type": "DisruptionTarget", "status": "True"}]})";

std::optional<FailureAction> actionOf(const v1::RunPolicy& policy, const Failure& failure) {
  const auto verdict = judgeFailure(policy, failure);
  return verdict ? std::optional(verdict->action) : std::nullopt;
}

TEST(FailurePolicy, WithoutRulesSaysNothing) {
  EXPECT_FALSE(judgeFailure({}, {.exit_code = 1, .conditions = {}}));
  EXPECT_TRUE(codesOfTheJob({}).empty());
}

TEST(FailurePolicy, TheFirstRuleThatFitsDecides) {
  const std::string both = std::string(kFail42) + "," + kIgnoreOthers;
  const v1::RunPolicy policy = policyOf(both);
  EXPECT_EQ(actionOf(policy, {.exit_code = 42, .conditions = {}}), FailureAction::kFailJob);
  EXPECT_EQ(actionOf(policy, {.exit_code = 44, .conditions = {}}), FailureAction::kIgnore);
  EXPECT_EQ(judgeFailure(policy, {.exit_code = 44, .conditions = {}})->rule, 1u);
  const v1::RunPolicy turned = policyOf(std::string(kIgnoreOthers) + "," + kFail42);
  EXPECT_EQ(actionOf(turned, {.exit_code = 42, .conditions = {}}), FailureAction::kIgnore);
}

TEST(FailurePolicy, NotInFitsNoCodeThatIsNamedNorSuccessNorWhatIsNotKnown) {
  const v1::RunPolicy policy = policyOf(kIgnoreOthers);
  for (const int code : {1, 137, 0, kExitAgentFailure})
    EXPECT_FALSE(judgeFailure(policy, {.exit_code = code, .conditions = {}})) << code;
  EXPECT_FALSE(judgeFailure(policy, {.exit_code = 0, .conditions = {}}));
}

TEST(FailurePolicy, OneConditionOfSeveralIsEnough) {
  const v1::RunPolicy policy = policyOf(kDisrupted);
  EXPECT_EQ(actionOf(policy, {.exit_code = 0,
                              .conditions = {{"Ready", "True"}, {"DisruptionTarget", "True"}}}),
            FailureAction::kCount);
  EXPECT_FALSE(judgeFailure(
      policy, {.exit_code = 1, .conditions = {{"DisruptionTarget", "False"}, {"Ready", "True"}}}));
}

TEST(FailurePolicy, AnAgentEndsWithTheCodesThatAreNotJustCounted) {
  EXPECT_EQ(codesOfTheJob(policyOf(kFail42)).toString(), "42-43");
  EXPECT_EQ(codesOfTheJob(policyOf(kIgnoreOthers)).toString(), "2-127,129-136,138-255");
  EXPECT_TRUE(codesOfTheJob(policyOf(kDisrupted)).empty());
  const std::string counted =
      R"({"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}},)";
  EXPECT_EQ(codesOfTheJob(policyOf(counted + kFail42)).toString(), "43")
      << "the first rule counts 42";
}

}  // namespace
}  // namespace trainyard::control
