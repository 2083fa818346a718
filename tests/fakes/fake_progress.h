// A ProgressSource that says what a test puts into it and remembers what it was asked to tell.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "operator/progress/progress_source.h"

namespace trainyard::control {

// Thread-safe.
class FakeProgress : public ProgressSource {
 public:
  // The coordinator's task, in its life `created`, says this from `now` on, which may be written
  // down.
  void say(const JobKey& key, std::uint32_t created, const v1::JobProgress& progress,
           TimePoint now);
  // The agent of that life of a task does not answer, or with nothing does again.
  void setUnreachable(const JobKey& key, const TaskKey& task, std::uint32_t created,
                      const std::optional<TaskWait>& why);
  // Nothing while the job is not followed.
  std::optional<JobWish> wishOf(const JobKey& key) const;

  void watch(std::function<void(const JobKey&)> changed) override;
  JobReport newest(const JobKey& key) const override;
  void follow(const JobKey& key, const std::string& uid, const JobWish& wish) override;
  void forget(const JobKey& key) override;

 private:
  mutable std::mutex mutex_;
  std::map<JobKey, JobReport> reports_;
  std::map<JobKey, JobWish> wishes_;
  std::function<void(const JobKey&)> changed_;
};

}  // namespace trainyard::control
