#include "runtime/transport/tcp_transport.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/core/check.h"
#include "base/core/crc32c.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/poll.h"
#include "fmt/format.h"

namespace trainyard::runtime::transport {
namespace {

// What is put together as it arrives passes through here: small enough for the second-level cache.
constexpr std::size_t kScratchBytes = 256 * 1024;
// One call to the kernel: sending and receiving take turns.
constexpr std::size_t kMaxSendBytes = 512 * 1024;
constexpr std::size_t kMaxStoreBytes = 1024 * 1024;
constexpr std::size_t kMaxControlText = 1024;
// How long the end of a failed group may take on each side.
constexpr Duration kLinger = std::chrono::seconds(1);
// Between two looks at the control connections while a wait spins.
constexpr int kSpinsPerCheck = 64;

}  // namespace

TcpTransport::TcpTransport(TcpMesh mesh, TcpOptions options)
    : rank_(mesh.rank),
      epoch_(mesh.epoch),
      options_(std::move(options)),
      peers_(mesh.pairs.size()),
      waiting_(mesh.pairs.size()) {
  for (std::size_t r = 0; r < peers_.size(); ++r) peers_[r].connections = std::move(mesh.pairs[r]);
}

TcpTransport::~TcpTransport() {
  if (absl::IsCancelled(failure_)) return;
  if (!failure_.ok()) {
    linger();
    return;
  }
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) sendControl(r, FrameKind::kGoodbye, kNobody, 0, "");
  }
}

// Closing a connection with unread data takes back what was sent on it and not read yet: the reason
// for this failure. So what still arrives is taken until the others have closed as well, as it
// comes: encrypted or not, nobody reads it.
void TcpTransport::linger() {
  const TimePoint deadline = systemClock().now() + kLinger;
  for (const Peer& peer : peers_) {
    for (const auto* each : {&peer.connections.in, &peer.connections.out}) {
      if (*each != nullptr) ::shutdown((*each)->fd(), SHUT_WR);
    }
  }
  std::vector<std::byte> dropped(kScratchBytes);
  for (const Peer& peer : peers_) {
    if (peer.connections.in == nullptr) continue;
    const int fd = peer.connections.in->fd();
    while (waitReadable(fd, deadline)) {
      if (::recv(fd, dropped.data(), dropped.size(), MSG_DONTWAIT) <= 0) break;
    }
  }
}

std::uint64_t TcpTransport::send(int peer, const MessageId& id, std::span<const std::byte> bytes) {
  TY_CHECK(peer >= 0 && peer < size() && peer != rank_, "messages go to other ranks");
  Frame frame;
  frame.epoch = epoch_;
  frame.id = id;
  frame.bytes = bytes.size();
  // 0 stands for "not checked"; one value in four thousand million is not checked either.
  if (options_.checksum) frame.checksum = crc32c(bytes);
  Peer& to = at(peer);
  to.sends.push_back({encodeFrame(frame), bytes, 0});
  return ++to.posted_sends;
}

std::uint64_t TcpTransport::receive(int peer, const MessageId& id, const Landing& landing) {
  TY_CHECK(peer >= 0 && peer < size() && peer != rank_, "messages come from other ranks");
  Peer& from = at(peer);
  from.receives.push_back({id, landing});
  if (landing.combine && from.scratch.empty()) from.scratch.resize(kScratchBytes);
  return ++from.posted_receives;
}

Status TcpTransport::waitSent(int peer, std::uint64_t count, const Wait& wait) {
  const Peer& to = at(peer);
  TY_CHECK(count <= to.posted_sends, "waits for what was posted");
  return waitUntil(peer, wait, [&] { return to.left >= count; });
}

Status TcpTransport::waitReceived(int peer, std::uint64_t count, const Wait& wait) {
  const Peer& from = at(peer);
  TY_CHECK(count <= from.posted_receives, "waits for what was posted");
  return waitUntil(peer, wait, [&] { return from.landed >= count; });
}

// Sends and receives whatever it can until the wait is over. While nothing moves it spins, then
// sleeps in poll(). A long wait is announced; at the deadline the announcements of the others tell
// whose silence the cause is.
template <typename Done>
Status TcpTransport::waitUntil(int peer, const Wait& wait, const Done& done) {
  if (!failure_.ok()) return failure_;
  current_ = wait;
  const TimePoint start = systemClock().now();
  TimePoint idle_since = start;
  Duration stall_after = std::min(options_.stall_after, (wait.deadline - start) / 3);
  bool announced = false;
  const Duration spin = options_.spin.now();
  for (int spins = 0;; ++spins) {
    bool moved = false;
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      moved = pushOut(r) || moved;
      moved = takeIn(r) || moved;
    }
    if (!failure_.ok()) return failure_;
    if (done()) break;
    if (moved) {
      spins = 0;
      idle_since = TimePoint{};
      continue;
    }
    const TimePoint now = systemClock().now();
    if (idle_since == TimePoint{}) idle_since = now;
    if (isCancelled()) return failure_;
    if (now >= wait.deadline) {
      readControlOfAll();
      if (failure_.ok()) fail(silentRank(blame(rank_, peer, waiting_), wait, now - start));
      return failure_;
    }
    if (now - idle_since >= stall_after) {
      sayWaiting(peer);
      announced = true;
      reportStall(peer, wait, now - start);
      stall_after *= 2;
    }
    if (now - idle_since < spin) {
      ::sched_yield();  // to the one that is waited for, where it is on this core
      if (spins % kSpinsPerCheck == kSpinsPerCheck - 1) readControlOfAll();
    } else {
      const TimePoint until = std::min(wait.deadline, idle_since + stall_after);
      pollOnce(options_.cancelled ? std::min(until, now + kCancelCheck) : until);
    }
  }
  if (announced) sayWaiting(std::nullopt);
  counters_.waited += systemClock().now() - start;
  return absl::OkStatus();
}

bool TcpTransport::pushOut(int peer) {
  Peer& to = at(peer);
  bool moved = false;
  while (!to.sends.empty()) {
    Outgoing& message = to.sends.front();
    iovec parts[2];
    std::size_t count = 0;
    if (message.sent < kFrameBytes) {
      parts[count++] = {message.header.data() + message.sent, kFrameBytes - message.sent};
    }
    const std::size_t begin = message.sent < kFrameBytes ? 0 : message.sent - kFrameBytes;
    const std::size_t bytes = std::min(message.payload.size() - begin, kMaxSendBytes);
    if (bytes > 0) {
      parts[count++] = {const_cast<std::byte*>(message.payload.data()) + begin, bytes};
    }
    const StatusOr<std::size_t> n = to.connections.out->write({parts, count});
    if (!n.ok()) {
      awaitLastWord(peer);
      fail(lostRank(peer, current_, fromAbsl(n.status().message())));
      return moved;
    }
    if (*n == 0) return moved;
    moved = true;
    message.sent += *n;
    if (message.sent < kFrameBytes + message.payload.size()) return moved;
    ++counters_.messages_sent;
    counters_.bytes_sent += message.payload.size();
    ++to.left;
    to.sends.pop_front();
  }
  return moved;
}

// One call for the message that is next: the rest of its header, and payload to where
// it belongs. What is to be put together goes through the scratch memory.
bool TcpTransport::takeIn(int peer) {
  Peer& from = at(peer);
  if (from.receives.empty()) return false;
  const Landing& landing = from.receives.front().landing;
  iovec parts[2];
  std::size_t count = 0;
  if (from.header_have < kFrameBytes) {
    parts[count++] = {from.header.data() + from.header_have, kFrameBytes - from.header_have};
  }
  const std::size_t missing = landing.bytes - from.payload_have - from.carry;
  if (missing > 0) {
    parts[count++] =
        landing.combine
            ? iovec{from.scratch.data() + from.carry, std::min(missing, kScratchBytes - from.carry)}
            : iovec{landing.into + from.payload_have, std::min(missing, kMaxStoreBytes)};
  }
  const StatusOr<std::size_t> n = from.connections.in->read({parts, count});
  if (n.ok()) {
    if (*n > 0) took(peer, *n);
    return *n > 0;
  }
  awaitLastWord(peer);
  const std::string_view why = !stream::wasClosed(n.status()) ? fromAbsl(n.status().message())
                               : from.left_group              ? "it left the group"
                                                              : "it closed the connection";
  if (failure_.ok()) fail(lostRank(peer, current_, why));
  return false;
}

void TcpTransport::took(int peer, std::size_t bytes) {
  Peer& from = at(peer);
  if (from.header_have < kFrameBytes) {
    const std::size_t of_header = std::min(bytes, kFrameBytes - from.header_have);
    from.header_have += of_header;
    bytes -= of_header;
    if (from.header_have == kFrameBytes && !headerIsRight(peer)) return;
  }
  const Incoming& message = from.receives.front();
  if (bytes > 0) {
    if (message.landing.combine) {
      tookPayload(from, bytes, from.carry);
    } else {
      const std::byte* begin = message.landing.into + from.payload_have;
      if (from.announced_checksum != 0) from.checksum = crc32c({begin, bytes}, from.checksum);
      from.payload_have += bytes;
    }
  }
  if (from.header_have == kFrameBytes && from.payload_have == message.landing.bytes) {
    finishReceive(peer);
  }
}

void TcpTransport::tookPayload(Peer& from, std::size_t bytes, std::size_t carry) {
  const Landing& landing = from.receives.front().landing;
  if (from.announced_checksum != 0) {
    from.checksum = crc32c({from.scratch.data() + carry, bytes}, from.checksum);
  }
  const std::size_t have = carry + bytes;
  const std::size_t element = sizeOf(landing.combine->type);
  const std::size_t whole = have / element;
  reduceInto(landing.combine->type, landing.combine->op, landing.into + from.payload_have,
             from.scratch.data(), static_cast<std::int64_t>(whole));
  from.payload_have += whole * element;
  from.carry = have - whole * element;
  std::memmove(from.scratch.data(), from.scratch.data() + whole * element, from.carry);
}

bool TcpTransport::headerIsRight(int peer) {
  Peer& from = at(peer);
  const Incoming& expected = from.receives.front();
  const auto frame = decodeFrame(from.header);
  Status wrong;
  if (!frame.ok()) {
    wrong = withBlamedRank(
        annotate(frame.status(), fmt::format("{}: rank {} sent", placeOf(current_), peer)), peer);
  } else if (frame->kind != FrameKind::kData || frame->epoch != epoch_) {
    wrong = withBlamedRank(
        absl::FailedPreconditionError(fmt::format("{}: rank {} sent a message of epoch {}; this is "
                                                  "epoch {}",
                                                  placeOf(current_), peer, frame->epoch, epoch_)),
        peer);
  } else if (frame->id != expected.id || frame->bytes != expected.landing.bytes) {
    wrong = unexpectedMessage(peer, current_, expected.id, expected.landing.bytes, frame->id,
                              frame->bytes);
  } else {
    from.announced_checksum = frame->checksum;
    return true;
  }
  fail(wrong);
  return false;
}

void TcpTransport::finishReceive(int peer) {
  Peer& from = at(peer);
  if (from.announced_checksum != 0 && from.checksum != from.announced_checksum) {
    return fail(withBlamedRank(
        absl::DataLossError(fmt::format(
            "{}: a message of rank {} was damaged on its way (checksum)", placeOf(current_), peer)),
        peer));
  }
  ++counters_.messages_received;
  counters_.bytes_received += from.receives.front().landing.bytes;
  ++from.landed;
  from.receives.pop_front();
  from.header_have = 0;
  from.payload_have = 0;
  from.announced_checksum = 0;
  from.checksum = 0;
}

// A peer whose data connection has ended may have said why on the other one: that is read first,
// also when it arrives a little later.
void TcpTransport::awaitLastWord(int peer) {
  const TimePoint deadline = systemClock().now() + kLinger;
  readControlOfAll();
  while (failure_.ok() && at(peer).control_open && !at(peer).left_group &&
         waitReadable(at(peer).connections.out->fd(), deadline)) {
    readControl(peer);
  }
}

void TcpTransport::readControlOfAll() {
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) readControl(r);
  }
}

void TcpTransport::readControl(int peer) {
  Peer& from = at(peer);
  while (from.control_open && failure_.ok()) {
    char bytes[2048];
    const iovec part{bytes, sizeof(bytes)};
    const StatusOr<std::size_t> n = from.connections.out->read({&part, 1});
    if (!n.ok()) {
      from.control_open = false;
      const std::string_view why =
          stream::wasClosed(n.status()) ? "its process ended" : fromAbsl(n.status().message());
      if (!from.left_group) fail(lostRank(peer, current_, why));
      return;
    }
    if (*n == 0) return;
    from.control.append(bytes, *n);
    while (from.control.size() >= kFrameBytes) {
      FrameBytes header;
      std::memcpy(header.data(), from.control.data(), kFrameBytes);
      const auto frame = decodeFrame(header);
      if (!frame.ok() || frame->kind == FrameKind::kData || frame->bytes > kMaxControlText) {
        const Status wrong =
            frame.ok() ? absl::DataLossError("data where control belongs") : frame.status();
        return fail(withBlamedRank(annotate(wrong, fmt::format("rank {} sent", peer)), peer));
      }
      if (from.control.size() < kFrameBytes + frame->bytes) break;
      const std::string text = from.control.substr(kFrameBytes, frame->bytes);
      from.control.erase(0, kFrameBytes + frame->bytes);
      onControl(peer, *frame, text);
      if (!failure_.ok()) return;
    }
  }
}

void TcpTransport::onControl(int peer, const Frame& frame, std::string_view text) {
  const std::uint64_t value = frame.id.operation.elements;
  const bool is_rank = value < peers_.size();
  if (frame.kind == FrameKind::kGoodbye) at(peer).left_group = true;
  if (frame.kind == FrameKind::kWaiting) {
    waiting_[static_cast<std::size_t>(peer)] =
        is_rank ? std::optional(static_cast<int>(value)) : std::nullopt;
  }
  if (frame.kind == FrameKind::kAbort) {
    // Passed on: a rank that looks at this one first must not take its leaving for the cause.
    const auto cause = static_cast<absl::StatusCode>(frame.id.part);
    fail(abortedBy(peer, is_rank ? static_cast<int>(value) : peer, cause, text));
  }
}

void TcpTransport::sendControl(int peer, FrameKind kind, std::uint64_t value, std::uint32_t detail,
                               std::string_view text) {
  Frame frame;
  frame.kind = kind;
  frame.epoch = epoch_;
  frame.id.operation.elements = value;
  frame.id.part = detail;
  frame.bytes = std::min(text.size(), kMaxControlText);
  const FrameBytes header = encodeFrame(frame);
  std::string& bytes = at(peer).unsaid;
  bytes.append(reinterpret_cast<const char*>(header.data()), header.size());
  bytes += text.substr(0, kMaxControlText);
  // A few hundred bytes on a connection that carries nothing else in this direction fit, unless the
  // peer has long read nothing: then the next word goes after this one. To a peer that is gone
  // nothing needs to be said.
  const iovec part{bytes.data(), bytes.size()};
  const StatusOr<std::size_t> n = at(peer).connections.in->write({&part, 1});
  bytes.erase(0, n.ok() ? *n : bytes.size());
}

void TcpTransport::sayWaiting(std::optional<int> on) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    sendControl(r, FrameKind::kWaiting, on ? static_cast<std::uint64_t>(*on) : kNobody, 0, "");
  }
}

void TcpTransport::pollOnce(TimePoint until) {
  std::vector<pollfd> fds;
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = at(r);
    if (r == rank_) continue;
    const auto wants =
        static_cast<short>((peer.control_open ? POLLIN : 0) | (peer.sends.empty() ? 0 : POLLOUT));
    if (wants != 0) {
      fds.push_back({.fd = peer.connections.out->fd(), .events = wants, .revents = 0});
      ranks.push_back(r);
    }
    if (!peer.receives.empty()) {
      fds.push_back({.fd = peer.connections.in->fd(), .events = POLLIN, .revents = 0});
      ranks.push_back(-1);
    }
  }
  if (pollUntil(fds, until) == 0) return;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (ranks[i] >= 0 && (fds[i].revents & ~POLLOUT) != 0) readControl(ranks[i]);
  }
}

Status TcpTransport::check() {
  current_ = Wait{};
  if (failure_.ok()) readControlOfAll();
  isCancelled();
  return failure_;
}

Status TcpTransport::watch(OutsideWait& outside) {
  current_ = outside.wait;
  if (failure_.ok()) readControlOfAll();
  if (!failure_.ok() || isCancelled()) return failure_;
  const TimePoint now = systemClock().now();
  if (now >= outside.wait.deadline) {
    fail(silentRank(blame(rank_, outside.peer, waiting_), outside.wait, now - outside.start));
    return failure_;
  }
  if (!outside.stall_after) {
    outside.stall_after =
        std::min(options_.stall_after, (outside.wait.deadline - outside.start) / 3);
  }
  if (now - outside.start >= *outside.stall_after) {
    sayWaiting(outside.peer);
    outside.announced = true;
    reportStall(outside.peer, outside.wait, now - outside.start);
    *outside.stall_after *= 2;
  }
  return failure_;
}

void TcpTransport::endWatch(const OutsideWait& outside) {
  if (outside.announced) sayWaiting(std::nullopt);
}

bool TcpTransport::isCancelled() {
  if (!failure_.ok() || !options_.cancelled || !options_.cancelled()) return false;
  failure_ = absl::CancelledError(fmt::format("{}: given up", placeOf(current_)));
  return true;
}

void TcpTransport::abort(const Status& status) {
  TY_CHECK(!status.ok(), "a failure");
  if (absl::IsCancelled(failure_)) failure_ = absl::OkStatus();
  if (failure_.ok()) fail(status);
}

void TcpTransport::fail(Status status) {
  if (!failure_.ok()) return;
  const int to_blame = blamedRank(status).value_or(rank_);
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    sendControl(r, FrameKind::kAbort, static_cast<std::uint64_t>(to_blame),
                static_cast<std::uint32_t>(causeOf(status)), fromAbsl(status.message()));
  }
  failure_ = std::move(status);
}

void TcpTransport::reportStall(int peer, const Wait& wait, Duration waited) {
  readControlOfAll();
  const Stall stall{rank_, placeOf(wait), peer, waited, waiting_};
  if (options_.on_stall) {
    options_.on_stall(stall);
  } else {
    TY_WARN("{}", toString(stall));
  }
}

}  // namespace trainyard::runtime::transport
