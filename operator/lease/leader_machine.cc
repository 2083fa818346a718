#include "operator/lease/leader_machine.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"

namespace trainyard::control {

bool isSameRenewal(const LeaseRecord& a, const LeaseRecord& b) {
  return a.holder == b.holder && a.duration_seconds == b.duration_seconds &&
         a.acquired == b.acquired && a.renewed == b.renewed && a.transitions == b.transitions;
}

Status validate(const LeaderOptions& options) {
  if (options.identity.empty()) return absl::InvalidArgumentError("lease: the identity is empty");
  if (options.lease_duration > options.renew_deadline &&
      options.renew_deadline > options.retry_period && options.retry_period > Duration::zero() &&
      options.lease_duration >= std::chrono::seconds(1)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(fmt::format(
      "lease: expected duration > renew deadline > retry period > 0 and a second or more, got "
      "{:.1f}, {:.1f}, {:.1f} s",
      toSeconds(options.lease_duration), toSeconds(options.renew_deadline),
      toSeconds(options.retry_period)));
}

LeaderMachine::LeaderMachine(LeaderOptions options) : options_(std::move(options)) {}

std::optional<TimePoint> LeaderMachine::leadsUntil() const {
  if (!leader_ || !lost_.empty()) return std::nullopt;
  return renewed_ + options_.renew_deadline;
}

bool LeaderMachine::loseIfLate(TimePoint now) {
  const auto until = leadsUntil();
  if (!until || now < *until) return false;
  lost_ =
      fmt::format("the lease was not renewed within {:.1f} s", toSeconds(options_.renew_deadline));
  return true;
}

LeaderMachine::Action LeaderMachine::next(TimePoint now, UnixMillis unix_ms) {
  loseIfLate(now);
  if (!lost_.empty()) return Lost{lost_};
  if (now < next_attempt_) {
    return Wait{leader_ ? std::min(next_attempt_, *leadsUntil()) : next_attempt_};
  }
  if (read_next_) return Read{};
  if (absent_) return Create{mine(unix_ms)};
  return Update{mine(unix_ms)};
}

void LeaderMachine::observe(const LeaseRecord& record, TimePoint now) {
  if (!known_ || !isSameRenewal(record, observed_)) observed_at_ = now;
  observed_ = record;
  known_ = true;
  absent_ = false;
}

bool LeaderMachine::isFree(TimePoint now) const {
  if (observed_.holder.empty() || observed_.holder == options_.identity) return true;
  const Duration promised = observed_.duration_seconds > 0
                                ? Duration(std::chrono::seconds(observed_.duration_seconds))
                                : options_.lease_duration;
  return now >= observed_at_ + promised;
}

void LeaderMachine::onRead(const StatusOr<LeaseRecord>& result, TimePoint now) {
  if (result.status().code() == absl::StatusCode::kNotFound) {
    known_ = false;
    absent_ = true;
    observed_ = {};
    read_next_ = false;
    return;
  }
  if (!result.ok()) {
    next_attempt_ = now + options_.retry_period;
    return;
  }
  observe(*result, now);
  if (leader_ && observed_.holder != options_.identity) {
    lost_ = observed_.holder.empty() ? "somebody released the lease"
                                     : fmt::format("{} has the lease", observed_.holder);
    return;
  }
  if (isFree(now)) {
    read_next_ = false;
  } else {
    next_attempt_ = now + options_.retry_period;
  }
}

void LeaderMachine::onWritten(const StatusOr<LeaseRecord>& result, TimePoint began, TimePoint now) {
  // Whoever saw us as no leader must not see us as one again.
  if (loseIfLate(now)) return;
  if (result.ok()) {
    observe(*result, now);
    leader_ = true;
    renewed_ = began;
    read_next_ = false;
    next_attempt_ = now + options_.retry_period;
    loseIfLate(now);
    return;
  }
  // Perhaps it was carried out, perhaps somebody was quicker: the record tells.
  read_next_ = true;
  const bool refused = result.status().code() == absl::StatusCode::kFailedPrecondition ||
                       result.status().code() == absl::StatusCode::kNotFound;
  next_attempt_ = leader_ && refused ? now : now + options_.retry_period;
}

LeaseRecord LeaderMachine::mine(UnixMillis unix_ms) const {
  LeaseRecord record = observed_;
  if (observed_.holder != options_.identity) {
    record.acquired = unix_ms;
    record.transitions = known_ ? observed_.transitions + 1 : 0;
  }
  record.holder = options_.identity;
  record.duration_seconds =
      static_cast<int>(std::chrono::ceil<std::chrono::seconds>(options_.lease_duration).count());
  record.renewed = unix_ms;
  return record;
}

std::optional<LeaseRecord> LeaderMachine::release(UnixMillis unix_ms) const {
  if (!leadsUntil()) return std::nullopt;
  LeaseRecord record = observed_;
  record.holder.clear();
  record.duration_seconds = 1;  // 0 is not allowed
  record.renewed = unix_ms;
  return record;
}

}  // namespace trainyard::control
