#include "agent/traffic/wire_meter.h"

#include <algorithm>

#include "agent/traffic/peers.h"
#include "base/core/log.h"
#include "base/core/strings.h"

namespace trainyard::agent {
namespace {

// The news of an end comes a moment after the connection has left the list; one whose news was lost
// is closed here after so many lists.
constexpr int kListsUntilEnded = 100;

void add(WireBytes& sum, const WireBytes& more) {
  sum.received += more.received;
  sum.transmitted += more.transmitted;
}

void add(WireReading& sum, const std::string& peer, const WireBytes& more) {
  add(sum.total, more);
  if (!peer.empty()) add(sum.peers[peer], more);
}

}  // namespace

void ConnectionTotals::onList(const std::vector<CountedConnection>& connections) {
  for (auto& [cookie, connection] : open_) ++connection.missed;
  for (const CountedConnection& seen : connections) {
    Connection& connection =
        open_.try_emplace(seen.cookie, Connection{.bytes = {}, .peer = seen.peer}).first->second;
    connection.bytes.received = std::max(connection.bytes.received, seen.bytes.received);
    connection.bytes.transmitted = std::max(connection.bytes.transmitted, seen.bytes.transmitted);
    connection.missed = 0;
  }
  for (auto it = open_.begin(); it != open_.end();) {
    const bool over = it->second.missed >= kListsUntilEnded;
    if (over) add(ended_, it->second.peer, it->second.bytes);
    it = over ? open_.erase(it) : std::next(it);
  }
}

void ConnectionTotals::onEnded(const std::vector<CountedConnection>& connections) {
  for (const CountedConnection& last : connections) {
    const auto known = open_.find(last.cookie);
    add(ended_, known != open_.end() ? known->second.peer : last.peer, last.bytes);
    if (known != open_.end()) open_.erase(known);
  }
}

bool ConnectionTotals::awaitsEnds() const {
  return std::any_of(open_.begin(), open_.end(), [](const auto& one) { return one.second.missed; });
}

WireReading ConnectionTotals::total() const {
  WireReading sum = ended_;
  for (const auto& [cookie, connection] : open_) add(sum, connection.peer, connection.bytes);
  return sum;
}

WireMeter::WireMeter(int port) : WireMeter(port, std::nullopt, TcpDiag::open()) {}

WireMeter::WireMeter(int port, WireScope scope)
    : WireMeter(port, std::optional(std::move(scope)), TcpDiag::open()) {}

WireMeter::WireMeter(int port, std::optional<WireScope> scope, StatusOr<TcpDiag> diag)
    : port_(port), scope_(std::move(scope)) {
  if (scope_) owners_.emplace(scope_->self.job.name);
  if (diag.ok()) {
    diag_ = *std::move(diag);
  } else {
    TY_WARN("agent: bytes of connections are not counted: {}", fromAbsl(diag.status().message()));
  }
}

void WireMeter::fallBackTo(InterfaceMeter meter) {
  if (diag_ || !meter.read()) return;
  TY_WARN("agent: bytes on the wire are those of the network interface, all headers included");
  interface_ = std::move(meter);
}

std::vector<CountedConnection> WireMeter::counted(const std::vector<TcpConnection>& connections,
                                                  const std::vector<TcpConnection>& all,
                                                  const Peers* peers) const {
  std::vector<CountedConnection> found;
  for (const TcpConnection& one : connections) {
    std::optional<std::string> peer;
    if (peers != nullptr) {
      peer =
          peers->peerOf(one, all, [this](std::uint32_t inode) { return owners_->ownerOf(inode); });
    } else if (one.local.port == port_) {
      peer.emplace();
    }
    if (peer || totals_.knows(one.cookie)) {
      found.push_back({one.cookie, {one.received, one.transmitted}, peer.value_or("")});
    }
  }
  return found;
}

std::optional<WireReading> WireMeter::read() {
  std::lock_guard lock(mutex_);
  if (!diag_.has_value()) {
    const auto bytes = interface_ ? interface_->read() : std::nullopt;
    return bytes ? std::optional<WireReading>({*bytes, {}}) : std::nullopt;
  }
  return readKernel();
}

void WireMeter::settle(TimePoint deadline) {
  std::lock_guard lock(mutex_);
  if (!diag_) return;
  diag_->waitForEndsOfBefore(deadline);
  (void)readKernel();
  // Those that were lost will never be told.
  while (totals_.awaitsEnds() && !diag_->lostSome() && diag_->waitForEnded(deadline)) {
    (void)readKernel();
  }
}

WireReading WireMeter::readKernel() {
  const int listed = scope_ ? 0 : port_;
  std::optional<Peers> peers;
  if (const auto membership = scope_ ? scope_->membership() : nullptr; membership != nullptr) {
    peers.emplace(*membership, scope_->self.id, port_);
  }
  const Peers* known = peers ? &*peers : nullptr;
  // First the list: an end that is told in between is then known as ended, not as open again.
  const StatusOr<std::vector<TcpConnection>> now = diag_->list(listed);
  const std::vector<TcpConnection> all = now.ok() ? *now : std::vector<TcpConnection>();
  if (now.ok()) {
    if (known != nullptr) owners_->update(known->undecided(all));
    totals_.onList(counted(all, all, known));
  }
  totals_.onEnded(counted(diag_->takeEnded(listed), all, known));
  return totals_.total();
}

}  // namespace trainyard::agent
