// Batches of steps that are expected, read on a thread before they are asked for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/core/work_thread.h"
#include "runtime/data/dataset.h"
#include "runtime/data/sample_stream.h"

namespace trainyard::runtime {

// Used by one thread.
class ReadAhead {
 public:
  // `data` must outlive it. `seed` and `order`: of the sample stream. `steps`, from 1: how many
  // batches are held ready, each in memory of its own.
  ReadAhead(const Dataset& data, std::uint64_t seed, SampleOrder order, int steps);

  // Fills `out` as Dataset::read() does with the samples at positions [first, first + count) of the
  // stream, keyed by these; waits until they are read. Then reads on for the steps that would
  // follow if each began `stride` positions behind the one before: where one does not, it is read
  // when it is asked for, and what was read for it is forgotten. The memory of `out` is used again.
  void read(std::int64_t first, int count, std::int64_t stride, Batch& out);

 private:
  struct Step {
    std::int64_t first = 0;
    int count = 0;
    Batch batch;
    bool done = false;                // of mutex_
    std::atomic<bool> wanted = true;  // else it need not be read any more
    bool is(std::int64_t f, int c) const { return first == f && count == c; }
  };
  using Steps = std::deque<std::shared_ptr<Step>>;

  // Drops what is ahead from there on.
  void forgetFrom(Steps::iterator from);
  void add(std::int64_t first, int count);
  void fill(Step& step);

  const Dataset& data_;
  const std::size_t steps_;
  Steps ahead_;  // in the order in which they are expected
  std::vector<Batch> spare_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // The thread's.
  SampleStream stream_;
  std::vector<std::int64_t> samples_;
  std::vector<std::int64_t> positions_;
  WorkThread thread_;  // ends before what it uses
};

}  // namespace trainyard::runtime
