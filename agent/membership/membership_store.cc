#include "agent/membership/membership_store.h"

#include "base/security/sha256.h"
#include "fmt/format.h"

namespace trainyard::agent {

std::string membershipHash(const v1::Membership& membership) {
  return sha256Hex(std::string_view(membership.SerializeAsString()));
}

std::string missingFor(const v1::Membership& membership, const TaskIdentity& self) {
  bool member = false;
  bool has_home = false;
  // The home of the coordinator: a ps, or with strategy AllReduce worker-0.
  const auto needed = [&](const v1::TaskId& id) {
    if (self.foreign) return true;
    return membership.strategy() == "AllReduce" ? id.index() == 0 : id.role() == v1::ROLE_PS;
  };
  for (const v1::MemberTask& task : membership.tasks()) {
    member = member || (sameTask(task.id(), self.id) && task.created() == self.created);
    if (!needed(task.id())) continue;
    has_home = true;
    if (task.port() == 0) return fmt::format("waits for the port of {}", taskName(task.id()));
  }
  if (!member) {
    return fmt::format("waits for a membership that holds {} created {}", taskName(self.id),
                       self.created);
  }
  if (has_home || self.foreign) return "";
  return membership.strategy() == "AllReduce" ? "waits for a membership that holds worker-0"
                                              : "waits for a membership that holds a ps";
}

StatusOr<bool> MembershipStore::adopt(const v1::Membership& membership) {
  if (membership.revision() <= 0) {
    return absl::InvalidArgumentError(
        fmt::format("membership: revision {} is not positive", membership.revision()));
  }
  if (membership.uid() != job_uid_) {
    return absl::FailedPreconditionError(
        fmt::format("membership revision {}: of job uid '{}', this task belongs to '{}'",
                    membership.revision(), membership.uid(), job_uid_));
  }
  std::string hash = membershipHash(membership);
  std::lock_guard lock(mutex_);
  const std::int64_t held = newest_ == nullptr ? 0 : newest_->revision();
  if (membership.revision() < held) return false;
  if (membership.revision() == held) {
    if (hash == hash_) return false;
    return absl::FailedPreconditionError(
        fmt::format("membership revision {}: content {} differs from the adopted {}", held,
                    hash.substr(0, 12), hash_.substr(0, 12)));
  }
  newest_ = std::make_shared<const v1::Membership>(membership);
  hash_ = std::move(hash);
  return true;
}

std::shared_ptr<const v1::Membership> MembershipStore::newest() const {
  std::lock_guard lock(mutex_);
  return newest_;
}

std::int64_t MembershipStore::revision() const {
  std::lock_guard lock(mutex_);
  return newest_ == nullptr ? 0 : newest_->revision();
}

}  // namespace trainyard::agent
