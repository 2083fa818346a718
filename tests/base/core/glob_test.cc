#include "base/core/glob.h"

#include <vector>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

TEST(Glob, StarsAndQuestionMarks) {
  struct Case {
    const char* pattern;
    const char* name;
    bool matches;
  };
  for (const Case& c : std::vector<Case>{
           {"fc1_*", "fc1_wei", true},
           {"fc1_*", "fc2_wei", false},
           {"*", "a.csv", true},
           {"*", "", true},
           {"**", "x", true},
           {"", "a", false},
           {"", "", true},
           {"*_wei", "conv1_1_wei", true},
           {"c*_?_*i", "conv1_1_wei", true},
           {"*.csv", "a.csv.gz", false},
           {"*.csv*", "a.csv.gz", true},
           {"part-?.csv", "part-7.csv", true},
           {"part-?.csv", "part-17.csv", false},
           {"part-?.csv", "part-.csv", false},
           {"fc?", "fc", false},
           {"?*", "", false},
           {"a*b", "ab_", false},
           {"a*b*c", "a_b_b_c", true},
           {"a*b*c", "aXcYb", false},
           {"*aab", "aaaaab", true},
           {"[ab].csv", "a.csv", false},
           {"[ab].csv", "[ab].csv", true},
       }) {
    EXPECT_EQ(matchesGlob(c.pattern, c.name), c.matches) << c.pattern << " and " << c.name;
  }
}

}  // namespace
}  // namespace trainyard
