#include "runtime/ps/wire.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/core/check.h"
#include "google/protobuf/io/coded_stream.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::uint8_t kHeaderTag = (1 << 3) | 2;   // length-delimited field 1
constexpr std::uint8_t kPayloadTag = (2 << 3) | 2;  // length-delimited field 2
constexpr std::size_t kMaxHeader = 1 << 16;

void appendVarint(std::string& out, std::uint64_t value) {
  std::uint8_t buffer[10];
  const std::uint8_t* end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value, buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(end - buffer));
}

grpc::Slice aliasSlice(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  return grpc::Slice(
      const_cast<std::byte*>(bytes.data()), bytes.size(),
      [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); },
      new std::shared_ptr<const void>(std::move(owner)));
}

// Reads single bytes over slice borders; only headers are read so.
class Cursor {
 public:
  explicit Cursor(const std::vector<grpc::Slice>& slices) : slices_(slices) { skipEmpty(); }
  bool atEnd() const { return slice_ == slices_.size(); }
  std::uint8_t next() {
    const std::uint8_t byte = *(slices_[slice_].begin() + at_);
    ++at_;
    ++offset_;
    skipEmpty();
    return byte;
  }
  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !atEnd(); shift += 7) {
      const std::uint8_t byte = next();
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }
  std::size_t offset() const { return offset_; }

 private:
  void skipEmpty() {
    while (slice_ < slices_.size() && at_ == slices_[slice_].size()) {
      ++slice_;
      at_ = 0;
    }
  }
  const std::vector<grpc::Slice>& slices_;
  std::size_t slice_ = 0;
  std::size_t at_ = 0;
  std::size_t offset_ = 0;
};

Status malformed(const char* what) {
  return absl::InvalidArgumentError(std::string("malformed chunk message: ") + what);
}

}  // namespace

grpc::ByteBuffer encodeChunk(const google::protobuf::MessageLite& header,
                             const std::vector<PayloadPiece>& payload) {
  std::string prefix(1, static_cast<char>(kHeaderTag));
  appendVarint(prefix, header.ByteSizeLong());
  header.AppendToString(&prefix);
  std::size_t bytes = 0;
  for (const PayloadPiece& piece : payload) bytes += piece.values.size_bytes();
  if (!payload.empty()) {
    prefix += static_cast<char>(kPayloadTag);
    appendVarint(prefix, bytes);
  }
  std::vector<grpc::Slice> slices;
  slices.reserve(payload.size() + 1);
  slices.emplace_back(prefix);
  for (const PayloadPiece& piece : payload) {
    if (!piece.values.empty())
      slices.push_back(aliasSlice(std::as_bytes(piece.values), piece.owner));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::unique_ptr<WirePayload> WirePayload::of(std::span<const std::byte> bytes,
                                             std::shared_ptr<const void> owner) {
  auto payload = std::make_unique<WirePayload>();
  payload->size_ = bytes.size();
  payload->slices_.push_back(aliasSlice(bytes, std::move(owner)));
  return payload;
}

StatusOr<std::unique_ptr<WirePayload>> decodeChunk(const grpc::ByteBuffer& message,
                                                   google::protobuf::MessageLite* header) {
  auto payload = std::make_unique<WirePayload>();
  if (!message.Dump(&payload->slices_).ok()) return malformed("no data");
  Cursor cursor(payload->slices_);
  std::uint64_t length = 0;
  if (cursor.atEnd() || cursor.next() != kHeaderTag || !cursor.varint(length) ||
      length > kMaxHeader) {
    return malformed("no header");
  }
  std::string bytes;
  bytes.reserve(length);
  while (bytes.size() < length && !cursor.atEnd()) bytes += static_cast<char>(cursor.next());
  if (bytes.size() < length || !header->ParseFromString(bytes)) return malformed("header");
  if (cursor.atEnd()) return payload;
  if (cursor.next() != kPayloadTag || !cursor.varint(length)) return malformed("no payload");
  payload->offset_ = cursor.offset();
  payload->size_ = length;
  std::size_t total = 0;
  for (const grpc::Slice& slice : payload->slices_) total += slice.size();
  if (total != payload->offset_ + length) return malformed("payload length");
  return payload;
}

// Hands out runs of whole floats in place, and a float that a slice border cuts through from a
// carry of four bytes. `sink(out, bytes, n)` takes n floats at any byte address.
template <typename Sink>
void WirePayload::walk(std::span<float> out, Sink sink) const {
  TY_CHECK(out.size_bytes() == size_, "the caller has compared the sizes");
  if (size_ == 0) return;  // then the slices hold a header alone
  std::byte carry[4];
  std::size_t carried = 0;
  std::size_t skip = offset_;
  float* to = out.data();
  for (const grpc::Slice& slice : slices_) {
    if (skip >= slice.size()) {
      skip -= slice.size();
      continue;
    }
    const std::byte* from = reinterpret_cast<const std::byte*>(slice.begin()) + skip;
    std::size_t left = slice.size() - skip;
    skip = 0;
    if (carried > 0) {
      const std::size_t take = std::min(left, 4 - carried);
      std::memcpy(carry + carried, from, take);
      carried += take;
      from += take;
      left -= take;
      if (carried < 4) continue;
      sink(to++, carry, 1);
      carried = 0;
    }
    const std::size_t whole = left / 4;
    if (whole > 0) sink(to, from, static_cast<std::int64_t>(whole));
    to += whole;
    carried = left - whole * 4;
    std::memcpy(carry, from + whole * 4, carried);
  }
}

void WirePayload::copyTo(std::span<float> out) const {
  walk(out, [](float* to, const std::byte* from, std::int64_t n) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * 4);
  });
}

void WirePayload::addTo(std::span<float> acc) const {
  walk(acc, [](float* to, const std::byte* from, std::int64_t n) { addFloats(to, from, n); });
}

void WirePayload::copyTo(const std::vector<std::span<float>>& out) const {
  std::size_t skip = offset_;
  std::size_t slice = 0;
  for (std::span<float> span : out) {
    auto* to = reinterpret_cast<std::byte*>(span.data());
    std::size_t left = span.size_bytes();
    while (left > 0) {
      TY_CHECK(slice < slices_.size(), "the spans are as long as the payload");
      if (skip >= slices_[slice].size()) {
        skip -= slices_[slice].size();
        ++slice;
        continue;
      }
      const std::size_t take = std::min(left, slices_[slice].size() - skip);
      std::memcpy(to, slices_[slice].begin() + skip, take);
      to += take;
      left -= take;
      skip += take;
    }
  }
}

}  // namespace trainyard::runtime::ps
