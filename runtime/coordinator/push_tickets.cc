#include "runtime/coordinator/push_tickets.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace trainyard::runtime {

// What becomes of the ticket and the samples that a worker of the former epoch held.
void PushTickets::settle(State& state, const std::optional<Worker>& now) {
  const bool stays = now && now->stays;
  const bool unfinished =
      std::max(state.finished, stays ? now->finished : std::int64_t{0}) < state.given;
  if (stays) {
    // What it brought into that epoch it had in hand; of the newest the answer may not have come.
    if (!state.carried && unfinished && now->pushing != state.newest) {
      returned_.insert(*state.newest);  // it will ask again
      --state.clock;
      if (state.lease) pool_.push_back(*state.lease);
      state.lease = state.own;
    }
    return;
  }
  if (state.carried || unfinished) ++partial_;
  if (state.lease) pool_.push_back(*state.lease);
}

void PushTickets::startEpoch(bool kept, const Start& start, const std::vector<Worker>& workers) {
  start_ = start;
  draining_ = false;
  stopping_ = false;
  stopped_all_ = false;
  std::map<std::uint32_t, State> former = std::exchange(workers_, {});
  if (!kept) {
    former.clear();
    given_ = start.step * rules_.aggregate;
    returned_.clear();
    position_ = start.position;
    pool_.assign(start.unread.begin(), start.unread.end());
  }
  for (auto& [index, state] : former) {
    const auto it = std::find_if(workers.begin(), workers.end(),
                                 [i = index](const Worker& w) { return w.index == i; });
    settle(state, it == workers.end() ? std::nullopt : std::optional(*it));
  }
  // Who comes new starts beside the slowest that stays.
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Worker& worker : workers) {
    if (worker.stays && former.contains(worker.index))
      least = std::min(least, former[worker.index].clock);
  }
  if (least == std::numeric_limits<std::int64_t>::max()) least = 0;
  for (const Worker& worker : workers) {
    State& state = workers_[worker.index];
    state.clock = least;
    if (!worker.stays || !former.contains(worker.index)) continue;
    state.clock = former[worker.index].clock;
    state.carried = worker.pushing;
    state.lease = former[worker.index].lease;
  }
  // A score may have been under way, which an epoch's end cuts short.
  for (auto& [index, state] : workers_) notTooFarBehind(state);
  // Fewer steps than were taken: what is taken stays, to the end of its update.
  const std::int64_t begun = (given_ + rules_.aggregate - 1) / rules_.aggregate;
  limit_ = std::max(start.steps, begun) * rules_.aggregate;
  if (start.end_position > 0) {
    const std::int64_t left = std::max<std::int64_t>(0, start.end_position - position_);
    limit_ = given_ - static_cast<std::int64_t>(returned_.size()) +
             static_cast<std::int64_t>(pool_.size()) + (left + start.samples - 1) / start.samples;
    for (const auto& [index, state] : workers_) limit_ += state.lease.has_value();
    limit_ = std::max(limit_, given_);
  }
}

bool PushTickets::samplesLeft() const {
  return start_.end_position == 0 || position_ < start_.end_position || !pool_.empty();
}

// Who scores, or has had its last samples, is waited for by nobody.
std::int64_t PushTickets::slowest(std::uint32_t apart_from) const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& [index, state] : workers_) {
    if (index == apart_from || state.evaluating) continue;
    if (state.lease || samplesLeft()) least = std::min(least, state.clock);
  }
  return least;
}

std::int64_t PushTickets::fastest() const {
  std::int64_t most = 0;
  for (const auto& [index, state] : workers_) most = std::max(most, state.clock);
  return most;
}

// The others need not wait for what a worker has missed while its clock did not count.
void PushTickets::notTooFarBehind(State& state) const {
  if (!rules_.max_delay) return;
  state.clock = std::max(state.clock, fastest() - *rules_.max_delay);
}

// One more push would be one too many.
bool PushTickets::tooFarAhead(std::uint32_t worker) const {
  const std::int64_t least = slowest(worker);
  return rules_.max_delay && least != std::numeric_limits<std::int64_t>::max() &&
         workers_.at(worker).clock - least >= *rules_.max_delay;
}

// Whether samples are lent to the worker now.
bool PushTickets::mayGoOn(std::uint32_t worker) {
  const bool too_far = tooFarAhead(worker);
  if (too_far) stopped_all_ = rules_.stop_all;
  if (!stopped_all_) return !too_far;
  const std::int64_t clock = workers_.at(worker).clock;
  stopped_all_ = std::min(slowest(worker), clock) < fastest();
  return !stopped_all_ || clock < fastest();
}

std::optional<SampleRange> PushTickets::lend(std::uint32_t worker) {
  State& state = workers_[worker];
  if (over() || !mayGoOn(worker)) return std::nullopt;
  SampleRange range;
  if (!pool_.empty()) {
    range = pool_.front();
    pool_.pop_front();
  } else {
    range = {position_, start_.samples};
    if (start_.end_position > 0)
      range.samples = std::min<std::int64_t>(range.samples, start_.end_position - position_);
    if (range.samples <= 0) return std::nullopt;
    position_ += range.samples;
  }
  state.lease = range;
  return range;
}

// While draining, only what completes an update.
bool PushTickets::mayPush() const {
  if (over() || stopping_) return false;
  return !draining_ || given_ % rules_.aggregate != 0 || !returned_.empty();
}

std::optional<PushTickets::Answer> PushTickets::ask(const Ask& ask) {
  const auto it = workers_.find(ask.worker);
  if (it == workers_.end()) return std::nullopt;
  State& state = it->second;
  // It asks for the next, so what it brought into the epoch is finished.
  onReport(ask.worker, ask.finished, std::nullopt, false);
  Answer answer;
  if (over()) {
    answer.over = true;
    return answer;
  }
  if (ask.ticket) {
    // Samples were lent to it, but since then the slowest may have lost a ticket with an epoch, or
    // a slower one be back from a score.
    if (!mayPush() || tooFarAhead(ask.worker)) return std::nullopt;
    if (returned_.empty()) {
      answer.ticket = given_++;
    } else {
      answer.ticket = returned_.extract(returned_.begin()).value();
    }
    state.newest = answer.ticket;
    ++state.given;
    ++state.clock;
    state.own = std::exchange(state.lease, std::nullopt);
    const std::int64_t least = slowest(ask.worker);
    if (least != std::numeric_limits<std::int64_t>::max())
      spread_ = std::max(spread_, state.clock - least);
    if (ask.lease) answer.lease = lend(ask.worker);
    return answer;
  }
  answer.lease = state.lease ? state.lease : lend(ask.worker);
  if (!answer.lease) return std::nullopt;
  return answer;
}

void PushTickets::onReport(std::uint32_t worker, std::int64_t finished,
                           std::optional<std::int64_t> pushing, bool evaluating) {
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  State& state = it->second;
  state.finished = std::max(state.finished, finished);
  if (state.carried && state.carried != pushing) state.carried.reset();
  // Back from a score: the others do not wait for what it has missed meanwhile.
  if (state.evaluating && !evaluating) notTooFarBehind(state);
  state.evaluating = evaluating;
}

bool PushTickets::drained() const {
  if (mayPush()) return false;
  return std::none_of(workers_.begin(), workers_.end(),
                      [](const auto& worker) { return worker.second.busy(); });
}

std::int64_t PushTickets::version() const {
  std::int64_t open = static_cast<std::int64_t>(returned_.size());
  for (const auto& [index, state] : workers_) open += state.busy();
  const std::int64_t finished = given_ - open;
  if (open == 0 && given_ >= limit_) return steps();
  return (finished + (stopping_ ? rules_.aggregate - 1 : 0)) / rules_.aggregate;
}

std::vector<SampleRange> PushTickets::unread() const {
  std::vector<SampleRange> ranges(pool_.begin(), pool_.end());
  for (const auto& [index, state] : workers_) {
    if (state.lease) ranges.push_back(*state.lease);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const SampleRange& a, const SampleRange& b) { return a.first < b.first; });
  return ranges;
}

}  // namespace trainyard::runtime
