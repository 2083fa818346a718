#include "runtime/client/addresses.h"

#include <gmock/gmock.h>

namespace trainyard::runtime::client {
namespace {

std::vector<std::string> textsOf(const std::vector<Arrived>& arrived) {
  std::vector<std::string> texts;
  for (const auto& address : addressesOf(arrived)) texts.push_back(toText(address));
  return texts;
}

TEST(Addresses, AreReadBothWays) {
  for (const char* text : {"127.0.0.1:4000", "[::1]:65535", "[2001:db8::7]:1"}) {
    const auto address = parseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(toText(*address), text);
  }
  for (const char* text : {"", "4000", ":4000", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
                           "::1:4000", "127.0.0.1:4x"}) {
    EXPECT_FALSE(parseAddress(text).ok()) << text;
  }
}

TEST(Addresses, OfOneMachineAreAllTheSameHost) {
  EXPECT_THAT(
      textsOf({{"", "", 10}, {"127.0.0.1", "127.0.0.1", 11}, {"127.0.0.1", "127.0.0.1", 12}}),
      ::testing::ElementsAre("127.0.0.1:10", "127.0.0.1:11", "127.0.0.1:12"));
  // By the name of the machine instead of the loopback.
  EXPECT_THAT(textsOf({{"", "", 10}, {"10.0.0.1", "10.0.0.1", 11}}),
              ::testing::ElementsAre("10.0.0.1:10", "10.0.0.1:11"));
}

TEST(Addresses, OfTwoMachinesTellWhoIsOnWhich) {
  // Rank 1 came by the loopback and is on rank 0's machine all the same.
  EXPECT_THAT(textsOf({{"", "", 10},
                       {"127.0.0.1", "127.0.0.1", 11},
                       {"10.0.0.2", "10.0.0.1", 12},
                       {"10.0.0.2", "10.0.0.1", 13}}),
              ::testing::ElementsAre("10.0.0.1:10", "10.0.0.1:11", "10.0.0.2:12", "10.0.0.2:13"));
}

TEST(Addresses, OfOneRankIsTheLoopback) {
  EXPECT_THAT(textsOf({{"", "", 10}}), ::testing::ElementsAre("127.0.0.1:10"));
}

}  // namespace
}  // namespace trainyard::runtime::client
