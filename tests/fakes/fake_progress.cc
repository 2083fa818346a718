#include "tests/fakes/fake_progress.h"

namespace trainyard::control {

void FakeProgress::say(const JobKey& key, std::uint32_t created, const v1::JobProgress& progress,
                       TimePoint now) {
  std::function<void(const JobKey&)> changed;
  {
    const std::lock_guard lock(mutex_);
    reports_[key].progress = progress;
    reports_[key].progress_created = created;
    reports_[key].progress_due = now;
    changed = changed_;
  }
  if (changed) changed(key);
}

void FakeProgress::setUnreachable(const JobKey& key, const TaskKey& task, std::uint32_t created,
                                  const std::optional<TaskWait>& why) {
  std::function<void(const JobKey&)> changed;
  {
    const std::lock_guard lock(mutex_);
    reports_[key].unreachable.erase(task);
    if (why) reports_[key].unreachable[task] = {created, *why};
    changed = changed_;
  }
  if (changed) changed(key);
}

std::optional<JobWish> FakeProgress::wishOf(const JobKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = wishes_.find(key);
  return it == wishes_.end() ? std::nullopt : std::optional(it->second);
}

void FakeProgress::watch(std::function<void(const JobKey&)> changed) {
  const std::lock_guard lock(mutex_);
  changed_ = std::move(changed);
}

JobReport FakeProgress::newest(const JobKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = reports_.find(key);
  return it == reports_.end() ? JobReport{} : it->second;
}

void FakeProgress::follow(const JobKey& key, const std::string& uid, const JobWish& wish) {
  const std::lock_guard lock(mutex_);
  wishes_[key] = wish;
}

void FakeProgress::forget(const JobKey& key) {
  const std::lock_guard lock(mutex_);
  wishes_.erase(key);
  reports_.erase(key);
}

}  // namespace trainyard::control
