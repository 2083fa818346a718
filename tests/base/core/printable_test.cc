#include "base/core/printable.h"

#include "gtest/gtest.h"

namespace trainyard {
namespace {

TEST(Printable, IsOneLineThatMovesNoCursor) {
  EXPECT_EQ(printable("plain, with ümlauts"), "plain, with ümlauts");
  EXPECT_EQ(printable("a\nb\r\x1b[31m\x7f\t"), "a\\nb\\x0d\\x1b[31m\\x7f\\x09");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable(""), "");
}

}  // namespace
}  // namespace trainyard
