// Modes Async and BoundedDelay: numbers the pushes of all workers, lends samples, keeps workers
// from getting too far apart, and lets pushes run out so that a checkpoint finds all servers at the
// same update. Values in, answers out; no time.
//
// A worker's clock is the number of pushes it was given a ticket for. Bounded delay (stale
// synchronous parallel, Ho et al., NIPS 2013): samples are lent to a worker only while its clock is
// less than `max_delay` ahead of the slowest, so no two clocks ever differ by more than that. With
// `stop_all` the first worker that would get too far ahead stops everyone until the slowest has
// caught up with the fastest.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/push_ledger.h"

namespace trainyard::runtime {

struct TicketRules {
  int aggregate = 1;                            // pushes that make one update
  std::optional<int> max_delay = std::nullopt;  // >= 1
  bool stop_all = false;
};

// Not thread-safe.
class PushTickets {
 public:
  explicit PushTickets(TicketRules rules) : rules_(rules) {}

  // What an epoch starts from: nothing pushed before it is taken back, or all of it.
  struct Start {
    std::int64_t step = 0;            // version that the servers hold, when not kept
    std::int64_t position = 0;        // of the sample stream, when not kept
    std::vector<SampleRange> unread;  // before it, when not kept
    std::int64_t end_position = 0;    // 0: the stream has no end
    std::int64_t steps = 0;           // without an end: updates that end the job
    int samples = 0;                  // of one push
  };
  // A worker of the new epoch; `pushing` is the ticket that it still holds.
  struct Worker {
    std::uint32_t index = 0;
    bool stays = false;  // the same process as in the epoch before
    std::optional<std::int64_t> pushing;
    std::int64_t finished = 0;  // of its pushes in the epoch before
  };
  void startEpoch(bool kept, const Start& start, const std::vector<Worker>& workers);

  // As the epoch begins, for a successor.
  PushLedger ledger() const;
  // In place of a former one that is lost: as that was when the epoch of `ledger`, whose pushes
  // have so many samples, ended. startEpoch() is to follow. (push_ledger.cc)
  void restore(const PushLedger& ledger, const PushNews& news, std::int64_t samples);

  struct Ask {
    std::uint32_t worker = 0;
    bool ticket = false;
    bool lease = false;
    std::int64_t finished = 0;
  };
  struct Answer {
    bool over = false;
    std::optional<std::int64_t> ticket;
    std::optional<SampleRange> lease;
  };
  // Nothing: the worker has to wait; ask again when anything has changed.
  std::optional<Answer> ask(const Ask& ask);
  // What a worker reports: pushes finished under this epoch, whether it still holds the ticket that
  // it brought into the epoch, whether it computes a score meanwhile.
  void onReport(std::uint32_t worker, std::int64_t finished, std::optional<std::int64_t> pushing,
                bool evaluating);

  // No more tickets, but for those that an update lacks; until resume().
  void drain() { draining_ = true; }
  void resume() { draining_ = false; }
  // No more tickets at all: what an update lacks it does without.
  void stop() { draining_ = stopping_ = true; }
  bool draining() const { return draining_; }
  // All pushes that were given a ticket are finished and none is to come before resume().
  bool drained() const;
  // The job's pushes are all taken.
  bool over() const { return given_ >= limit_ && returned_.empty(); }

  // Complete updates so far; exact when drained.
  std::int64_t version() const;
  std::int64_t steps() const { return (limit_ + rules_.aggregate - 1) / rules_.aggregate; }
  std::int64_t position() const { return position_; }
  // Samples before position() that nobody has pushed.
  std::vector<SampleRange> unread() const;
  // The most that one clock was ahead of another, ever.
  std::int64_t spread() const { return spread_; }
  // Pushes whose worker died in the middle, ever.
  std::int64_t partial() const { return partial_; }

 private:
  struct State {
    std::int64_t clock = 0;
    std::int64_t given = 0;  // tickets under this epoch
    std::int64_t finished = 0;
    std::optional<std::int64_t> newest;   // ticket
    std::optional<std::int64_t> carried;  // ticket of the epoch before, not finished
    std::optional<SampleRange> own;       // of the newest ticket's gradient
    std::optional<SampleRange> lease;     // no ticket yet
    bool evaluating = false;
    bool busy() const { return carried.has_value() || finished < given; }
  };
  bool samplesLeft() const;
  std::int64_t slowest(std::uint32_t apart_from) const;
  std::int64_t fastest() const;
  void notTooFarBehind(State& state) const;
  bool tooFarAhead(std::uint32_t worker) const;
  bool mayGoOn(std::uint32_t worker);
  std::optional<SampleRange> lend(std::uint32_t worker);
  bool mayPush() const;
  void settle(State& state, const std::optional<Worker>& now);
  void restoreWorker(const PushLedger::Worker& known, PushNews::Worker told);

  const TicketRules rules_;
  Start start_;
  std::map<std::uint32_t, State> workers_;
  std::int64_t given_ = 0;  // tickets [0, given_) were given
  std::int64_t limit_ = 0;
  std::set<std::int64_t> returned_;  // given, but never used
  std::int64_t position_ = 0;
  std::deque<SampleRange> pool_;  // lent, but never pushed
  bool draining_ = false;
  bool stopping_ = false;
  bool stopped_all_ = false;
  std::int64_t spread_ = 0;
  std::int64_t partial_ = 0;
};

}  // namespace trainyard::runtime
