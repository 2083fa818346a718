// The record by which one of several operators is the leader: a Lease of coordination.k8s.io.
#pragma once

#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"

namespace trainyard::control {

struct LeaseRecord {
  std::string holder;  // "": released
  int duration_seconds = 0;
  UnixMillis acquired = 0;
  UnixMillis renewed = 0;
  int transitions = 0;
  std::string resource_version;  // as read; writes are conditional on it
};

// Whether nobody has renewed, taken or released it in between. Times are only told apart: another
// machine's clock says nothing. The version does not count, since labels may be written, too.
bool isSameRenewal(const LeaseRecord& a, const LeaseRecord& b);

// Blocking. Both writes return the record as it is afterwards.
class LeaseStore {
 public:
  virtual ~LeaseStore() = default;
  // NOT_FOUND when there is none.
  virtual StatusOr<LeaseRecord> read(Duration deadline) = 0;
  // ALREADY_EXISTS when somebody was quicker.
  virtual StatusOr<LeaseRecord> create(const LeaseRecord& record, Duration deadline) = 0;
  // FAILED_PRECONDITION when it was written since it was read.
  virtual StatusOr<LeaseRecord> update(const LeaseRecord& record, Duration deadline) = 0;
};

}  // namespace trainyard::control
