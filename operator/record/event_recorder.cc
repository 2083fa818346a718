#include "operator/record/event_recorder.h"

#include <algorithm>

#include "base/core/log.h"
#include "fmt/format.h"

namespace trainyard::control {

EventRecorder::EventRecorder(Cluster& cluster, const Clock& clock, EventLimits limits)
    : cluster_(cluster), clock_(clock), limits_(limits) {}

void EventRecorder::record(const v1::TrainingJob& job, std::string_view type,
                           std::string_view reason, std::string_view message) {
  std::string text(message);
  // Two jobs of one name, one after the other, are two jobs.
  const std::string name = fmt::format("{}/{}", toString(keyOf(job)), job.metadata().uid());
  if (!admit(name, type, reason, &text)) return;
  const Status status = cluster_.recordEvent(job, type, reason, text);
  if (!status.ok()) {
    TY_WARN("event {} of {} is not recorded: {}", reason, name, status.ToString());
  }
}

bool EventRecorder::admit(const std::string& job, std::string_view type, std::string_view reason,
                          std::string* message) {
  const std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  JobEvents& events = eventsOf(job, now);
  auto [it, inserted] =
      events.similar.try_emplace({std::string(type), std::string(reason)}, Similar{now});
  Similar& similar = it->second;
  if (now - similar.since >= limits_.window) {
    similar = {now, 0, similar.left_out};
  }
  if (similar.count >= limits_.similar_max || !takeToken(events, now)) {
    ++similar.left_out;
    ++dropped_;
    return false;
  }
  ++similar.count;
  if (similar.left_out > 0) {
    *message += fmt::format(" (and {} more like it before)", similar.left_out);
    similar.left_out = 0;
  }
  return true;
}

bool EventRecorder::takeToken(JobEvents& events, TimePoint now) {
  const auto refills = (now - events.refilled) / limits_.refill;
  events.refilled += refills * limits_.refill;
  events.tokens = static_cast<int>(std::min<std::int64_t>(limits_.burst, events.tokens + refills));
  if (events.tokens == 0) return false;
  --events.tokens;
  return true;
}

EventRecorder::JobEvents& EventRecorder::eventsOf(const std::string& job, TimePoint now) {
  const auto known = jobs_.find(job);
  if (known != jobs_.end()) {
    known->second.last = now;
    return known->second;
  }
  if (jobs_.size() >= limits_.jobs_max) {
    jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    }));
  }
  return jobs_[job] = JobEvents{now, now, limits_.burst, {}};
}

std::uint64_t EventRecorder::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace trainyard::control
