#include "base/core/rfc3339.h"

#include "gtest/gtest.h"

namespace trainyard {
namespace {

constexpr UnixMillis kAt = 1'700'000'000'123;

TEST(Rfc3339, ComesBack) {
  EXPECT_EQ(formatRfc3339(kAt), "2023-11-14T22:13:20Z");
  EXPECT_EQ(formatRfc3339(kAt, 3), "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(formatRfc3339(kAt, 6), "2023-11-14T22:13:20.123000Z");
  for (int digits : {3, 6}) EXPECT_EQ(parseRfc3339(formatRfc3339(kAt, digits)), kAt);
  EXPECT_EQ(parseRfc3339(formatRfc3339(kAt)), kAt - 123);
}

TEST(Rfc3339, OffsetsAndFractionsCount) {
  EXPECT_EQ(parseRfc3339("2023-11-15T00:13:20.12345+02:00"), kAt);
  EXPECT_EQ(parseRfc3339("2023-11-14T22:13:20.1Z"), kAt - 23);
  EXPECT_EQ(parseRfc3339Nanos("2023-11-14T22:13:20.123000007Z"), kAt * 1'000'000 + 7);
}

TEST(Rfc3339, WhatIsNoTimeIsZero) {
  for (const char* text : {"", "yesterday", "2023-02-30T00:00:00Z", "2023-11-14",
                           "2023-11-14T22:13:20", "2023-11-14T25:13:20Z", "2023-11-14 22:13:20Z",
                           "2023-11-14T22:13:20Zulu", "infinite-future", "infinite-past"}) {
    EXPECT_EQ(parseRfc3339(text), 0) << text;
    EXPECT_EQ(parseRfc3339Nanos(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace trainyard
