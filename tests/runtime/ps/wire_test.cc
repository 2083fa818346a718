#include "runtime/ps/wire.h"

#include <cstring>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/runtime/ps/helpers.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {
namespace {

std::string flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& s : slices)
    bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return bytes;
}

// Cut into slices that end at `cuts`.
grpc::ByteBuffer cutAt(const std::string& bytes, const std::vector<std::size_t>& cuts) {
  std::vector<grpc::Slice> slices;
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    slices.emplace_back(bytes.substr(from, cut - from));
    from = cut;
  }
  slices.emplace_back(bytes.substr(from));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

v1::ChunkRequestHeader someHeader() {
  v1::ChunkRequestHeader h;
  h.set_job_uid(kJob);
  h.set_chunk(300);
  h.set_step(12345);
  h.set_loss_sum(0.25);
  return h;
}

std::vector<float> someValues(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.5f);
  return values;
}

std::string message(const std::vector<float>& values) {
  return flat(encodeChunk(someHeader(), {{std::span<const float>(values), nullptr}}));
}

StatusOr<std::unique_ptr<WirePayload>> decode(const grpc::ByteBuffer& buffer) {
  v1::ChunkRequestHeader header;
  auto payload = decodeChunk(buffer, &header);
  if (payload.ok()) {
    EXPECT_EQ(header.SerializeAsString(), someHeader().SerializeAsString());
  }
  return payload;
}

Status failure(const std::string& bytes) {
  v1::ChunkRequestHeader header;
  return decodeChunk(cutAt(bytes, {}), &header).status();
}

TEST(Wire, IsAValidProtocolBuffer) {
  const std::vector<float> a = someValues(5);
  const std::vector<float> b = someValues(70);
  v1::ChunkRequest request;
  ASSERT_TRUE(request.ParseFromString(
      flat(encodeChunk(someHeader(), {{std::span<const float>(a), nullptr},
                                      {{}, nullptr},
                                      {std::span<const float>(b), nullptr}}))));
  EXPECT_EQ(request.header().SerializeAsString(), someHeader().SerializeAsString());
  ASSERT_EQ(request.payload().size(), 75 * sizeof(float));
  EXPECT_EQ(std::memcmp(request.payload().data(), a.data(), 20), 0);
  EXPECT_EQ(std::memcmp(request.payload().data() + 20, b.data(), 280), 0);
}

TEST(Wire, ReadsWhatTheGeneratedCodeWrites) {
  const std::vector<float> values = someValues(9);
  v1::ChunkRequest request;
  *request.mutable_header() = someHeader();
  request.set_payload(values.data(), values.size() * sizeof(float));
  auto payload = decode(cutAt(request.SerializeAsString(), {}));
  ASSERT_TRUE(payload.ok()) << payload.status();
  std::vector<float> out(9);
  (*payload)->copyTo(std::span<float>(out));
  EXPECT_EQ(out, values);
}

TEST(Wire, SendsTensorsFromWhereTheyAreAndLetsThemGo) {
  auto owner = std::make_shared<std::vector<float>>(someValues(1000));
  {
    const grpc::ByteBuffer buffer =
        encodeChunk(someHeader(), {{std::span<const float>(*owner), owner}});
    EXPECT_GT(owner.use_count(), 1);
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    EXPECT_EQ(static_cast<const void*>(slices.back().begin()), owner->data());
  }
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Wire, WithoutPayloadThereIsNoField) {
  const std::string bytes = flat(encodeChunk(someHeader(), {}));
  v1::ChunkRequest request;
  ASSERT_TRUE(request.ParseFromString(bytes));
  auto payload = decode(cutAt(bytes, {}));
  ASSERT_TRUE(payload.ok());
  EXPECT_EQ((*payload)->sizeBytes(), 0u);
  float untouched = 7;
  (*payload)->copyTo(std::span<float>(&untouched, 0));
  (*payload)->addTo(std::span<float>(&untouched, 0));
  EXPECT_EQ(untouched, 7);
  v1::ChunkReplyHeader empty;  // a header of no bytes
  ASSERT_TRUE(decodeChunk(encodeChunk(v1::ChunkReplyHeader(), {}), &empty).ok());
}

TEST(Wire, FloatsSurviveASliceBorderAtEveryByte) {
  const std::vector<float> values = someValues(11);
  const std::string bytes = message(values);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    for (const std::size_t second :
         {cut, std::min(cut + 1, bytes.size()), std::min(cut + 6, bytes.size())}) {
      auto payload = decode(cutAt(bytes, {cut, second}));
      ASSERT_TRUE(payload.ok()) << payload.status();
      ASSERT_EQ((*payload)->sizeBytes(), 44u);
      std::vector<float> copied(11, -1);
      (*payload)->copyTo(std::span<float>(copied));
      ASSERT_EQ(copied, values) << cut << ' ' << second;
      std::vector<float> sum(11, 100);
      (*payload)->addTo(std::span<float>(sum));
      for (std::size_t i = 0; i < 11; ++i)
        ASSERT_EQ(sum[i], values[i] + 100) << cut << ' ' << second;
    }
  }
}

TEST(Wire, SlicesOfOneByteWork) {
  const std::vector<float> values = someValues(40);
  const std::string bytes = message(values);
  std::vector<std::size_t> cuts(bytes.size() - 1);
  std::iota(cuts.begin(), cuts.end(), std::size_t{1});
  auto payload = decode(cutAt(bytes, cuts));
  ASSERT_TRUE(payload.ok()) << payload.status();
  std::vector<float> out(40);
  (*payload)->copyTo(std::span<float>(out));
  EXPECT_EQ(out, values);
  (*payload)->addTo(std::span<float>(out));
  EXPECT_EQ(out[39], 2 * values[39]);
  std::vector<float> a(1), b(37), c(2);
  (*payload)->copyTo(std::vector<std::span<float>>{a, b, c});
  EXPECT_EQ(a[0], values[0]);
  EXPECT_EQ(b[36], values[37]);
  EXPECT_EQ(c[1], values[39]);
}

TEST(Wire, EveryTruncationIsRefused) {
  const std::string bytes = message(someValues(8));
  const std::size_t header_end = flat(encodeChunk(someHeader(), {})).size();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    if (length == header_end) continue;  // a message without payload
    EXPECT_EQ(failure(bytes.substr(0, length)).code(), absl::StatusCode::kInvalidArgument)
        << length;
  }
}

TEST(Wire, RefusesWhatIsNotAChunkMessage) {
  const std::string good = message(someValues(2));
  const std::string header = flat(encodeChunk(someHeader(), {}));
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10);  // 2^64 - 1
  const std::vector<std::pair<const char*, std::string>> bad{
      {"another field first", "\x12" + good.substr(1)},
      {"garbage after the payload", good + "x"},
      {"a second header", header + header},
      {"a header that does not parse", std::string("\x0a\x02\x0a\x7f", 4)},
      {"a header of 2 MiB", std::string("\x0a\x80\x80\x80\x01", 5) + std::string(2 << 20, '\0')},
      {"a header of 2^64 - 1 bytes", "\x0a" + huge},
      {"a payload of 2^64 - 1 bytes", header + "\x12" + huge + "abcd"},
      {"a length without end", "\x0a" + std::string(20, '\xff')},
  };
  for (const auto& [what, bytes] : bad) {
    EXPECT_EQ(failure(bytes).code(), absl::StatusCode::kInvalidArgument) << what;
  }
  v1::ChunkRequestHeader parsed;
  EXPECT_FALSE(decodeChunk(grpc::ByteBuffer(), &parsed).ok());
}

}  // namespace
}  // namespace trainyard::runtime::ps
