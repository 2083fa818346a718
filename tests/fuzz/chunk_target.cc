// What callers say to a parameter server on a lane, taken as runtime/ps/service.cc takes it:
// headers of chunks and of shared memory, and gradients.
#include <cstring>

#include "base/core/check.h"
#include "runtime/ps/payload.h"
#include "runtime/ps/shared_peers.h"
#include "runtime/ps/shared_pool.h"
#include "tests/fuzz/lane_feed.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::fuzz {
namespace {

using runtime::lanes::Connection;
using runtime::lanes::FrameHead;
using runtime::lanes::FrameKind;
using runtime::lanes::Topic;
using runtime::ps::HeldPayload;

constexpr std::size_t kLongestChunk = 256;
constexpr std::size_t kSharedBytes = 4096;

// All ways to read a payload give its bytes.
void readPayload(const HeldPayload& payload, std::span<const std::byte> bytes) {
  TY_CHECK(payload.sizeBytes() == bytes.size(), "all of the body is the payload");
  if (bytes.empty() || bytes.size() % 4 != 0) return;  // the shard refuses these
  std::vector<float> copied(bytes.size() / 4);
  payload.copyTo(copied, 0);
  TY_CHECK(std::memcmp(copied.data(), bytes.data(), bytes.size()) == 0, "a copy is the payload");
  std::vector<float> added(copied.size(), 1);
  payload.addTo(added, 0);
  for (std::size_t i = 0; i < added.size(); ++i) {
    const float sum = 1 + copied[i];
    TY_CHECK(added[i] == sum || sum != sum, "and so is what is added");
  }
}

// A place that a caller names is inside of the memory, or none. Which file it is in is not the
// fuzzer's to say: it would open those of other processes.
void readPlace(v1::SharedPlace place) {
  static const auto pool = runtime::ps::SharedPool::create(kSharedBytes, 1).value();
  static runtime::ps::SharedFiles files;
  *place.mutable_file() = pool->file();
  runtime::ps::SharedPeer peer(files);
  const auto part = peer.part(place);
  if (!part.ok()) return;
  std::vector<std::byte> read(part->bytes.begin(), part->bytes.end());
  TY_CHECK(read.size() == place.bytes(), "all of it is there");
}

// Answers as a server does, with the gradient for weights.
class Server final : public Connection::Reader {
 public:
  Server(Connection& connection, std::size_t& answers)
      : connection_(connection), answers_(answers) {}

  Status onHeader(const FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    if (head.kind != FrameKind::kRequest) return absl::DataLossError("a caller sends requests");
    head_ = head;
    const int length = static_cast<int>(header.size());
    if (head.topic == Topic::kSharedMemory) {
      const bool good = head.body_bytes == 0 && offer_.ParseFromArray(header.data(), length);
      return good ? absl::OkStatus() : absl::DataLossError("an offer that cannot be read");
    }
    if (!header_.ParseFromArray(header.data(), length) || head.body_bytes > kLongestChunk)
      return absl::DataLossError("a request that cannot be read");
    bytes_ = nullptr;
    if (head.body_bytes == 0) return absl::OkStatus();
    bytes_ = bodies_.take(head.body_bytes);
    body = {std::span(bytes_.get(), head.body_bytes)};
    return absl::OkStatus();
  }
  Status onFrame() override {
    if (head_.topic == Topic::kSharedMemory) {
      answer(FrameKind::kRefusal, "no memory of anybody's");
      return absl::OkStatus();
    }
    if (header_.has_shared()) readPlace(header_.shared());
    if (header_.receipt()) answer(FrameKind::kReceipt, "");
    v1::ChunkReplyHeader reply;
    reply.set_chunk(header_.chunk());
    answer(FrameKind::kReply, reply.SerializeAsString(), takePayload());
    return absl::OkStatus();
  }
  void onClosed(const Status&) override {}

 private:
  std::vector<runtime::lanes::BodyPiece> takePayload() {
    if (bytes_ == nullptr) return {};
    const std::span<const std::byte> bytes(bytes_.get(), head_.body_bytes);
    const auto owner = std::exchange(bytes_, nullptr);
    readPayload(HeldPayload(bytes, owner), bytes);
    const std::size_t half = bytes.size() / 2;
    return {{bytes.first(half), owner}, {bytes.subspan(half), owner}};
  }
  void answer(FrameKind kind, std::string header,
              std::vector<runtime::lanes::BodyPiece> body = {}) {
    ++answers_;
    connection_.send(kind, head_.topic, head_.number, std::move(header), std::move(body));
  }

  Connection& connection_;
  std::size_t& answers_;
  runtime::ps::BodyPool bodies_;
  FrameHead head_;
  v1::ChunkRequestHeader header_;
  v1::ShareMemoryRequest offer_;
  std::shared_ptr<std::byte[]> bytes_;
};

// What was sent are the answers to what was asked, one after the other.
void checkAnswers(const std::vector<FedFrame>& sent, const std::vector<FedFrame>& asked) {
  auto request = asked.begin();
  for (const FedFrame& answer : sent) {
    TY_CHECK(request != asked.end() && request->head.number == answer.head.number,
             "an answer to what was asked");
    if (answer.head.kind == FrameKind::kReceipt) continue;
    const bool whole = answer.body.size() == answer.head.body_bytes;  // the last may be cut short
    TY_CHECK(answer.head.kind != FrameKind::kReply || !whole || answer.body == request->body,
             "with what was in it");
    ++request;
  }
}

std::string chunkRequest(std::uint64_t number, const v1::ChunkRequestHeader& header,
                         std::string_view body = "") {
  return fedFrame(FrameKind::kRequest, Topic::kChunk, number, header.SerializeAsString(), body);
}

}  // namespace

void runChunk(std::string_view input) {
  LaneFeed feed(input);
  std::size_t answers = 0;
  const std::string sent = feed.run(
      [&](Connection& connection) { return std::make_unique<Server>(connection, answers); });
  const std::vector<FedFrame> frames = framesOf(sent);
  TY_CHECK(frames.size() <= answers, "nothing else is sent");
  checkAnswers(frames, feed.frames());
}

std::vector<std::string> chunkSeeds() {
  v1::ChunkRequestHeader header;
  header.set_protocol(1);
  header.set_job_uid("uid-1");
  header.set_epoch(3);
  header.mutable_server()->set_created(1);
  header.set_chunk(7);
  header.set_step(100);
  header.set_loss_sum(1.5);
  const std::string values("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40", 12);
  const std::string pull = chunkRequest(1, header);
  header.set_receipt(true);
  const std::string push = chunkRequest(2, header, values);
  v1::ChunkRequestHeader near = header;
  near.mutable_shared()->mutable_file()->set_id(5);
  near.mutable_shared()->set_offset(64);
  near.mutable_shared()->set_bytes(128);
  v1::ShareMemoryRequest offer;
  offer.set_protocol(1);
  offer.mutable_file()->set_pid(7);
  offer.mutable_file()->set_bytes(kSharedBytes);
  const auto offered = [&](std::string_view body) {
    return fedFrame(FrameKind::kRequest, Topic::kSharedMemory, 4, offer.SerializeAsString(), body);
  };
  std::string foreign = push;
  foreign[32] = 'x';  // its seal
  std::string endless = push;
  endless[28] = '\x7f';  // the length of its body
  std::string tall = push;
  tall[17] = '\x7f';  // and of its header
  return fedSeeds({"", pull, push, pull + push + push, chunkRequest(3, near), offered(""),
                   offered("x"), pull + offered("") + push, chunkRequest(9, header, "abc"),
                   push + foreign, push + endless, push + tall, push + "TYLN",
                   push + std::string(40, 'x'),
                   fedFrame(FrameKind::kRequest, Topic::kChunk, 5, "\xff\xff\xff\xff\x0f"),
                   fedFrame(FrameKind::kReply, Topic::kChunk, 6, ""),
                   chunkRequest(8, header, std::string(kLongestChunk, '\1')),
                   chunkRequest(8, header, std::string(kLongestChunk + 4, '\1'))});
}

}  // namespace trainyard::fuzz
