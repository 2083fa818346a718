#include "base/core/exit_code_set.h"

#include "gtest/gtest.h"

namespace trainyard {
namespace {

TEST(ExitCodeSet, AreWrittenAsTheyAreRead) {
  for (const std::string text : {"", "1", "1-3,42", "0-255", "137,143", "1-127,129-255"}) {
    const auto codes = ExitCodeSet::parse(text);
    ASSERT_TRUE(codes) << text;
    EXPECT_EQ(codes->toString(), text);
    EXPECT_EQ(codes->empty(), text.empty());
  }
  const auto codes = ExitCodeSet::parse("1-3,42");
  for (const int code : {1, 2, 3, 42}) EXPECT_TRUE(codes->has(code)) << code;
  for (const int code : {-1, 0, 4, 41, 43, 255, 256, 1000}) EXPECT_FALSE(codes->has(code)) << code;
}

TEST(ExitCodeSet, RefuseWhatIsNone) {
  for (const char* text :
       {",", "1,", ",1", "3-1", "2,1", "1-3,3", "256", "-1", "a", "1-", "1--2", "1 "})
    EXPECT_FALSE(ExitCodeSet::parse(text)) << text;
}

TEST(ExitCodeSet, OfASignalAreThoseOfAShell) {
  EXPECT_EQ(shellExitCode(3, 0), 3);
  EXPECT_EQ(shellExitCode(0, 9), 137);
}

}  // namespace
}  // namespace trainyard
