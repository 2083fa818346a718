#include "base/core/json_depth.h"

#include <string>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

std::string nested(int levels) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += i % 2 == 0 ? "[" : "{\"a\":";
  for (int i = levels; i-- > 0;) text += i % 2 == 0 ? "]" : "}";
  return text;
}

TEST(JsonDepth, CountsWhatIsOpen) {
  EXPECT_FALSE(jsonIsTooDeep(""));
  EXPECT_FALSE(jsonIsTooDeep(nested(kMaxJsonDepth)));
  EXPECT_TRUE(jsonIsTooDeep(nested(kMaxJsonDepth + 1)));
  std::string many = "[";
  for (int i = 0; i < 1000; ++i) many += "[],{},";
  EXPECT_FALSE(jsonIsTooDeep(many + "1]"));
}

TEST(JsonDepth, BracketsInTextAreText) {
  const std::string brackets(1000, '[');
  EXPECT_FALSE(jsonIsTooDeep("[\"" + brackets + "\"]"));
  EXPECT_FALSE(jsonIsTooDeep("[\"\\\"" + brackets + "\\\\\"]"));
  EXPECT_TRUE(jsonIsTooDeep("[\"\\\\\"," + brackets));
}

}  // namespace
}  // namespace trainyard
