#include "agent/traffic/wire_meter.h"

#include <algorithm>
#include <set>

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

}  // namespace

void ConnectionTotals::onList(const std::vector<TcpBytes>& connections) {
  for (auto& [cookie, connection] : open_) ++connection.missed;
  for (const TcpBytes& seen : connections) {
    Connection& connection = open_[seen.cookie];
    connection.bytes.received = std::max(connection.bytes.received, seen.received);
    connection.bytes.transmitted = std::max(connection.bytes.transmitted, seen.transmitted);
    connection.missed = 0;
  }
  for (auto it = open_.begin(); it != open_.end();) {
    const bool over = it->second.missed >= kListsUntilEnded;
    if (over) add(ended_, it->second.bytes);
    it = over ? open_.erase(it) : std::next(it);
  }
}

void ConnectionTotals::onEnded(const std::vector<TcpBytes>& connections) {
  for (const TcpBytes& last : connections) {
    open_.erase(last.cookie);
    add(ended_, {last.received, last.transmitted});
  }
}

WireBytes ConnectionTotals::total() const {
  WireBytes sum = ended_;
  for (const auto& [cookie, connection] : open_) add(sum, connection.bytes);
  return sum;
}

WireMeter::WireMeter(int port) : port_(port) {
  StatusOr<TcpDiag> diag = TcpDiag::open();
  if (diag.ok()) {
    diag_ = *std::move(diag);
  } else {
    TY_WARN("agent: bytes on the wire are not counted: {}", fromAbsl(diag.status().message()));
  }
}

std::optional<WireBytes> WireMeter::read() {
  std::lock_guard lock(mutex_);
  if (!diag_.has_value()) return std::nullopt;
  // First the list: an end that is told in between is then known as ended, not as open again.
  const StatusOr<std::vector<TcpBytes>> now = diag_->list(port_);
  if (now.ok()) totals_.onList(*now);
  totals_.onEnded(diag_->takeEnded(port_));
  return totals_.total();
}

}  // namespace trainyard::agent
