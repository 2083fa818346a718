// A chunk as bytes of a lane, and back.
#include "runtime/ps/chunk_body.h"

#include <cstring>

#include "gmock/gmock.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::HasSubstr;

std::shared_ptr<Weights> weightsOf(const std::vector<float>& values) {
  return std::make_shared<Weights>(values.begin(), values.end());
}

GivenChunk someChunk() {
  GivenChunk chunk{7};
  chunk.record.set_last_samples(3);
  chunk.record.add_applied()->set_push(4);
  chunk.weights = weightsOf({1, 2, 3});
  chunk.previous = weightsOf({4, 5, 6});
  chunk.slots = {{7, 8, 9}, {10, 11, 12}};
  chunk.sum = weightsOf({13, 14, 15});
  return chunk;
}

std::uint64_t bytesOf(const ChunkFrame& frame) {
  std::uint64_t bytes = 0;
  for (const lanes::BodyPiece& piece : frame.body) bytes += piece.bytes.size();
  return bytes;
}

StatusOr<GivenChunk> passOn(const ChunkFrame& frame, std::int64_t elements) {
  TY_ASSIGN_OR_RETURN(ArrivingChunk arriving,
                      ArrivingChunk::make(frame.header, elements, bytesOf(frame)));
  std::vector<std::byte> wire;
  for (const lanes::BodyPiece& piece : frame.body)
    wire.insert(wire.end(), piece.bytes.begin(), piece.bytes.end());
  std::size_t at = 0;
  for (const std::span<std::byte> span : arriving.body()) {
    if (span.size() > wire.size() - at) return absl::InternalError("more room than bytes");
    std::copy_n(wire.begin() + static_cast<std::ptrdiff_t>(at), span.size(), span.begin());
    at += span.size();
  }
  EXPECT_EQ(at, wire.size());
  return std::move(arriving).take();
}

TEST(ChunkBody, ArrivesAsItLeft) {
  const auto same = [](GivenChunk chunk) {
    const std::string text = textOf(chunk);
    const auto arrived = passOn(frameOf(std::move(chunk)), 3);
    ASSERT_TRUE(arrived.ok()) << arrived.status();
    EXPECT_EQ(textOf(*arrived), text);
  };
  same(someChunk());
  GivenChunk chunk = someChunk();
  chunk.previous = nullptr;
  same(chunk);
  chunk.sum = nullptr;
  chunk.slots.pop_back();
  same(chunk);
  same(GivenChunk{5});  // known: no array at all
}

TEST(ChunkBody, LeavesFromWhereItLies) {
  const GivenChunk chunk = someChunk();
  const ChunkFrame frame = frameOf(chunk);
  EXPECT_EQ(static_cast<const void*>(frame.body[1].bytes.data()), chunk.weights->data());
  EXPECT_EQ(static_cast<const void*>(frame.body[2].bytes.data()), chunk.previous->data());
  EXPECT_GT(chunk.weights.use_count(), 1) << "kept until it has left";
}

TEST(ChunkBody, AHeaderMayBeShortHoweverLongTheRecord) {
  GivenChunk chunk = someChunk();
  for (int worker = 0; worker < 10000; ++worker) chunk.record.add_applied()->set_push(worker);
  const ChunkFrame frame = frameOf(std::move(chunk));
  EXPECT_LT(frame.header.size(), 64u);
  EXPECT_EQ(passOn(frame, 3)->record.applied_size(), 10001);
}

TEST(ChunkBody, AnotherLengthIsRefused) {
  const ChunkFrame frame = frameOf(someChunk());
  EXPECT_THAT(passOn(frame, 4).status().ToString(), HasSubstr("bytes of a chunk, expected"));
  EXPECT_FALSE(ArrivingChunk::make(frame.header, 3, bytesOf(frame) - 1).ok());
  EXPECT_FALSE(ArrivingChunk::make("\xff", 3, 0).ok());
  v1::FetchChunkReply reply;
  reply.set_slots(1U << 30);
  EXPECT_THAT(ArrivingChunk::make(reply.SerializeAsString(), 0, 0).status().ToString(),
              HasSubstr("1073741824 slots"));
  reply.set_slots(0);
  reply.set_record_bytes(1);
  auto wrong = ArrivingChunk::make(reply.SerializeAsString(), 0, 1);
  ASSERT_TRUE(wrong.ok());
  wrong->body()[0][0] = std::byte{0xff};
  EXPECT_THAT(std::move(*wrong).take().status().ToString(), HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace trainyard::runtime::ps
