// ChunkRequest and ChunkReply on the wire without copies: valid protocol buffers whose `payload`
// field aliases the memory of tensors when sending and is read from gRPC's slices where it arrived.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/core/status.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "runtime/ps/chunk_state.h"

namespace trainyard::runtime::ps {

// Memory to send; `owner` is released when gRPC has let go of it.
struct PayloadPiece {
  std::span<const float> values;
  std::shared_ptr<const void> owner;
};

// Field 1 = header, field 2 = the pieces one after the other (left out when there are none).
grpc::ByteBuffer encodeChunk(const google::protobuf::MessageLite& header,
                             const std::vector<PayloadPiece>& payload);

// The payload of a message that has arrived; keeps gRPC's slices alive.
class WirePayload : public GradientPayload {
 public:
  // Of memory that `owner` keeps.
  static std::unique_ptr<WirePayload> of(std::span<const std::byte> bytes,
                                         std::shared_ptr<const void> owner);
  std::size_t sizeBytes() const override { return size_; }
  void copyTo(std::span<float> out) const override;
  void addTo(std::span<float> acc) const override;
  // Copies elements in order into the spans, one after the other.
  void copyTo(const std::vector<std::span<float>>& out) const;

 private:
  friend StatusOr<std::unique_ptr<WirePayload>> decodeChunk(const grpc::ByteBuffer&,
                                                            google::protobuf::MessageLite*);
  template <typename Sink>
  void walk(std::span<float> out, Sink sink) const;

  std::vector<grpc::Slice> slices_;
  std::size_t offset_ = 0;  // of the payload, over all slices
  std::size_t size_ = 0;
};

// Parses the header and locates the payload (empty when absent). INVALID_ARGUMENT for anything
// else.
StatusOr<std::unique_ptr<WirePayload>> decodeChunk(const grpc::ByteBuffer& message,
                                                   google::protobuf::MessageLite* header);

}  // namespace trainyard::runtime::ps
