// The newest word of a job's tasks about themselves. Polled by the controller's side; training
// never waits for it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "operator/cluster/cluster.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control {

struct JobReport {
  std::optional<v1::JobProgress> progress;  // newest word of the coordinator, kept when it is gone
  std::uint32_t progress_created = 0;       // life of the task that said so
  std::map<TaskKey, v1::TaskState> tasks;  // newest answer of each agent, also of those gone silent
  // Agents of tasks that run which were asked for long and did not answer.
  struct Unreachable {
    std::uint32_t created = 0;
    TaskWait why;  // a condition's reason (docs/conditions.md, AgentsReachable), and a line
  };
  std::map<TaskKey, Unreachable> unreachable;
  // Since when the progress may be written down anew. The source's to say, who knows all jobs and
  // sees to it that those of many are not written at once.
  std::optional<TimePoint> progress_due;
};

// What the agents of a job should know. Level-based: repeated until they do.
struct JobWish {
  std::optional<v1::Membership> membership;  // as recorded
  std::optional<TimePoint> stop_by;          // checkpoint by then, and stop
  bool last_word = false;                    // the coordinator's is waited for
};

// Thread-safe. No call blocks on the network.
class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  // Calls `changed` (from any thread) when the report of a job has changed. Before follow().
  virtual void watch(std::function<void(const JobKey&)> changed) = 0;
  // Empty for a job that is not followed.
  virtual JobReport newest(const JobKey& key) const = 0;
  // Polls the job's agents from now on and makes the wish known to them. Replaces an earlier wish;
  // a new uid under the same key starts from an empty report.
  virtual void follow(const JobKey& key, const std::string& uid, const JobWish& wish) = 0;
  // Ends the polling and forgets the report.
  virtual void forget(const JobKey& key) = 0;
};

}  // namespace trainyard::control
