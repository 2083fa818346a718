#include "base/core/units.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

using ::testing::DoubleEq;
using ::testing::Eq;
using ::testing::Optional;

TEST(Units, BitRates) {
  EXPECT_THAT(parseBitRate("10Gbit"), Optional(DoubleEq(1e10)));
  EXPECT_THAT(parseBitRate("2.5 Gbit/s"), Optional(DoubleEq(2.5e9)));
  EXPECT_THAT(parseBitRate("100mbit"), Optional(DoubleEq(1e8)));
  EXPECT_THAT(parseBitRate("64kbit"), Optional(DoubleEq(64e3)));
  EXPECT_THAT(parseBitRate("1Tbit"), Optional(DoubleEq(1e12)));
  EXPECT_THAT(parseBitRate("9600bit/s"), Optional(DoubleEq(9600)));
  for (const char* wrong : {"", "10", "Gbit", "10G", "10Gb", "10Gbps", "10GB/s", "-1Gbit", "0Gbit",
                            "1..5Gbit", "10Xbit", "10Gbit/m", "1e3Mbit", "nanGbit", "10 G bit"}) {
    EXPECT_THAT(parseBitRate(wrong), Eq(std::nullopt)) << wrong;
  }
}

TEST(Units, Counts) {
  EXPECT_THAT(parseCount("3274634"), Optional(Eq(3'274'634)));
  EXPECT_THAT(parseCount("25.6M"), Optional(Eq(25'600'000)));
  EXPECT_THAT(parseCount("1.5k"), Optional(Eq(1500)));
  EXPECT_THAT(parseCount("143.667240 M"), Optional(Eq(143'667'240)));
  EXPECT_THAT(parseCount("2g"), Optional(Eq(2'000'000'000)));
  for (const char* wrong :
       {"", "M", "1.5", "0", "-3", "25.6Mi", "2X", "10000T", "1e6", "3.0001k"}) {
    EXPECT_THAT(parseCount(wrong), Eq(std::nullopt)) << wrong;
  }
}

}  // namespace
}  // namespace trainyard
