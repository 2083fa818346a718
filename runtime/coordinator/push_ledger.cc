#include "runtime/coordinator/push_ledger.h"

#include <algorithm>

#include "runtime/coordinator/push_tickets.h"

namespace trainyard::runtime {
namespace {

SampleRange rangeOf(const v1::Lease& lease) {
  return {lease.first(), lease.samples()};
}

void write(const SampleRange& range, v1::Lease& lease) {
  lease.set_first(range.first);
  lease.set_samples(static_cast<std::int32_t>(range.samples));
}

void add(NumberSet& set, const SampleRange& range) {
  set.add(range.first, range.first + range.samples);
}

}  // namespace

PushLedger ledgerOf(const v1::EpochInfo& epoch) {
  const v1::PushLedger& told = epoch.ledger();
  PushLedger ledger;
  ledger.given = told.given();
  ledger.returned.assign(told.returned().begin(), told.returned().end());
  ledger.position = epoch.first_position();
  for (const v1::Lease& lease : told.pool()) ledger.pool.push_back(rangeOf(lease));
  for (const v1::PushingWorker& worker : told.workers()) {
    PushLedger::Worker& known = ledger.workers.emplace_back();
    known.index = worker.worker();
    known.clock = worker.clock();
    if (worker.has_carried()) known.carried = worker.carried();
    if (worker.has_lease()) known.lease = rangeOf(worker.lease());
  }
  ledger.spread = told.spread();
  ledger.partial = told.partial();
  return ledger;
}

void writeLedger(const PushLedger& ledger, v1::EpochInfo& epoch) {
  v1::PushLedger& told = *epoch.mutable_ledger();
  told.Clear();
  told.set_given(ledger.given);
  told.mutable_returned()->Add(ledger.returned.begin(), ledger.returned.end());
  for (const SampleRange& range : ledger.pool) write(range, *told.add_pool());
  for (const PushLedger::Worker& known : ledger.workers) {
    v1::PushingWorker& worker = *told.add_workers();
    worker.set_worker(known.index);
    worker.set_clock(known.clock);
    if (known.carried) worker.set_carried(*known.carried);
    if (known.lease) write(*known.lease, *worker.mutable_lease());
  }
  told.set_spread(ledger.spread);
  told.set_partial(ledger.partial);
}

PushLedger PushTickets::ledger() const {
  PushLedger ledger;
  ledger.given = given_;
  ledger.returned.assign(returned_.begin(), returned_.end());
  ledger.position = position_;
  ledger.pool.assign(pool_.begin(), pool_.end());
  for (const auto& [index, state] : workers_)
    ledger.workers.push_back({index, state.clock, state.carried, state.lease});
  ledger.spread = spread_;
  ledger.partial = partial_;
  return ledger;
}

// Nothing of the epoch's own can be in the hands of a worker that has not seen it begin; and what
// else he has is of a history that has ended.
void PushTickets::restoreWorker(const PushLedger::Worker& known, PushNews::Worker told) {
  if (!told.began) {
    if (told.pushing != known.carried) told.pushing.reset();
    if (told.lease != known.lease) told.lease.reset();
    told.finished = 0;
  }
  State& state = workers_[known.index];
  const bool carries = told.pushing && told.pushing == known.carried;
  if (carries) state.carried = told.pushing;
  state.finished = told.finished;
  state.given = told.finished + (told.pushing && !carries);
  state.clock = known.clock + state.given;
  state.newest = told.pushing;
  if (told.pushing) state.own = told.own;
  state.lease = told.lease;
}

void PushTickets::restore(const PushLedger& ledger, const PushNews& news, std::int64_t samples) {
  workers_.clear();
  NumberSet tickets = news.tickets;
  NumberSet taken = news.samples;
  NumberSet open;  // samples that were not pushed when the epoch began
  for (const PushLedger::Worker& known : ledger.workers) {
    if (known.lease) add(open, *known.lease);
    const auto told =
        std::find_if(news.workers.begin(), news.workers.end(),
                     [&](const PushNews::Worker& w) { return w.index == known.index; });
    if (told == news.workers.end()) continue;
    restoreWorker(known, *told);
    const State& state = workers_.at(known.index);
    if (state.newest) tickets.add(*state.newest);
    if (state.own) add(taken, *state.own);
    if (state.lease) add(taken, *state.lease);
  }
  given_ = std::max(ledger.given, tickets.end());
  NumberSet unused;
  unused.add(ledger.given, given_);
  for (const std::int64_t ticket : ledger.returned) unused.add(ticket);
  unused.remove(tickets);
  returned_.clear();
  for (const auto& [first, end] : unused.ranges()) {
    for (std::int64_t ticket = first; ticket < end; ++ticket) returned_.insert(ticket);
  }
  position_ = std::max(ledger.position, taken.end());
  open.add(ledger.position, position_);
  for (const SampleRange& range : ledger.pool) add(open, range);
  open.remove(taken);
  pool_.clear();
  for (const auto& [first, end] : open.ranges()) {
    for (std::int64_t at = first; at < end; at += samples)
      pool_.push_back({at, std::min(samples, end - at)});
  }
  spread_ = ledger.spread;
  // What those who died have pushed last may be in some chunks only.
  partial_ = ledger.partial + static_cast<std::int64_t>(ledger.workers.size() - workers_.size());
}

}  // namespace trainyard::runtime
