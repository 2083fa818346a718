// A worker and a server of one machine that read each other's memory.
#include <atomic>
#include <cstring>
#include <thread>

#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/ps/caller.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::HasSubstr;

// From some step on, when both have opened the other's memory, weights are read there.
TEST(ClientAndServerMemory, WeightsAreReadInTheServersMemory) {
  PsServer server(1, 1);
  Caller caller(server, keys().data, kLimit, true);
  std::int64_t step = 0;
  for (; server.service.sharedRequests() < 10 && step < 99; ++step) {
    const Caller::Reply reply = caller.reply(caller.push(0, 2, step));
    ASSERT_TRUE(reply.status.ok()) << reply.status;
    EXPECT_THAT(reply.values, Each(-2.0f * static_cast<float>(step + 1)));
  }
  EXPECT_EQ(server.service.sharedRequests(), 10u);
}

// To have gigabytes takes seconds.
TEST(ClientAndServerMemory, AMembershipDoesNotWaitForMemory) {
  ChunkClient* client = nullptr;
  std::thread membership;
  std::atomic<bool> told{false};
  ChunkClient::Options options;
  options.access = {{keys().data}, workerEnd()};
  options.memory = [&]() -> StatusOr<std::shared_ptr<SharedPool>> {
    membership = std::thread([&] {
      client->setAddress(1, "127.0.0.1:1", true);
      told = true;
    });
    EXPECT_TRUE(eventually([&] { return told.load(); }));
    return absl::ResourceExhaustedError("none");
  };
  ChunkClient::Events events;
  events.received = [](std::uint32_t, std::uint64_t) {};
  events.replied = [](const ChunkClient::Reply&) { return std::vector<std::span<float>>(); };
  ChunkClient own(std::move(options), std::move(events));
  client = &own;
  own.setAddress(0, "127.0.0.1:1", true);
  EXPECT_TRUE(own.send(0, 1, chunkHeader(), {}).ok());
  membership.join();
}

TEST(ClientAndServerMemory, PlacesOutsideOfSharedMemoryAreRefused) {
  PsServer server(1, 1);
  RawWorker worker(server);
  const auto pool = SharedPool::create(64, 1);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const auto weights = makeWeights(8, *pool);
  const auto push = [&](const v1::SharedPlace& place) {
    v1::ChunkRequestHeader header = chunkHeader();
    *header.mutable_shared() = place;
    return worker.ask(header).value();
  };
  v1::SharedPlace place = *(*pool)->placeOf(std::as_bytes(std::span<const float>(*weights)));
  EXPECT_EQ(push(place).head.kind, lanes::FrameKind::kReply);
  place.set_offset(place.file().bytes() - 4);
  EXPECT_THAT(push(place).header, HasSubstr("outside of the shared memory"));
  place.mutable_file()->set_id(3);
  EXPECT_THAT(push(place).header, HasSubstr("somebody else's"));
}

TEST(ClientAndServerMemory, MemoryThatCannotBeOpenedIsRefusedWhenItIsOffered) {
  PsServer server(1, 1);
  RawWorker worker(server);
  const auto pool = SharedPool::create(64, 1);
  ASSERT_TRUE(pool.ok()) << pool.status();
  v1::ShareMemoryRequest offer;
  offer.set_protocol(kChunkProtocol);
  *offer.mutable_file() = (*pool)->file();
  const auto answer = [&] {
    return worker.ask(lanes::Topic::kSharedMemory, offer.SerializeAsString()).value();
  };
  EXPECT_EQ(answer().head.kind, lanes::FrameKind::kReply);
  EXPECT_EQ(answer().header, "") << "weights are not to be read";
  offer.set_weights(true);
  v1::ShareMemoryReply opened;
  ASSERT_TRUE(opened.ParseFromString(answer().header));
  SharedFiles files;
  EXPECT_TRUE(files.open(opened.file()).ok());
  offer.mutable_file()->set_id(3);
  EXPECT_EQ(answer().head.kind, lanes::FrameKind::kRefusal);
  offer.set_protocol(7);
  EXPECT_THAT(answer().header, HasSubstr("protocol 7"));
}

// Who is still reading a version, or was frozen in the middle of it, keeps it from being written.
TEST(ClientAndServerMemory, WeightsThatAreReadAreNotWritten) {
  PsServer server(1, 1);
  Caller caller(server, keys().data, kLimit, true);
  std::int64_t step = 0;
  const auto go = [&] { caller.reply(caller.push(0, 1, step++)); };
  while (server.service.sharedRequests() < 3 && step < 90) go();  // all versions are shared now
  RawWorker reader(server);
  v1::ChunkRequestHeader pull = chunkHeader();
  pull.set_pull_only(true);
  pull.set_reads_shared(true);
  pull.set_version(step);
  v1::ChunkReplyHeader reply;
  ASSERT_TRUE(reply.ParseFromString(reader.ask(pull).value().header));
  ASSERT_TRUE(reply.has_shared()) << reply.ShortDebugString();
  SharedFiles files;
  SharedPeer peer(files);
  const SharedPart part = peer.part(reply.shared()).value();
  const auto firstOf = [](const SharedPart& read) {
    float value = 0;
    std::memcpy(&value, read.bytes.data(), sizeof(value));
    return value;
  };
  const auto expected = -static_cast<float>(step);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(firstOf(part), expected);
    go();
  }
  pull.set_version(step);
  ASSERT_TRUE(reader.ask(pull).ok());
  for (int i = 0; i < 4; ++i) go();
  EXPECT_NE(firstOf(part), expected) << "who asks again has read it";
}

}  // namespace
}  // namespace trainyard::runtime::ps
