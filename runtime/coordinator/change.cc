// Workers that join and leave while the job computes.
#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {
namespace {

// A checkpoint that has begun is let end first: the change would void it.
constexpr Duration kCheckpointPatience = std::chrono::seconds(5);

}  // namespace

// Whether the epoch, or the one that is to begin, is nothing without it. A worker that was added
// while the job computes is not: it takes part as soon as it is there.
bool Coordinator::awaited(const Member& member, TimePoint now) const {
  if (!member.newcomer) return true;
  return phase_ == v1::PHASE_SEALING && present(member, now);
}

// A task that was removed is told so when it asks; a stranger is refused.
bool Coordinator::dismissed(const v1::MemberReport& report, const MemberKey& key) const {
  if (report.job_uid() != config_.job_uid || members_.contains(key)) return false;
  const std::int64_t newest = membership_.revision();
  if (report.revision() == 0 || report.revision() > newest) return false;
  return report.revision() < newest || dismissed_.contains(key) || report.highest_epoch() > 0;
}

void Coordinator::dismiss(const MemberKey& key, const Member& member) {
  dismissed_.insert(key);
  if (member.ticket) dismissCall(*member.ticket);
}

void Coordinator::dismissCall(std::uint64_t ticket) {
  v1::View view = viewFor();
  view.set_left(true);
  actions_.push_back(ReplyAction{ticket, view});
}

// Who computes stays until the epoch ends. (Servers cannot: what they hold is missed at once.)
void Coordinator::dismissUnwanted() {
  std::erase_if(members_, [&](const auto& entry) {
    const auto& [key, member] = entry;
    if (member.wanted) return false;
    if (member.in_epoch && key.role == v1::ROLE_WORKER && !over()) return false;
    dismiss(key, member);
    return true;
  });
}

// The version that nobody can pass any more. Sync: all hold it, and one of them, which the next
// step needs, has said so since `since` (a View.sequence). Backup workers: all hold it, and no
// place is given in the step that follows. Asynchronous: all pushes that were let begin are
// finished.
std::optional<std::int64_t> Coordinator::restingVersion(std::uint64_t since) const {
  if (tickets_) return tickets_->drained() ? std::optional(tickets_->version()) : std::nullopt;
  std::int64_t rest = plan_.backup_workers > 0 ? places_.step() : -1;
  std::int64_t version = -1;
  for (const auto& [key, member] : members_) {
    if (key.role != v1::ROLE_WORKER || !member.in_epoch) continue;
    const v1::WorkerState& worker = member.report.worker();
    if (worker.epoch() != epoch_.epoch()) return std::nullopt;
    if (version >= 0 && worker.version() != version) return std::nullopt;
    version = worker.version();
    if (plan_.backup_workers == 0 && worker.idle() && member.report.seen_view() >= since)
      rest = version;
  }
  if (rest < 0 || rest != version) return std::nullopt;
  return version;
}

// Somebody is to leave or to join, and all who are to join are here.
bool Coordinator::changeDue(TimePoint now) const {
  bool due = false;
  for (const auto& [key, member] : members_) {
    due = due || member.in_epoch != member.wanted;
    if (member.newcomer && !present(member, now)) return false;
  }
  return due;
}

// Ends the epoch between two steps; true when it has.
bool Coordinator::followChange(TimePoint now) {
  if (phase_ != v1::PHASE_ACTIVE) return false;
  const bool busy =
      committing_ >= 0 || (checkpoint_ && now - checkpoint_->since < kCheckpointPatience);
  const bool ends = finishing_ || progress_ >= steps_ || (tickets_ && tickets_->over());
  // Who is to join could not be let in (enlist()): the step that some servers have taken comes
  // first.
  const bool within_step = uneven_ && progress_ <= epoch_.first_step();
  const bool due = !stop_requested_ && !busy && !ends && !within_step && changeDue(now);
  if (due != (hold_ > 0)) {
    changed();
    hold_ = due ? sequence_ : 0;
    if (!due && tickets_) tickets_->resume();
    if (!due) places_.resume();
  }
  if (hold_ == 0) return false;
  if (tickets_ && !tickets_->draining()) {
    tickets_->drain();
    changed();
  }
  places_.freeze();
  const std::optional<std::int64_t> resting = restingVersion(hold_);
  if (!resting) return false;
  progress_ = std::max(progress_, *resting);
  int wanted = 0;
  for (const auto& [key, member] : members_) {
    wanted += key.role == v1::ROLE_WORKER && member.wanted;
  }
  beginEpoch(
      fmt::format("at step {} the workers change from {} to {}", *resting, workers(), wanted), now,
      /*planned=*/true);
  return true;
}

}  // namespace trainyard::runtime
