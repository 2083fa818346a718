// From one epoch to the next: what each part of the coordinator has to do with it, in order.
#include <algorithm>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"

namespace trainyard::runtime {
namespace {

// Where the weights come from.
std::string originOf(const v1::EpochInfo& epoch, bool ring) {
  if (!epoch.init_manifest().empty()) return "with the weights of " + epoch.init_manifest();
  if (epoch.fresh()) return "from the seed";
  if (!epoch.restore_manifest().empty()) return "from checkpoint " + epoch.restore_manifest();
  return fmt::format("from what {} hold", ring ? "the workers" : "the servers");
}

}  // namespace

void Coordinator::endEpoch(const std::string& why, TimePoint now, bool planned) {
  const std::int64_t ended = epochs_.number();
  epochs_.end(why, planned, now, out_);
  tickets_.endEpoch(ended, out_);
  progress_.endEpoch(steps_.begun(), now);
  checkpoints_.endEpoch();
  norm_.endEpoch();
  stop_.endEpoch();
  rest_.end();
  membership_.endEpoch();
  dismissUnwanted();
}

void Coordinator::trySealed(TimePoint now) {
  if (epochs_.renumber(membership_, out_)) return;
  if (checkpoints_.committing()) return;  // the checkpoint to return to is being decided
  if (!knowsHolders(now) || !epochs_.sealed(membership_, now)) return;
  startEpoch(now);
}

// Before the first epoch of this process: who held what in the one before. False: a server that
// did, and is to leave, is still waited for.
bool Coordinator::knowsHolders(TimePoint now) {
  if (steps_.begun() || !epochs_.chunks().elastic()) return true;
  const v1::EpochInfo epoch = membership_.newestBegun();
  if (epoch.epoch() == 0 || !epochs_.adoptHolders(epoch)) return true;
  membership_.placeLeavers(epoch);
  const bool patient = now - epochs_.phaseSince() <= config_.leaver_patience;
  return !patient || epochs_.chunks().allKnown(membership_);
}

// Before the first epoch of this process: the job goes on where that one has ended.
void Coordinator::adoptBegun() {
  if (!epochs_.chunks().elastic() && !config_.ring) return;
  const v1::EpochInfo epoch = membership_.newestBegun();
  const bool async = tickets_.pushes() != nullptr;
  if (epoch.epoch() == 0 || epoch.has_ledger() != async) return;
  if (!config_.ring && !epochs_.adoptHolders(epoch)) return;
  epochs_.adoptHistory(epoch);
  steps_.adopt(epoch);
  if (async) tickets_.adopt(epoch, membership_);
  evaluations_.startAnew(epochs_.number());
  membership_.markNewcomers(epoch);
  out_.log(fmt::format("this coordinator is told of epoch {}, which began at step {}",
                       epoch.epoch(), epoch.first_step()));
}

void Coordinator::startEpoch(TimePoint now) {
  const bool first_here = !steps_.begun();
  if (first_here) {
    adoptBegun();
    // When the former coordinator ended is not known.
    progress_.endEpoch(steps_.begun(), epochs_.phaseSince());
    progress_.adopt(membership_.document().lost_steps());
  }
  v1::EpochInfo epoch;
  const Held found = epochs_.enlist(membership_, now, epoch);
  membership_.enlist(epoch);
  const bool kept = epochs_.start(found, membership_, steps_, checkpoints_.newest(), epoch, out_);
  membership_.setSources(epoch);
  // A worker's slice of the evaluation set is by its rank, and who scores a version depends on
  // whether it is the last.
  const int former_ranks = kept ? steps_.ranks() : -1;
  const std::int64_t former_end = steps_.count();
  if (!kept) steps_.rollBack(checkpoints_.newest());
  std::int64_t held = progress_.heldVersion(membership_);
  if (tickets_.pushes() != nullptr) {
    startTickets(kept, epoch);
    if (kept) held = epoch.first_step();
  }
  const std::int64_t first = epoch.first_step();
  // Nobody may be left who has computed what the former coordinator told of.
  if (first_here && !kept) held = std::max(held, membership_.document().reached());
  progress_.startEpoch(first, held, !epoch.restore_manifest().empty());
  steps_.startEpoch(epoch, membership_, epochs_.uneven(), tickets_.pushes());
  if (former_ranks != membership_.workers() || former_end != steps_.count())
    evaluations_.startAnew(epoch.epoch());
  if (!kept) evaluations_.rollBack(first);
  if (epochs_.uneven()) norm_.followKnown(membership_, first);
  out_.log(fmt::format("epoch {} starts at step {} with {} workers, {}{}", epoch.epoch(), first,
                       membership_.workers(), originOf(epoch, config_.ring),
                       held > first ? fmt::format(", {} steps lost", held - first) : ""));
  epochs_.prepare(epoch, now, out_);
}

void Coordinator::startTickets(bool kept, v1::EpochInfo& epoch) {
  const auto& newest = checkpoints_.newest();
  const std::vector<SampleRange> unread = newest ? newest->unread : std::vector<SampleRange>();
  checkpoints_.startEpoch(kept,
                          tickets_.startEpoch(kept, unread, membership_, steps_, epoch, out_));
}

void Coordinator::tryPrepared(TimePoint now) {
  const Epochs::Prepared prepared = epochs_.prepared(membership_);
  if (!prepared.problem.empty()) return fail(prepared.problem, now);
  if (!prepared.all) return;
  checkpoints_.begin(now);
  progress_.begin(epochs_.info().first_step(), now);
  tickets_.begin(steps_.plan());
  membership_.releaseSources();
  epochs_.begin(now, out_);
  dismissUnwanted();
}

// Members or the number of steps are to change, and nothing speaks against it now.
bool Coordinator::changeDue(TimePoint now) const {
  if (stop_.asked() || finishing_ || checkpoints_.busy(now)) return false;
  if (progress_.version() >= steps_.count()) return false;
  if (tickets_.pushes() != nullptr && tickets_.pushes()->over()) return false;
  // Who is to join could not be let in (Epochs::enlist): the step that some servers have taken
  // comes first.
  if (epochs_.uneven() && progress_.version() <= epochs_.info().first_step()) return false;
  const ChunkHolders& chunks = epochs_.chunks();
  return membership_.changeDue(now, chunks.copies()) || chunks.copied(membership_) ||
         steps_.endMoves(membership_, progress_.version());
}

// Ends the epoch between two steps; true when it has.
bool Coordinator::followChange(TimePoint now) {
  if (epochs_.phase() != v1::PHASE_ACTIVE) return false;
  const bool due = changeDue(now);
  if (due != rest_.asked()) {
    out_.changed();
    if (due) {
      rest_.ask(out_.sequence());
    } else {
      rest_.end();
      tickets_.resume();
    }
  }
  if (!rest_.asked()) return false;
  if (tickets_.drain()) out_.changed();
  const std::optional<std::int64_t> resting = rest_.version(membership_, epochs_, steps_, tickets_);
  if (!resting) return false;
  progress_.reach(std::max(progress_.version(), *resting));
  endEpoch(changesAt(*resting), now, /*planned=*/true);
  return true;
}

std::string Coordinator::changesAt(std::int64_t version) const {
  std::vector<std::string> changes = membership_.changes();
  if (steps_.endMoves(membership_, progress_.version())) {
    changes.push_back(fmt::format("the job's end moves from step {} to {}", steps_.count(),
                                  std::max(steps_.wanted(membership_), version)));
  }
  if (epochs_.chunks().copied(membership_)) changes.push_back("the parts of tables are copied");
  return fmt::format("at step {} {}", version, join(changes, ", "));
}

}  // namespace trainyard::runtime
