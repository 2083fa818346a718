// A worker and a server of a job with training.wireType.
#include "gmock/gmock.h"
#include "runtime/tensor/reduce.h"
#include "tests/runtime/ps/caller.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::HasSubstr;

// As the server and a worker of a 16-bit job.
class SixteenBits : public testing::TestWithParam<ElementType> {
 protected:
  static constexpr std::size_t kBytes = 8 * sizeof(std::uint16_t);

  float rounded(float value) const {
    roundFloats(GetParam(), {&value, 1});
    return value;
  }
  PsServer server{1, 1, {}, 8, keys(), {}, false, 2, -1, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(ClientAndServer, SixteenBits,
                         testing::Values(ElementType::kFloat16, ElementType::kBFloat16),
                         [](const auto& type) { return std::string(nameOf(type.param)); });

// Rounded on the way there and on the way back; in between nothing is.
TEST_P(SixteenBits, TravelBothWaysAndTheServerKeeps32) {
  Caller caller(server, keys().data, kLimit, false, nullptr, GetParam());
  float weights = 0;
  float all_rounded = 0;
  for (std::int64_t step = 0; step < 20; ++step) {
    const Caller::Reply reply = caller.reply(caller.push(0, 0.1f, step));
    ASSERT_TRUE(reply.status.ok()) << reply.status;
    weights -= rounded(0.1f);
    all_rounded = rounded(all_rounded - rounded(0.1f));
    EXPECT_THAT(reply.values, Each(rounded(weights))) << step;
  }
  EXPECT_NE(rounded(weights), all_rounded) << "the case sees what is kept";
  v1::RuntimeReport report;
  server.service.traffic().fill(report);
  ASSERT_EQ(report.traffic_size(), 1);
  EXPECT_EQ(report.traffic(0).received_bytes(), 20 * kBytes);
  EXPECT_EQ(report.traffic(0).transmitted_bytes(), 20 * kBytes);
}

// No bit depends on which way a chunk takes.
TEST_P(SixteenBits, AreTheSameThroughSharedMemory) {
  Caller caller(server, keys().data, kLimit, true, nullptr, GetParam());
  float weights = 0;
  for (std::int64_t step = 0; step < 1000 && server.service.sharedRequests() < 20; ++step) {
    const Caller::Reply reply = caller.reply(caller.push(0, 0.1f, step));
    weights -= rounded(0.1f);
    ASSERT_THAT(reply.values, Each(rounded(weights))) << step;
  }
  EXPECT_GE(server.service.sharedRequests(), 20u);
}

TEST_P(SixteenBits, WhoSendsOthersIsRefusedByName) {
  Caller caller(server);
  const Caller::Reply reply = caller.reply(caller.push(0, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(reply.status)) << reply.status;
  EXPECT_THAT(std::string(reply.status.message()),
              HasSubstr(fmt::format("the request's numbers are float32, this server's {} "
                                    "(training.wireType)",
                                    nameOf(GetParam()))));
  v1::ChunkRequestHeader header = chunkHeader();
  header.set_wire_type(99);
  EXPECT_THAT(RawWorker(server).ask(header).value().header, HasSubstr("are of type 99"));
}

TEST_P(SixteenBits, ABodyOfAnotherLengthThanTheChunkIsRefused) {
  v1::ChunkRequestHeader header = chunkHeader();
  header.set_wire_type(static_cast<std::uint32_t>(GetParam()));
  v1::ChunkReplyHeader reply;
  for (const std::size_t bytes : {kBytes - 2, kBytes - 1, kBytes + 1, 2 * kBytes}) {
    const auto answer = RawWorker(server).ask(header, std::string(bytes, '\0'));
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_TRUE(reply.ParseFromString(answer->header));
    EXPECT_EQ(reply.code(), v1::CHUNK_WRONG_SERVER) << bytes;
    EXPECT_EQ(reply.message(), fmt::format("chunk 0 has 16 bytes, the request {}", bytes));
  }
}

// Means are what a replica takes its step with: they must not be rounded.
TEST_P(SixteenBits, BetweenServersAre32) {
  PsServer keeper(
      1, 1, [](ShardConfig& c) { c.ps = 1; }, 8, keys(), {}, false, 2, 0, GetParam());
  v1::ChunkRequestHeader header = chunkHeader();
  header.set_replica(true);
  const auto taken = RawWorker(keeper).ask(header, std::string(32, '\0'));
  ASSERT_TRUE(taken.ok()) << taken.status();
  v1::ChunkReplyHeader reply;
  ASSERT_TRUE(reply.ParseFromString(taken->header)) << taken->header;
  EXPECT_EQ(reply.code(), v1::CHUNK_OK) << reply.message();
}

}  // namespace
}  // namespace trainyard::runtime::ps
