// The coordinator's part for a few synchronizers of a ring in one process: their first epoch.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/ring/ring_synchronizer.h"

namespace trainyard::runtime::ring {

// What happens on any worker.
class News {
 public:
  void tell() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  bool await(const std::function<bool()>& condition) {
    const TimePoint limit = systemClock().now() + std::chrono::seconds(60);
    std::unique_lock lock(mutex_);
    while (!condition()) {
      if (systemClock().now() >= limit) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class RingViews {
 public:
  RingViews() {
    view_.mutable_coordinator()->set_created(1);
    view_.set_stop_at(-1);
    view_.set_checkpoint_at(-1);
    view_.mutable_epoch()->set_epoch(1);
  }
  // The next rank, which is open and outlives this.
  void add(RingSynchronizer& synchronizer) { ranks_.push_back(&synchronizer); }
  void prepare(std::int64_t step_samples, std::int64_t rank_samples) {
    show(v1::PHASE_SEALING);
    v1::EpochInfo& epoch = *view_.mutable_epoch();
    epoch.set_fresh(restored_ < 0);
    if (restored_ >= 0) {
      epoch.set_restore_manifest("step.json");
      epoch.set_first_step(restored_);
    }
    epoch.set_step_samples(step_samples);
    epoch.set_rank_samples(rank_samples);
    epoch.set_steps(steps_);
    epoch.set_lineage(1);
    for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
      v1::EpochMember* m = epoch.add_members();
      m->mutable_id()->set_role(v1::ROLE_WORKER);
      m->mutable_id()->set_index(i);
      m->set_rank(i);
      m->set_ring_host("127.0.0.1");
      m->set_ring_port(reportOf(*ranks_[i]).ring_port());
    }
    show(v1::PHASE_PREPARING);
  }
  // Of the job; 100.
  void setSteps(std::int64_t steps) { steps_ = steps; }
  // The epoch starts from a checkpoint of that step.
  void restore(std::int64_t step) { restored_ = step; }
  void fail(const std::string& why) {
    view_.set_failure(why);
    show(v1::PHASE_FAILED);
  }
  bool prepared() const {
    return std::ranges::all_of(
        ranks_, [](const RingSynchronizer* rank) { return reportOf(*rank).prepared_epoch() == 1; });
  }
  void show(v1::Phase phase) {
    view_.set_sequence(view_.sequence() + 1);
    view_.set_phase(phase);
    for (RingSynchronizer* rank : ranks_) rank->onView(view_);
  }

 private:
  static v1::MemberReport reportOf(const RingSynchronizer& rank) {
    v1::MemberReport report;
    rank.fillReport(report);
    return report;
  }
  std::vector<RingSynchronizer*> ranks_;
  v1::View view_;
  std::int64_t restored_ = -1;
  std::int64_t steps_ = 100;
};

}  // namespace trainyard::runtime::ring
