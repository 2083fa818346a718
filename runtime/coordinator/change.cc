// What changes while the job computes: members that join and leave, the number of its steps.
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

// Whether the epoch, or the one that is to begin, is nothing without it. A task that was added
// while the job computes is not: it takes part as soon as it is there. A server that is to leave
// is, as long as others need what it holds.
bool Coordinator::awaited(const MemberKey& key, const Member& member, TimePoint now) const {
  if (member.in_epoch || member.source) return true;
  if (key.role == v1::ROLE_PS && !member.wanted) {
    return phase_ == v1::PHASE_SEALING && holdsChunks(key.index) &&
           !member.report.shard().empty() && now - member.last_seen <= config_.leaver_patience;
  }
  if (!member.newcomer) return true;
  return phase_ == v1::PHASE_SEALING && canJoin(key, member, now);
}

// It is here, and the others can be told where.
bool Coordinator::canJoin(const MemberKey& key, const Member& member, TimePoint now) const {
  return present(member, now) && (!config_.ring || placeKnown(key, member));
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
  if (member.ticket) dismissCall(*member.ticket, member.report.revision());
}

// A task of a membership that this process has not read yet has not left: it is asked to come
// again.
void Coordinator::dismissCall(std::uint64_t ticket, std::int64_t revision) {
  v1::View view = viewFor();
  view.set_left(revision <= membership_.revision());
  actions_.push_back(ReplyAction{ticket, view});
}

// A worker that computes stays until the epoch ends, a server until others hold its chunks.
void Coordinator::dismissUnwanted() {
  std::erase_if(members_, [&](const auto& entry) {
    const auto& [key, member] = entry;
    if (member.wanted) return false;
    if (member.in_epoch && (key.role == v1::ROLE_WORKER || elastic()) && !over()) return false;
    if (key.role == v1::ROLE_PS && holdsChunks(key.index) && !over()) return false;
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
    if (member.newcomer && !canJoin(key, member, now)) return false;
  }
  return due;
}

// The membership is newer than the settings that this process was started with.
std::int64_t Coordinator::wantedSteps() const {
  return membership_.steps() > 0 ? membership_.steps() : config_.steps;
}

// The job is to end elsewhere. What is passed already cannot be undone.
bool Coordinator::lengthDue() const {
  return config_.passes == 0 && std::max(wantedSteps(), progress_) != steps_;
}

std::string Coordinator::changesAt(std::int64_t version) const {
  std::vector<std::string> changes;
  // Who is not here yet has held nobody up: then it is the length alone that changes.
  const bool all_here = std::none_of(members_.begin(), members_.end(), [](const auto& m) {
    return m.second.newcomer && !m.second.joined;
  });
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER}) {
    std::int64_t before = 0, after = 0;
    bool due = false;
    for (const auto& [key, member] : members_) {
      if (key.role != role || !all_here) continue;
      before += member.in_epoch;
      after += member.wanted;
      due = due || member.in_epoch != member.wanted;
    }
    if (!due) continue;
    changes.push_back(fmt::format("the {} change from {} to {}",
                                  role == v1::ROLE_PS ? "parameter servers" : "workers", before,
                                  after));
  }
  if (lengthDue()) {
    changes.push_back(fmt::format("the job's end moves from step {} to {}", steps_,
                                  std::max(wantedSteps(), version)));
  }
  return fmt::format("at step {} {}", version, join(changes, ", "));
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
  const bool due =
      !stop_requested_ && !busy && !ends && !within_step && (changeDue(now) || lengthDue());
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
  beginEpoch(changesAt(*resting), now, /*planned=*/true);
  return true;
}

}  // namespace trainyard::runtime
