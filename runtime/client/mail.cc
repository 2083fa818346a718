#include "runtime/client/mail.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/process/poll.h"
#include "fmt/format.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::client {
namespace {

using collective::Array;

// Where nobody waits for anything; whoever begins to wakes the thread.
constexpr Duration kIdle = std::chrono::hours(1);

Status lostPeer(int rank, std::string_view how) {
  return transport::withBlamedRank(
      absl::UnavailableError(fmt::format("rank {} is lost: {}", rank, how)), rank);
}

}  // namespace

Mail::Mail(transport::TcpMesh mesh, Duration timeout, std::shared_ptr<Monitor> monitor)
    : rank_(mesh.rank),
      timeout_(timeout),
      monitor_(std::move(monitor)),
      peers_(mesh.pairs.size()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    peers_[r].out = std::move(mesh.pairs[r].out);
    peers_[r].in = std::move(mesh.pairs[r].in);
  }
}

Mail::~Mail() {
  close(absl::CancelledError("the group has ended"));
}

void Mail::begin() {
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
}

void Mail::wake() {
  (void)::eventfd_write(wake_.get(), 1);
}

std::shared_ptr<Work> Mail::send(int to, std::uint64_t tag, const Array& array) {
  auto work = std::make_shared<Work>(monitor_);
  Status refused;
  {
    const std::lock_guard lock(mutex_);
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    refused = closed_;
    if (refused.ok() && !peer.takes()) refused = lostPeer(to, "it was lost before");
    if (refused.ok()) {
      begin();
      peer.sends.push_back({encodeLetter({array.type, tag, array.elements}), array, 0,
                            systemClock().now() + timeout_, work});
    }
  }
  if (!refused.ok()) {
    work->finish(refused);
  } else {
    wake();
  }
  return work;
}

std::shared_ptr<Work> Mail::receive(int from, std::uint64_t tag, const Array& into) {
  auto work = std::make_shared<Work>(monitor_);
  std::optional<Delivered> now;
  {
    const std::lock_guard lock(mutex_);
    now = closed_.ok() ? box_.post({into, from, tag, systemClock().now() + timeout_, work})
                       : std::optional(Delivered{work, closed_});
    const bool gone = from >= 0 ? !peers_[static_cast<std::size_t>(from)].gives() : !anybodyLeft();
    if (!now && gone) {
      const Status why = from >= 0 ? lostPeer(from, "it was lost before")
                                   : absl::UnavailableError("all other ranks have left");
      for (Delivered& each : box_.lose(from, why, true)) {
        if (each.work == work) now = std::move(each);
      }
    }
    if (!now) begin();
  }
  if (now) {
    now->work->finish(now->status);
  } else {
    wake();
  }
  return work;
}

bool Mail::anybodyLeft() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.gives(); });
}

void Mail::close(const Status& why) {
  std::vector<Delivered> done;
  {
    const std::lock_guard lock(mutex_);
    if (closed_.ok()) closed_ = why;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(mutex_);
    done = box_.failAll(why);
    for (Peer& peer : peers_) {
      for (const Outgoing& send : std::exchange(peer.sends, {})) done.push_back({send.work, why});
      if (peer.arrival && peer.arrival->receive) done.push_back({peer.arrival->receive->work, why});
      peer = Peer{};
    }
  }
  finishAll(done);
}

void Mail::loop() {
  for (;;) {
    waitForEvents();
    std::vector<Delivered> done;
    {
      const std::lock_guard lock(mutex_);
      if (!closed_.ok()) return;
      for (std::size_t r = 0; r < peers_.size(); ++r) {
        pushOut(static_cast<int>(r), peers_[r], done);
        takeIn(static_cast<int>(r), peers_[r], done);
      }
      expire(done);
    }
    finishAll(done);
  }
}

void Mail::waitForEvents() {
  std::vector<pollfd> fds = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  TimePoint until;
  {
    const std::lock_guard lock(mutex_);
    until = nextDeadline();
    for (const Peer& peer : peers_) {
      if (peer.gives()) fds.push_back({.fd = peer.in->fd(), .events = POLLIN, .revents = 0});
      if (peer.takes() && !peer.sends.empty()) {
        fds.push_back({.fd = peer.out->fd(), .events = POLLOUT, .revents = 0});
      }
    }
  }
  pollUntil(fds, until);
  eventfd_t count = 0;
  (void)::eventfd_read(wake_.get(), &count);
}

TimePoint Mail::nextDeadline() const {
  TimePoint next = systemClock().now() + kIdle;
  if (const auto receive = box_.nextDeadline()) next = std::min(next, *receive);
  for (const Peer& peer : peers_) {
    if (!peer.sends.empty()) next = std::min(next, peer.sends.front().deadline);
  }
  return next;
}

void Mail::pushOut(int rank, Peer& peer, std::vector<Delivered>& done) {
  while (peer.takes() && !peer.sends.empty()) {
    Outgoing& next = peer.sends.front();
    const std::size_t total = kLetterBytes + next.array.bytes();
    iovec parts[2];
    std::size_t count = 0;
    if (next.sent < kLetterBytes) {
      parts[count++] = {next.header.data() + next.sent, kLetterBytes - next.sent};
    }
    const std::size_t begin = next.sent < kLetterBytes ? 0 : next.sent - kLetterBytes;
    if (begin < next.array.bytes()) {
      parts[count++] = {next.array.data + begin, next.array.bytes() - begin};
    }
    const StatusOr<std::size_t> n = peer.out->write({parts, count});
    if (!n.ok()) return lose(rank, n.status(), done);
    if (*n == 0) return;
    next.sent += *n;
    if (next.sent < total) continue;
    done.push_back({next.work, absl::OkStatus()});
    peer.sends.pop_front();
  }
}

void Mail::takeIn(int rank, Peer& peer, std::vector<Delivered>& done) {
  while (peer.gives()) {
    if (peer.arrival && peer.have == peer.arrival->letter.bytes()) {
      if (auto delivered = box_.arrived(std::move(*peer.arrival))) done.push_back(*delivered);
      peer.arrival.reset();
      peer.header_have = peer.have = 0;
    }
    std::byte* into =
        peer.arrival ? peer.arrival->into + peer.have : peer.header.data() + peer.header_have;
    const std::size_t most =
        peer.arrival ? peer.arrival->letter.bytes() - peer.have : kLetterBytes - peer.header_have;
    const iovec part{into, most};
    const StatusOr<std::size_t> n = peer.in->read({&part, 1});
    if (stream::wasClosed(n.status())) {
      return lose(rank, absl::UnavailableError("it has closed its connection"), done);
    }
    if (!n.ok()) return lose(rank, n.status(), done);
    if (*n == 0) return;
    if (peer.arrival) {
      peer.have += *n;
      continue;
    }
    peer.header_have += *n;
    if (peer.header_have < kLetterBytes) continue;
    const auto letter = decodeLetter(peer.header);
    if (!letter.ok()) return lose(rank, letter.status(), done);
    peer.arrival = box_.arriving(rank, *letter);
  }
}

void Mail::lose(int rank, Status why, std::vector<Delivered>& done) {
  // Damage and silence are told as what they are.
  const bool is_gone = !absl::IsDataLoss(why) && !absl::IsDeadlineExceeded(why);
  const Status lost =
      is_gone ? lostPeer(rank, std::string(why.message()))
              : transport::withBlamedRank(annotate(why, fmt::format("rank {}", rank)), rank);
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  for (const Outgoing& send : std::exchange(peer.sends, {})) done.push_back({send.work, lost});
  if (peer.arrival && peer.arrival->receive) done.push_back({peer.arrival->receive->work, lost});
  peer.arrival.reset();
  peer.lost = true;
  ::shutdown(peer.in->fd(), SHUT_RDWR);
  ::shutdown(peer.out->fd(), SHUT_RDWR);
  for (Delivered& each : box_.lose(rank, lost, !anybodyLeft())) done.push_back(std::move(each));
}

void Mail::expire(std::vector<Delivered>& done) {
  const TimePoint now = systemClock().now();
  for (Delivered& each : box_.expire(now)) done.push_back(std::move(each));
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const auto& sends = peers_[r].sends;
    if (sends.empty() || sends.front().deadline > now) continue;
    // Part of it may have left: what comes after would not be understood.
    lose(static_cast<int>(r), absl::DeadlineExceededError("it does not take what is sent to it"),
         done);
  }
}

}  // namespace trainyard::runtime::client
