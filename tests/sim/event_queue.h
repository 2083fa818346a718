// What is to happen in a simulated world, by time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/core/clock.h"

namespace trainyard::sim {

struct Event {
  TimePoint at;
  std::uint64_t order;  // of two of the same moment the lower one comes first
  int owner;            // where the world has owners: with whom it waits
  std::function<void()> run;
  // As the heap wants it: what comes first is the greatest.
  bool operator<(const Event& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

// A std::priority_queue gives its first element only to be copied, with all messages in it.
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  void add(TimePoint at, std::function<void()> run, int owner = 0) {
    put({at, next_order_++, owner, std::move(run)});
  }
  // One that was taken, for another time; it keeps its order.
  void put(Event event) {
    heap_.push_back(std::move(event));
    std::push_heap(heap_.begin(), heap_.end());
  }
  // There is one.
  Event take() {
    std::pop_heap(heap_.begin(), heap_.end());
    Event next = std::move(heap_.back());
    heap_.pop_back();
    return next;
  }

 private:
  std::uint64_t next_order_ = 0;
  std::vector<Event> heap_;
};

}  // namespace trainyard::sim
