#include "tests/fuzz/lane_feed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>

#include "base/core/check.h"
#include "base/process/pipe.h"
#include "base/security/sha256.h"

namespace trainyard::fuzz {
namespace {

using runtime::lanes::Connection;
using runtime::lanes::EventLoop;
using LaneFrameBytes = runtime::lanes::FrameBytes;
using runtime::lanes::FrameHead;
using runtime::lanes::FrameSeal;
using runtime::lanes::kFrameBytes;

constexpr char kConnectionKey[] = "32 bytes that both sides derive.";
constexpr int kTheirs = 0;  // direction of what is fed
constexpr int kOurs = 1;
constexpr std::size_t kSealAt = 32;
constexpr std::size_t kSealBytes = kFrameBytes - kSealAt;
constexpr std::size_t kMostWritten = 7;  // at a time where writing blocks

// Never ready; connections want a descriptor that a loop can wait for.
const WakeUp& quietDescriptor() {
  static const WakeUp quiet = WakeUp::create().value();
  return quiet;
}

// The head at the beginning of `bytes`, and its header; nothing: they are not all there.
struct Begin {
  StatusOr<FrameHead> head;
  LaneFrameBytes bytes;
  std::string_view header;
};
std::optional<Begin> beginOf(std::string_view bytes) {
  if (bytes.size() < kFrameBytes) return std::nullopt;
  Begin begin{FrameHead{}, {}, {}};
  std::memcpy(begin.bytes.data(), bytes.data(), kFrameBytes);
  begin.head = runtime::lanes::decodeFrame(begin.bytes);
  if (!begin.head.ok()) return begin;
  if (bytes.size() - kFrameBytes < begin.head->header_bytes) return std::nullopt;
  begin.header = bytes.substr(kFrameBytes, begin.head->header_bytes);
  return begin;
}

// What `begin` begins, with what follows it in `bytes`; removes it there.
FedFrame takeFrame(const Begin& begin, std::string_view& bytes) {
  bytes.remove_prefix(kFrameBytes + begin.header.size());
  const std::string_view body = bytes.substr(0, begin.head->body_bytes);
  bytes.remove_prefix(body.size());
  return {*begin.head, std::string(begin.header), std::string(body)};
}

}  // namespace

EventLoop& laneLoop() {
  // First, so that its end comes after the loop's: what it keeps for a thread would be lost.
  static const std::string digest = sha256Hex("");
  static const auto loop = EventLoop::start(std::chrono::hours(1), [] {}).value();
  return *loop;
}

void onLaneLoop(const std::function<void()>& what) {
  // The loop may still be at it when it is noticed here.
  const auto done = std::make_shared<std::promise<void>>();
  laneLoop().post([&what, done] {
    what();
    done->set_value();
  });
  done->get_future().wait();
}

// --- the bytes ---

// What is to come and what was sent.
class LaneFeed::Wire final : public runtime::stream::Stream {
 public:
  Wire(const LaneFeed& feed, std::string& sent) : feed_(feed), left_(feed.bytes_), sent_(sent) {}

  StatusOr<std::size_t> read(std::span<const iovec> into) override {
    if (left_.empty() && ended_) return absl::UnavailableError("the other side has ended it");
    std::size_t most =
        feed_.step_ == 0 ? left_.size() : std::min<std::size_t>(feed_.step_, left_.size());
    std::size_t moved = 0;
    for (const iovec& part : into) {
      TY_CHECK(part.iov_len > 0, "no part is empty");
      const std::size_t take = std::min(part.iov_len, most - moved);
      std::memcpy(part.iov_base, left_.data(), take);
      left_.remove_prefix(take);
      moved += take;
    }
    return moved;
  }
  StatusOr<std::size_t> write(std::span<const iovec> from) override {
    const bool blocks = (feed_.way_ & kBlocks) != 0;
    blocked_ = blocks && !blocked_;
    if (blocked_) return 0;
    const std::size_t most = blocks ? kMostWritten : std::string::npos;
    std::size_t moved = 0;
    for (const iovec& part : from) {
      TY_CHECK(part.iov_len > 0, "no part is empty");
      const std::size_t take = std::min(part.iov_len, most - moved);
      sent_.append(static_cast<const char*>(part.iov_base), take);
      moved += take;
    }
    return moved;
  }
  bool awaitsWritable() const override { return blocked_; }
  int fd() const override { return quietDescriptor().fd(); }

  bool empty() const { return left_.empty(); }
  std::size_t sent() const { return sent_.size(); }
  void end() { ended_ = true; }

 private:
  const LaneFeed& feed_;
  std::string_view left_;
  std::string& sent_;
  bool blocked_ = false;
  bool ended_ = false;
};

// Stands between the connection and its reader and compares.
class LaneFeed::Witness final : public Connection::Reader {
 public:
  explicit Witness(const LaneFeed& feed) : feed_(feed) {}

  Status onHeader(const FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    TY_CHECK(seen < feed_.frames_.size(), "only what was sealed for its place arrives");
    const FedFrame& frame = feed_.frames_[seen++];
    TY_CHECK(head.kind == frame.head.kind && head.topic == frame.head.topic &&
                 head.number == frame.head.number && head.body_bytes == frame.head.body_bytes &&
                 header == frame.header,
             "as it was sealed");
    const Status taken = reader->onHeader(head, header, body);
    body_ = body;
    refused = !taken.ok();
    return taken;
  }
  Status onFrame() override {
    std::string body;
    for (const std::span<std::byte> part : body_)
      body.append(reinterpret_cast<const char*>(part.data()), part.size());
    TY_CHECK(body == feed_.frames_[seen - 1].body, "a body lies where it belongs");
    const Status taken = reader->onFrame();
    refused = !taken.ok();
    return taken;
  }
  void onClosed(const Status& status) override {
    TY_CHECK(why.ok() && !status.ok(), "a connection ends once");
    why = status;
    reader->onClosed(status);
  }

  std::unique_ptr<Connection::Reader> reader;
  std::size_t seen = 0;
  bool refused = false;
  Status why;

 private:
  const LaneFeed& feed_;
  std::vector<std::span<std::byte>> body_;
};

LaneFeed::LaneFeed(std::string_view input)
    : step_(input.empty() ? 0 : static_cast<unsigned char>(input[0])),
      way_(input.size() < 2 ? 0 : static_cast<unsigned char>(input[1])),
      bytes_(input.substr(std::min<std::size_t>(input.size(), 2))) {
  seal();
}

void LaneFeed::seal() {
  FrameSeal seal(kConnectionKey, kTheirs);
  for (std::string_view rest = bytes_;;) {
    const std::optional<Begin> begin = beginOf(rest);
    if (!begin) return;
    wrong_ = !begin->head.ok();
    if (wrong_) {
      TY_CHECK(absl::IsDataLoss(begin->head.status()), "a header that is wrong is lost data");
      return;
    }
    LaneFrameBytes right = runtime::lanes::encodeFrame(*begin->head, begin->header, seal);
    TY_CHECK(std::memcmp(right.data(), begin->bytes.data(), kSealAt) == 0,
             "every byte of a header counts");
    char* const there = bytes_.data() + (rest.data() - bytes_.data()) + kSealAt;
    const char* const proper = reinterpret_cast<const char*>(right.data()) + kSealAt;
    if (std::all_of(there, there + kSealBytes, [](char c) { return c == 0; }))
      std::memcpy(there, proper, kSealBytes);
    wrong_ = std::memcmp(there, proper, kSealBytes) != 0;
    if (wrong_) return;
    frames_.push_back(takeFrame(*begin, rest));
  }
}

void LaneFeed::feed(Connection& connection, Wire& wire) {
  connection.start();
  while (!connection.closed() && !wire.empty()) connection.onReady();
  if (connection.closed()) return;
  // Where writing blocks it does so every other time.
  for (std::size_t before = wire.sent() + 1; before != wire.sent();) {
    before = wire.sent();
    connection.onReady();
    connection.onReady();
  }
}

std::string LaneFeed::run(const Open& open) {
  std::string sent;
  onLaneLoop([&] {
    Witness witness(*this);
    auto stream = std::make_unique<Wire>(*this, sent);
    Wire& wire = *stream;
    Connection connection(laneLoop(), std::move(stream),
                          {FrameSeal(kConnectionKey, kTheirs), FrameSeal(kConnectionKey, kOurs)},
                          witness);
    witness.reader = open(connection);
    feed(connection, wire);
    if (connection.closed()) {
      TY_CHECK(witness.refused || wrong_, "nobody ends it without a reason");
      TY_CHECK(absl::IsDataLoss(witness.why), "and that is said");
      return;
    }
    TY_CHECK(!wrong_ && witness.seen == frames_.size(), "all that is right arrives, nothing else");
    if ((way_ & kEnds) == 0) return;
    wire.end();
    connection.onReady();
    TY_CHECK(connection.closed() && absl::IsUnavailable(witness.why), "the end is noticed");
  });
  return sent;
}

std::vector<FedFrame> framesOf(std::string_view sent) {
  FrameSeal seal(kConnectionKey, kOurs);
  std::vector<FedFrame> frames;
  for (;;) {
    const std::optional<Begin> begin = beginOf(sent);
    if (!begin) return frames;
    TY_CHECK(begin->head.ok(), "what is sent are frames");
    TY_CHECK(runtime::lanes::checkSeal(begin->bytes, begin->header, seal).ok(), "and sealed");
    frames.push_back(takeFrame(*begin, sent));
  }
}

std::string fedFrame(runtime::lanes::FrameKind kind, runtime::lanes::Topic topic,
                     std::uint64_t number, std::string_view header, std::string_view body) {
  FrameSeal seal(kConnectionKey, kTheirs);
  LaneFrameBytes bytes = runtime::lanes::encodeFrame(
      {kind, topic, number, static_cast<std::uint32_t>(header.size()), body.size()}, header, seal);
  std::fill(bytes.begin() + kSealAt, bytes.end(), std::byte{0});
  std::string frame(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return frame.append(header).append(body);
}

std::vector<std::string> fedSeeds(const std::vector<std::string>& messages) {
  std::vector<std::string> seeds;
  for (const std::string& message : messages) {
    seeds.push_back(std::string{'\0', '\0'} + message);
    seeds.push_back(std::string{'\5', LaneFeed::kBlocks | LaneFeed::kEnds} + message);
    seeds.push_back(std::string{'\0', LaneFeed::kNarrow} + message);
  }
  return seeds;
}

}  // namespace trainyard::fuzz
