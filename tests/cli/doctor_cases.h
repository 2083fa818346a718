// Findings one by one: each case is a fact that is not as it should be, and what is said of it.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::cli {

inline constexpr FindingLevel kIsOk = FindingLevel::kOk;
inline constexpr FindingLevel kIsNote = FindingLevel::kNote;
inline constexpr FindingLevel kIsUnknown = FindingLevel::kUnknown;
inline constexpr FindingLevel kIsWarning = FindingLevel::kWarning;
inline constexpr FindingLevel kIsProblem = FindingLevel::kProblem;

template <typename Facts>
struct FindingCase {
  std::function<void(Facts&)> change;
  FindingLevel level;
  std::string text;    // a part of it
  std::string advice;  // a part of it
};

// Each case changes one finding of those of `good`, and what is wrong has an advice.
template <typename Facts, typename Find>
void expectOneFindingEach(const Facts& good, const std::vector<FindingCase<Facts>>& cases,
                          const Find& find) {
  const std::vector<Finding> usual = find(good);
  for (const FindingCase<Facts>& one : cases) {
    Facts facts = good;
    one.change(facts);
    int others = 0;
    for (const Finding& finding : find(facts)) {
      if (std::find(usual.begin(), usual.end(), finding) != usual.end()) continue;
      ++others;
      EXPECT_EQ(finding.level, one.level) << finding.text;
      EXPECT_THAT(finding.text, testing::HasSubstr(one.text));
      EXPECT_THAT(finding.advice, testing::HasSubstr(one.advice));
      EXPECT_TRUE(finding.level < kIsUnknown || !finding.advice.empty()) << finding.text;
    }
    EXPECT_EQ(others, 1) << one.text;
  }
}

}  // namespace trainyard::cli
