// A chunk's request or answer as gRPC hands it over: in slices, of the length that the first byte
// says (0: in one).
#include <cstring>

#include "base/core/check.h"
#include "runtime/ps/wire.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::fuzz {
namespace {

using runtime::ps::WirePayload;

grpc::ByteBuffer inSlices(std::string_view message, std::size_t length) {
  if (length == 0) length = std::max<std::size_t>(message.size(), 1);
  std::vector<grpc::Slice> slices;
  for (std::size_t at = 0; at < message.size(); at += length) {
    const std::string_view part = message.substr(at, length);
    slices.emplace_back(part.data(), part.size());
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// All ways to read a payload give the last bytes of the message.
void readPayload(const WirePayload& payload, std::string_view message) {
  TY_CHECK(payload.sizeBytes() <= message.size(), "a payload is a part of its message");
  if (payload.sizeBytes() == 0 || payload.sizeBytes() % 4 != 0) return;  // the shard refuses these
  const std::string_view bytes = message.substr(message.size() - payload.sizeBytes());
  std::vector<float> copied(payload.sizeBytes() / 4);
  payload.copyTo(std::span<float>(copied));
  TY_CHECK(std::memcmp(copied.data(), bytes.data(), bytes.size()) == 0, "a copy is the payload");
  std::vector<float> added(copied.size());
  payload.addTo(added);
  std::vector<float> parts(copied.size());
  const std::size_t half = parts.size() / 2;
  payload.copyTo({std::span(parts).first(half), std::span(parts).subspan(half)});
  TY_CHECK(std::memcmp(parts.data(), bytes.data(), bytes.size()) == 0, "so is one in two parts");
}

template <typename Header>
void decode(std::string_view message, std::size_t length) {
  Header header;
  const auto payload = runtime::ps::decodeChunk(inSlices(message, length), &header);
  if (!payload.ok()) {
    TY_CHECK(absl::IsInvalidArgument(payload.status()), "a message that is none is named so");
    return;
  }
  readPayload(**payload, message);
  if ((*payload)->sizeBytes() % 4 != 0) return;
  const auto values = std::make_shared<std::vector<float>>((*payload)->sizeBytes() / 4);
  (*payload)->copyTo(std::span<float>(*values));
  Header again;
  const auto written =
      runtime::ps::encodeChunk(header, {{std::span<const float>(*values), values}});
  const auto reread = runtime::ps::decodeChunk(written, &again);
  TY_CHECK(reread.ok() && (*reread)->sizeBytes() == values->size() * 4, "what is sent arrives");
  TY_CHECK(again.SerializeAsString() == header.SerializeAsString(), "with its header");
}

}  // namespace

void runChunk(std::string_view input) {
  Choices choices(input);
  const std::size_t length = choices.byte();
  const std::string_view message = choices.rest();
  decode<v1::ChunkRequestHeader>(message, length);
  decode<v1::ChunkReplyHeader>(message, length);
  const auto held = std::make_shared<std::string>(message);
  const auto own = WirePayload::of(std::as_bytes(std::span(*held)), held);
  readPayload(*own, *held);
}

std::vector<std::string> chunkSeeds() {
  v1::ChunkRequest request;
  v1::ChunkRequestHeader& header = *request.mutable_header();
  header.set_protocol(1);
  header.set_job_uid("uid-1");
  header.set_epoch(3);
  header.mutable_server()->set_created(1);
  header.set_chunk(7);
  header.set_step(100);
  header.set_loss_sum(1.5);
  v1::ChunkReply reply;
  reply.mutable_header()->set_code(v1::CHUNK_OK);
  reply.mutable_header()->set_message("why");
  reply.set_payload(std::string(16, '\x3f'));
  std::vector<std::string> messages = {"",
                                       "\n",
                                       std::string("\n\0", 2),
                                       "\n\x05"
                                       "ab",
                                       reply.SerializeAsString(),
                                       request.SerializeAsString()};
  request.set_payload(std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40", 12));
  const std::string whole = request.SerializeAsString();
  messages.push_back(whole);
  messages.push_back(whole + "x");
  messages.push_back(whole.substr(0, whole.size() - 1));
  messages.push_back("\n" + std::string(10, '\xff'));                   // a length without end
  messages.push_back("\n\xff\xff\xff\xff\x0f" + std::string(20, 'x'));  // 4 GiB of header
  request.set_payload("abc");
  messages.push_back(request.SerializeAsString());
  std::vector<std::string> seeds;
  for (const std::string& message : messages) {
    for (const char length : {'\0', '\1', '\5'}) seeds.push_back(length + message);
  }
  return seeds;
}

}  // namespace trainyard::fuzz
