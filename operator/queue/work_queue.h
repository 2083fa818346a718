// Names of jobs that want to be looked at. Carries names only ("namespace/name"), never what
// happened: a lost, doubled or merged event must not matter.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/core/clock.h"

namespace trainyard::control {

// Told of the way of each key through a queue, in order and under the queue's lock: must be quick,
// and must not call the queue.
class QueueObserver {
 public:
  virtual ~QueueObserver() = default;
  virtual void waits(const std::string& key) = 0;  // it is in line now
  virtual void taken(const std::string& key) = 0;
  virtual void done(const std::string& key) = 0;
};

struct QueueOptions {
  // addRateLimited waits retry_base after the first failure of a key, twice that after the second,
  // ...
  Duration retry_base = std::chrono::milliseconds(50);
  Duration retry_max = std::chrono::seconds(30);
  // A key is not due again before it has rested so long since it was done: what happens to one job
  // meanwhile is seen in one look, and jobs that nobody has looked at yet come first.
  Duration pause = Duration::zero();
  QueueObserver* observer = nullptr;  // outlives the queue
};

// A de-duplicating queue with delays, fair between namespaces: those with due keys take turns, and
// within a namespace the key that has been due longest comes first. A key is waiting at most once;
// a key that is added while it is being worked on waits again once that work is done, so no key is
// ever worked on twice at once.
//
// Thread-safe. Time comes from the clock alone: with a FakeClock use tryTake() from one thread;
// take() needs a clock that moves by itself.
class WorkQueue {
 public:
  WorkQueue(const Clock& clock, QueueOptions options);

  void add(const std::string& key);
  // Adds after `delay`. Of several delays of one key only the earliest counts: whoever works on the
  // key decides anew when to look next.
  void addAfter(const std::string& key, Duration delay);
  // Adds after the back-off of this key, which grows with each call until forget().
  void addRateLimited(const std::string& key);
  // Ends the back-off of a key: it was worked on without failure.
  void forget(const std::string& key);

  // The next key that is due, if any; the caller owes a done(). Does not block.
  std::optional<std::string> tryTake();
  // As tryTake(), but waits for a key. Nothing only after shutDown().
  std::optional<std::string> take();
  // The work on a key that was taken is over.
  void done(const std::string& key);

  // When the earliest delayed key is due.
  std::optional<TimePoint> nextDue() const;
  // take() returns nothing from now on; adding has no effect.
  void shutDown();

  std::size_t waiting() const;    // keys due and not taken
  std::uint64_t adds() const;     // since the start, merged ones included
  std::uint64_t retries() const;  // calls of addRateLimited

 private:
  using Lock = std::unique_lock<std::mutex>;
  void addLocked(const std::string& key);
  void addAtLocked(const std::string& key, TimePoint due);
  void lineUpLocked(const std::string& key);
  void moveDueLocked();
  void forgetRestedLocked(TimePoint now);
  std::optional<std::string> takeLocked();

  const Clock& clock_;
  const QueueOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // By namespace, in order of arrival; a namespace without due keys has no entry.
  std::map<std::string, std::deque<std::string>, std::less<>> ready_;
  std::deque<std::string> turns_;  // the namespaces of ready_, whose turn is first
  std::size_t due_ = 0;            // keys in ready_
  std::set<std::string> dirty_;    // wants work: in ready_, or added while in work
  std::set<std::string> working_;  // taken, not done
  std::set<std::pair<TimePoint, std::string>> delayed_;
  std::map<std::string, TimePoint> due_of_;  // the one entry of a key in delayed_
  // Until when keys rest, with `pause`; the same in order of time.
  std::map<std::string, TimePoint> rests_until_;
  std::deque<std::pair<TimePoint, std::string>> rest_ends_;
  std::map<std::string, int> failures_;
  std::uint64_t adds_ = 0;
  std::uint64_t retries_ = 0;
  bool shut_down_ = false;
};

}  // namespace trainyard::control
