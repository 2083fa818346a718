// Who leads: a state machine without clock, thread and socket.
//
//   CANDIDATE  reads the record every retry period; takes it when there is none, when it was
//              released, or when nobody has written it for its duration, by our own clock
//     -> LEADER    the conditional write succeeded
//   LEADER     writes every retry period
//     -> LOST      no write succeeded within the renew deadline, counted from the start of the last
//                  one that did; or somebody else holds the record
//   LOST       final. The others may go ahead after the lease's duration, which is longer than the
//              renew deadline: there are never two.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/lease/lease.h"

namespace trainyard::control {

struct LeaderOptions {
  std::string identity;  // unlike that of any other process, also of this one's former life
  Duration lease_duration = std::chrono::seconds(15);
  Duration renew_deadline = std::chrono::seconds(10);
  Duration retry_period = std::chrono::seconds(2);
};
// INVALID_ARGUMENT unless duration > deadline > period > 0 and the identity is not empty.
Status validate(const LeaderOptions& options);

// Not thread-safe.
class LeaderMachine {
 public:
  explicit LeaderMachine(LeaderOptions options);

  struct Read {};
  struct Create {
    LeaseRecord record;
  };
  struct Update {
    LeaseRecord record;
  };
  struct Wait {
    TimePoint until;
  };
  struct Lost {
    std::string why;
  };
  using Action = std::variant<Read, Create, Update, Wait, Lost>;

  // `unix_ms` goes into records, and is compared with nothing.
  Action next(TimePoint now, UnixMillis unix_ms);

  // How the last action came out; `began` is when it was begun.
  void onRead(const StatusOr<LeaseRecord>& result, TimePoint now);
  void onWritten(const StatusOr<LeaseRecord>& result, TimePoint began, TimePoint now);

  // Until when we lead, unless we write again; nothing when we do not lead.
  std::optional<TimePoint> leadsUntil() const;
  // What to write so that others need not wait; nothing when we do not lead.
  std::optional<LeaseRecord> release(UnixMillis unix_ms) const;
  // Who holds the record as last seen; "" when unknown or nobody.
  const std::string& observedHolder() const { return observed_.holder; }

 private:
  void observe(const LeaseRecord& record, TimePoint now);
  bool isFree(TimePoint now) const;
  bool loseIfLate(TimePoint now);
  LeaseRecord mine(UnixMillis unix_ms) const;

  const LeaderOptions options_;
  bool known_ = false;   // observed_ is a record that exists
  bool absent_ = false;  // there was no record
  bool read_next_ = true;
  LeaseRecord observed_;
  TimePoint observed_at_;  // when it was first seen as it is
  TimePoint next_attempt_;
  bool leader_ = false;
  TimePoint renewed_;  // when the last write that succeeded was begun
  std::string lost_;
};

}  // namespace trainyard::control
