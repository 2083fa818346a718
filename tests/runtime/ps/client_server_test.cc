#include "base/rpc/secure_channel.h"
#include "base/rpc/token.h"
#include "gmock/gmock.h"
#include "tests/runtime/ps/caller.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::HasSubstr;

TEST(ClientAndServer, ACallIsReceivedWhileItsAnswerWaitsForTheQuorum) {
  PsServer server(1, 2);
  Caller caller(server);
  const auto first = caller.push(0, 2);
  ASSERT_TRUE(caller.received(first));
  const auto second = caller.push(1, 4);
  for (const auto attempt : {first, second}) {
    const Caller::Reply reply = caller.reply(attempt);
    ASSERT_TRUE(reply.status.ok()) << reply.status;
    EXPECT_EQ(reply.header.code(), v1::CHUNK_OK);
    ASSERT_EQ(reply.values.size(), 8u);
    EXPECT_THAT(reply.values, Each(-3.0f));
  }
  EXPECT_EQ(server.service.requests(), 2u);
  v1::RuntimeReport report;
  server.service.traffic().fill(report);
  ASSERT_EQ(report.traffic_size(), 2);
  EXPECT_EQ(report.traffic(1).peer().index(), 1u);
  EXPECT_EQ(report.traffic(1).received_bytes(), 32u);
  EXPECT_EQ(report.traffic(1).transmitted_bytes(), 32u);
}

TEST(ClientAndServer, AnAnswerAtOnceNeedsNoReceipt) {
  PsServer server(1, 1);
  RawWorker worker(server);
  v1::ChunkRequestHeader header = chunkHeader();
  header.set_receipt(true);
  const auto first = worker.ask(header, std::string(32, '\0'));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->head.kind, lanes::FrameKind::kReply);
}

// A step of two ranks; the first one's answer.
Caller::Reply takeStep(Caller& caller, std::int64_t step) {
  const auto first = caller.push(0, 1, step);
  caller.reply(caller.push(1, 1, step));
  return caller.reply(first);
}

TEST(ClientAndServer, AnswersSayHowFastTheirLaneIs) {
  PsServer server(1, 2);
  Caller caller(server);
  std::optional<lanes::Pace> pace;
  for (std::int64_t steps = 0; !pace && steps < 1000; ++steps) pace = takeStep(caller, steps).pace;
  ASSERT_TRUE(pace.has_value());
  EXPECT_GT(pace->bytes_per_second, 0);
}

TEST(ClientAndServer, WhatWentThroughMemorySaysNothingOfALane) {
  PsServer server(1, 2);
  Caller caller(server, keys().data, kLimit, true);
  std::int64_t steps = 0;
  while (server.service.sharedRequests() == 0 && steps < 1000) takeStep(caller, steps++);
  EXPECT_FALSE(takeStep(caller, steps).pace.has_value());
}

TEST(ClientAndServer, AWrongKeyIsRefused) {
  PsServer server(1, 1);
  Caller caller(server, "another-key");
  const Caller::Reply reply = caller.reply(caller.push(0, 1));
  EXPECT_TRUE(absl::IsPermissionDenied(reply.status)) << reply.status;
  EXPECT_THAT(std::string(reply.status.message()), HasSubstr("ps-0"));
  EXPECT_EQ(server.shard.state().max_version(), 0);
}

// A process that was started again does not answer for the one before.
TEST(ClientAndServer, AnotherProcessThanTheOneMeantIsNamed) {
  PsServer server(1, 1);
  Caller caller(server);
  caller.server_start = 7;
  const Caller::Reply reply = caller.reply(caller.push(0, 1));
  EXPECT_THAT(std::string(reply.status.message()),
              HasSubstr("ps-0 of life 1.7 is meant; this is ps-0 of life 1.1"));
  caller.server_start = 1;
  EXPECT_THAT(caller.reply(caller.push(0, 1)).values, Each(-1.0f));
}

TEST(ClientAndServer, EncryptedPushesAreForThoseWhoProveThemselves) {
  PsServer server(1, 1, {}, 8, keys(), {}, true);
  Caller caller(server, keys().data, kLimit, false, secretsOf(keys(), true).tls);
  const Caller::Reply reply = caller.reply(caller.push(0, 1));
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_THAT(reply.values, Each(-1.0f));
  Caller plain(server);
  EXPECT_TRUE(absl::IsUnavailable(plain.reply(plain.push(0, 1, 1)).status));
  Caller stranger(server, keys().data, kLimit, false,
                  secretsOf(deriveRuntimeKeys("another token"), true).tls);
  EXPECT_TRUE(absl::IsUnavailable(stranger.reply(stranger.push(0, 1, 1)).status));
  EXPECT_EQ(server.shard.state().max_version(), 1);
}

TEST(ClientAndServer, WhoEncryptsWhereTheJobDoesNotIsNotTaken) {
  PsServer server(1, 1);
  Caller caller(server, keys().data, kLimit, false, secretsOf(keys(), true).tls);
  EXPECT_TRUE(absl::IsUnavailable(caller.reply(caller.push(0, 1)).status));
}

TEST(ClientAndServer, TheShardIsShownToThoseWhoProveThemselves) {
  PsServer server(1, 1);
  v1::ShardTable table;
  const auto ask = [&](const std::shared_ptr<grpc::Channel>& channel, const std::string& key) {
    const auto stub = v1::ShardTables::NewStub(channel);
    grpc::ClientContext context;
    setDeadline(context, kLimit);
    addToken(context, key);
    return stub->GetShard(&context, {}, &table).error_code();
  };
  const RuntimeKeys others = deriveRuntimeKeys("another token");
  EXPECT_EQ(ask(openChannel(server.address), keys().data), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ask(openSecureChannel(server.address, others.control, kRuntimeServerName), keys().data),
            grpc::StatusCode::UNAVAILABLE);
  ASSERT_EQ(ask(openSecureChannel(server.address, keys().control, kRuntimeServerName), "none"),
            grpc::StatusCode::OK);
  EXPECT_EQ(table.entries_size(), 5);
  EXPECT_EQ(table.id().role(), v1::ROLE_PS);
}

// What placement cuts is 1 MiB at most.
constexpr std::int64_t kLargestChunk = (1 << 20) / sizeof(float);

TEST(ClientAndServer, TheLargestChunkFitsAndWhatIsLargerDoesNot) {
  PsServer server(1, 1, {}, kLargestChunk);
  const std::size_t largest = kLargestChunk * sizeof(float);
  const auto taken = RawWorker(server).ask(chunkHeader(), std::string(largest, '\0'));
  ASSERT_TRUE(taken.ok()) << taken.status();
  v1::ChunkReplyHeader reply;
  ASSERT_TRUE(reply.ParseFromString(taken->header));
  EXPECT_EQ(reply.code(), v1::CHUNK_OK) << reply.message();
  EXPECT_EQ(taken->body.size(), largest);
  RawWorker larger(server);
  EXPECT_TRUE(
      absl::IsUnavailable(larger.ask(chunkHeader(), std::string(largest + 4, '\0')).status()));
}

TEST(ClientAndServer, AMessageThatIsNoChunkEndsTheLane) {
  PsServer server(1, 1);
  RawWorker worker(server);
  EXPECT_TRUE(absl::IsUnavailable(worker.ask(lanes::Topic::kChunk, "\x0a\x7f").status()));
  EXPECT_TRUE(RawWorker(server).ask(chunkHeader(), std::string(32, '\0')).ok());
}

// Chunks take turns on the lanes; each is on one for good.
TEST(ClientAndServer, ChunksOfAllLanesAreAnswered) {
  for (const int lanes : {1, 2, 3}) {
    PsServer server(4, 1, {}, 8, keys(), {}, false, lanes);
    Caller caller(server);
    std::vector<std::uint64_t> attempts;
    for (std::uint32_t chunk = 0; chunk < 20; ++chunk)
      attempts.push_back(caller.push(0, static_cast<float>(chunk), 0, chunk));
    for (std::uint32_t chunk = 0; chunk < 20; ++chunk)
      EXPECT_THAT(caller.reply(attempts[chunk]).values, Each(-static_cast<float>(chunk)));
  }
}

TEST(ClientAndServer, AnotherProtocolIsRefusedByName) {
  PsServer server(1, 1);
  Caller caller(server);
  caller.protocol = kChunkProtocol + 1;
  const Caller::Reply reply = caller.reply(caller.push(0, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(reply.status)) << reply.status;
  EXPECT_THAT(std::string(reply.status.message()),
              HasSubstr(fmt::format("the request speaks protocol {}, this server {}",
                                    kChunkProtocol + 1, kChunkProtocol)));
}

TEST(ClientAndServer, AForgottenCallDoesNotDisturbTheStep) {
  PsServer server(1, 2);
  Caller caller(server);
  const auto given_up = caller.push(0, 2);
  ASSERT_TRUE(caller.received(given_up));
  caller.client().forget();
  const auto again = caller.push(0, 2);
  ASSERT_TRUE(caller.received(again));
  const auto other = caller.push(1, 4);
  EXPECT_THAT(caller.reply(other).values, Each(-3.0f));
  EXPECT_THAT(caller.reply(again).values, Each(-3.0f));
  EXPECT_FALSE(caller.replied(given_up));
}

// A worker that dies leaves nothing behind: the step waits for who comes in its place.
TEST(ClientAndServer, WhatADeadWorkerHadPushedIsNotAnswered) {
  PsServer server(1, 2);
  auto first = std::make_unique<Caller>(server);
  ASSERT_TRUE(first->received(first->push(0, 2)));
  first.reset();
  Caller second(server);
  const auto again = second.push(0, 2);
  const auto other = second.push(1, 4);
  EXPECT_THAT(second.reply(other).values, Each(-3.0f));
  EXPECT_THAT(second.reply(again).values, Each(-3.0f));
}

TEST(ClientAndServer, ACallEndsAtItsLimit) {
  PsServer server(1, 2);
  Caller caller(server, keys().data, std::chrono::milliseconds(300));
  EXPECT_EQ(caller.reply(caller.push(0, 1)).status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientAndServer, ClosingEndsWhatIsInFlightAndRefusesTheRest) {
  PsServer server(1, 2);
  Caller caller(server);
  const auto parked = caller.push(0, 2);
  ASSERT_TRUE(caller.received(parked));
  caller.client().close();
  EXPECT_EQ(caller.reply(parked).status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(absl::IsCancelled(caller.client().send(0, 77, {}, {}).status()));
}

TEST(ClientAndServer, AServerWithoutAddressIsUnavailable) {
  PsServer server(1, 1);
  Caller caller(server);
  EXPECT_TRUE(absl::IsUnavailable(caller.client().send(5, 77, {}, {}).status()));
}

}  // namespace
}  // namespace trainyard::runtime::ps
