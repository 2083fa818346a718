// What a parameter server says to a caller on a lane, where the caller waits for answers of all
// kinds (runtime/ps/chunk_link.h). Whatever is said, each request comes to one end.
#include <array>

#include "base/core/check.h"
#include "runtime/ps/chunk_link.h"
#include "runtime/ps/shared_pool.h"
#include "tests/fuzz/lane_feed.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

using runtime::ElementType;
using runtime::lanes::Connection;
using runtime::lanes::FrameHead;
using runtime::lanes::FrameKind;
using runtime::lanes::Topic;
using runtime::ps::ChunkEvents;
using runtime::ps::ChunkLink;
using runtime::ps::ChunkReply;
using runtime::ps::SharedPool;

constexpr std::size_t kMostWeights = 64;
constexpr std::size_t kSharedWeights = 16;
// What is asked, in the order of the lane's numbers; the offer has no chunk.
enum Asked : std::uint32_t { kPush = 1, kUnwanted, kShared, kOffer, kNothing };
constexpr std::size_t kRequests = kOffer;  // and one more, as 0 is none

// What the server lets us read.
const SharedPool& serversMemory() {
  static const auto pool = SharedPool::create(kSharedWeights * sizeof(float), 1).value();
  return *pool;
}

// Its own lane leads nowhere: it is shown what comes on another one.
class Caller final : public Connection::Reader {
 public:
  Caller(Connection& connection, ElementType wire)
      : connection_(connection), link_(laneLoop(), optionsOf(*this, wire), events_) {
    events_.received = [](std::uint32_t, std::uint64_t) {};
    events_.replied = [this](const ChunkReply& reply) { return replied(reply); };
    events_.stored = [this](const ChunkReply& reply) { stored(reply); };
    events_.cut = [this](const ChunkReply& reply, const Status&) { stored(reply); };
    link_.send({"nowhere", {}}, {kPush, kPush, "", {}});
    link_.send({"nowhere", {}}, {kUnwanted, kUnwanted, "", {}});
    link_.send({"nowhere", {}}, {kShared, kShared, "", {}, true});
    link_.offer({"nowhere", {}}, {});
  }
  ~Caller() override {
    link_.end(absl::CancelledError("no more is said"));
    for (const std::uint32_t asked : {kPush, kUnwanted, kShared})
      TY_CHECK(replies_[asked] == 1 && !storing_[asked], "each request comes to one end");
    TY_CHECK(offers_ >= 1, "and so does the offer; later it may turn out that it was in vain");
  }

  Status onHeader(const FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    unwanted_ = false;
    const Status taken = link_.onHeader(0, head, header, body);
    // The link has told its own lane.
    if (taken.ok() && unwanted_) connection_.skipBody();
    return taken;
  }
  Status onFrame() override { return link_.onFrame(0); }
  void onClosed(const Status& why) override { link_.onLost(0, why); }

 private:
  static ChunkLink::Options optionsOf(Caller& self, ElementType wire) {
    ChunkLink::Options options{};
    options.wire = wire;
    options.call_limit = std::chrono::hours(1);
    options.opened = [&self](const Status&) { ++self.offers_; };
    return options;
  }
  std::vector<std::span<float>> replied(const ChunkReply& reply) {
    TY_CHECK(reply.attempt < kRequests && reply.chunk == reply.attempt, "it was asked");
    ++replies_[reply.chunk];
    const bool wanted = reply.status.ok() && reply.chunk != kUnwanted && reply.elements > 0 &&
                        reply.elements <= kMostWeights;
    unwanted_ = !wanted && reply.status.ok();
    if (!wanted) return {};
    storing_[reply.chunk] = true;
    const std::span<float> all = std::span(weights_).first(reply.elements);
    return {all.first(all.size() / 2), all.subspan(all.size() / 2)};
  }
  void stored(const ChunkReply& reply) {
    TY_CHECK(std::exchange(storing_[reply.chunk], false), "once, and where weights are wanted");
  }

  Connection& connection_;
  ChunkEvents events_;
  std::array<int, kRequests> replies_{};
  std::array<bool, kRequests> storing_{};
  std::array<float, kMostWeights> weights_{};
  int offers_ = 0;
  bool unwanted_ = false;
  ChunkLink link_;
};

std::string chunkAnswer(Asked asked, const v1::ChunkReplyHeader& header,
                        std::string_view body = "") {
  return fedFrame(FrameKind::kReply, Topic::kChunk, asked, header.SerializeAsString(), body);
}

}  // namespace

void runAnswer(std::string_view input) {
  LaneFeed feed(input);
  const ElementType wire = feed.narrow() ? ElementType::kFloat16 : ElementType::kFloat32;
  const std::string sent = feed.run(
      [wire](Connection& connection) { return std::make_unique<Caller>(connection, wire); });
  TY_CHECK(sent.empty(), "who is answered says nothing");
}

std::vector<std::string> answerSeeds() {
  v1::ChunkReplyHeader weights;
  weights.set_code(v1::CHUNK_OK);
  weights.set_version(9);
  v1::ChunkReplyHeader gone;
  gone.set_code(v1::CHUNK_GONE);
  gone.set_message("why");
  const std::string values(16, '\x3f');
  const std::string push = chunkAnswer(kPush, weights, values);
  const std::string unwanted = chunkAnswer(kUnwanted, weights, values);
  const auto shared = [&](std::uint64_t bytes, std::string_view body = "") {
    v1::ChunkReplyHeader header = weights;
    *header.mutable_shared()->mutable_file() = serversMemory().file();
    header.mutable_shared()->set_offset(runtime::ps::kSharedAlign);
    header.mutable_shared()->set_bytes(bytes);
    return chunkAnswer(kShared, header, body);
  };
  v1::ShareMemoryReply own;
  *own.mutable_file() = serversMemory().file();
  const auto said = [](FrameKind kind, Asked asked, std::string_view header,
                       std::string_view body = "") {
    const Topic topic = asked == kOffer ? Topic::kSharedMemory : Topic::kChunk;
    return fedFrame(kind, topic, asked, header, body);
  };
  const std::string receipt = said(FrameKind::kReceipt, kPush, "");
  const std::string opened = said(FrameKind::kReply, kOffer, "");
  return fedSeeds({"",
                   push,
                   receipt + push,
                   unwanted + push,
                   push + push,
                   chunkAnswer(kPush, gone),
                   chunkAnswer(kPush, weights, "abc"),
                   push.substr(0, push.size() - 1),
                   chunkAnswer(kPush, weights, std::string(4 * kMostWeights + 4, '\1')),
                   shared(4 * kSharedWeights),
                   shared(4),
                   shared(3),
                   shared(1 << 20),
                   shared(8, values),
                   shared(0, values),
                   opened + receipt + shared(8) + unwanted + push,
                   said(FrameKind::kRefusal, kOffer, "no memory"),
                   said(FrameKind::kReply, kOffer, own.SerializeAsString()) + shared(8),
                   said(FrameKind::kReply, kOffer, "\xff\xff\xff\xff\x0f"),
                   said(FrameKind::kRefusal, kShared, "no memory"),
                   said(FrameKind::kRefusal, kPush, "why"),
                   said(FrameKind::kRefusal, kPush, "why", values),
                   said(FrameKind::kReceipt, kPush, "", "x"),
                   said(FrameKind::kReply, kOffer, "", values),
                   said(FrameKind::kReply, kNothing, ""),
                   said(FrameKind::kReply, kPush, "\xff\xff\xff\xff\x0f"),
                   receipt + receipt,
                   said(FrameKind::kRequest, kPush, "")});
}

}  // namespace trainyard::fuzz
