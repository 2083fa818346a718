// Who is taken at a lane's beginning, and who is not.
#include "runtime/lanes/greeting.h"

#include <future>

#include "gmock/gmock.h"
#include "tests/runtime/lanes/lane_bench.h"

namespace trainyard::runtime::lanes {
namespace {

using testing::HasSubstr;

TEST(Greeting, AnIntroSaysWhoCallsWhom) {
  const Intro intro{workerEnd(3, 2), serverEnd(5), 4};
  const Intro read = decodeIntro(encodeIntro(intro));
  EXPECT_EQ(read.from.role, v1::ROLE_WORKER);
  EXPECT_EQ(read.from.index, 3u);
  EXPECT_EQ(read.from.incarnation.start(), 2u);
  EXPECT_EQ(read.to.role, v1::ROLE_PS);
  EXPECT_EQ(read.to.incarnation.start(), 5u);
  EXPECT_EQ(read.lane, 4u);
}

TEST(Greeting, TellsHowManyLanesThereAre) {
  LaneBench bench(3);
  const auto lane = RawLane::open(bench.port(), kSecret, {workerEnd(), serverEnd(), 2});
  ASSERT_TRUE(lane.ok()) << lane.status();
  EXPECT_EQ(lane->lanes(), 3u);
  EXPECT_THAT(
      std::string(
          RawLane::open(bench.port(), kSecret, {workerEnd(), serverEnd(), 3}).status().message()),
      HasSubstr("lane 3 of 3"));
}

TEST(Greeting, TheServersReasonIsHeard) {
  LaneBench bench(1);
  const Status status =
      RawLane::open(bench.port(), kSecret, {workerEnd(), serverEnd(9), 0}).status();
  EXPECT_EQ(status, absl::FailedPreconditionError("another one is meant"));
}

TEST(Greeting, AWrongKeyOpensNothing) {
  LaneBench bench(1);
  const Status status =
      RawLane::open(bench.port(), "another secret", {workerEnd(), serverEnd(), 0}).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

TEST(Greeting, AnotherVersionIsNamed) {
  LaneBench bench(1);
  const Status status =
      RawLane::open(bench.port(), kSecret, {workerEnd(), serverEnd(), 0}, 2).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("speaks protocol version 1; this is 2"));
}

// The server's part of the proof is good for the nonce that it was asked with.
TEST(Greeting, WhatWasHeardOpensNoSecondLane) {
  LaneBench bench(1);
  RecordingRelay relay(bench.port());
  ASSERT_TRUE(RawLane::open(relay.port(), kSecret, {workerEnd(), serverEnd(), 0}).ok());
  const auto heard = relay.heard();
  ASSERT_EQ(heard.size(), 1u);
  const UniqueFd own = connectTo(bench.port());
  sendAll(own.get(), heard[0].to_server);
  EXPECT_LT(receiveUntilClosed(own.get()).size(), heard[0].to_client.size());
}

TEST(Greeting, AStrangerIsToldNothing) {
  LaneBench bench(1);
  for (const std::string& words : {std::string("TYLANE--GET / HTTP/1.1\r\n\r\n"),
                                   std::string("TYLANEXX"), std::string(200, 'T')}) {
    const UniqueFd own = connectTo(bench.port());
    sendAll(own.get(), words);
    EXPECT_EQ(receiveUntilClosed(own.get()), "") << words;
  }
  EXPECT_TRUE(RawLane::open(bench.port(), kSecret, {workerEnd(), serverEnd(), 0}).ok());
}

}  // namespace
}  // namespace trainyard::runtime::lanes
