#include "runtime/compute/read_ahead.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime {

ReadAhead::ReadAhead(const Dataset& data, std::uint64_t seed, SampleOrder order, int steps)
    : data_(data), steps_(static_cast<std::size_t>(steps)), stream_(seed, data.size(), order) {
  TY_CHECK(steps >= 1, "who reads nothing ahead reads by himself");
}

void ReadAhead::read(std::int64_t first, int count, std::int64_t stride, Batch& out) {
  const auto found = std::find_if(ahead_.begin(), ahead_.end(),
                                  [&](const auto& step) { return step->is(first, count); });
  if (found == ahead_.end()) {
    forgetFrom(ahead_.begin());
    add(first, count);
  } else {
    ahead_.erase(ahead_.begin(), found);  // steps that others have taken
  }
  const std::shared_ptr<Step> step = ahead_.front();
  ahead_.pop_front();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return step->done; });
  }
  std::swap(out, step->batch);
  spare_.push_back(std::move(step->batch));
  for (std::size_t k = 0; k < steps_ && stride > 0; ++k) {
    const std::int64_t next = first + static_cast<std::int64_t>(k + 1) * stride;
    if (k < ahead_.size() && ahead_[k]->is(next, count)) continue;
    forgetFrom(ahead_.begin() + static_cast<std::ptrdiff_t>(std::min(k, ahead_.size())));
    add(next, count);
  }
}

void ReadAhead::forgetFrom(Steps::iterator from) {
  for (auto step = from; step != ahead_.end(); ++step) (*step)->wanted = false;
  ahead_.erase(from, ahead_.end());
}

void ReadAhead::add(std::int64_t first, int count) {
  auto step = std::make_shared<Step>();
  step->first = first;
  step->count = count;
  if (!spare_.empty()) {
    step->batch = std::move(spare_.back());
    spare_.pop_back();
  }
  ahead_.push_back(step);
  thread_.add([this, step] { fill(*step); });
}

void ReadAhead::fill(Step& step) {
  if (!step.wanted) return;
  positions_.resize(static_cast<std::size_t>(step.count));
  std::iota(positions_.begin(), positions_.end(), step.first);
  samples_.resize(positions_.size());
  stream_.lookUp(step.first, samples_);
  data_.read(samples_, positions_, step.batch);
  std::lock_guard lock(mutex_);
  step.done = true;
  changed_.notify_all();
}

}  // namespace trainyard::runtime
