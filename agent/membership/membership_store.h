// The membership that this task goes by: the highest revision seen, from whichever way it came.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "agent/membership/identity.h"
#include "base/core/status.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::agent {

// SHA-256 over the message's bytes, in hexadecimal. (Memberships hold no maps: equal content has
// equal bytes.)
std::string membershipHash(const v1::Membership& membership);

// What `membership` lacks for `self` to start its program: "" or e.g. "waits for the port of ps-1".
// It needs an entry for this very life of the task and a port of every ps; a program of the user's
// own is told the addresses only once, and needs those of all tasks.
std::string missingFor(const v1::Membership& membership, const TaskIdentity& self);

// Thread-safe.
class MembershipStore {
 public:
  explicit MembershipStore(std::string job_uid) : job_uid_(std::move(job_uid)) {}

  // Takes `membership` over if its revision is higher than the one held; returns whether it did. A
  // lower revision, or the same content again, is fine and changes nothing. FAILED_PRECONDITION:
  // the same revision with other content; a membership of another job. INVALID_ARGUMENT: no
  // positive revision.
  StatusOr<bool> adopt(const v1::Membership& membership);

  // The one held; null before the first.
  std::shared_ptr<const v1::Membership> newest() const;
  std::int64_t revision() const;  // 0 before the first

 private:
  const std::string job_uid_;
  mutable std::mutex mutex_;
  std::shared_ptr<const v1::Membership> newest_;
  std::string hash_;
};

}  // namespace trainyard::agent
