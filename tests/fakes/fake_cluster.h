// A Cluster in memory whose tasks do what a test says, and whose every call can be made to fail.
// Held to tests/conformance/cluster like the real ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/cluster/cluster.h"

namespace trainyard::control {

// A job with metadata (uid, generation 1), `ps` + `workers` replicas and the defaults of the schema
// that the planner reads.
v1::TrainingJob fakeJob(const std::string& name, int ps, int workers);

// How tasks behave without being told.
struct FakeLife {
  bool address_at_create = true;  // 10.0.<created>.<index + 1>, + 100 for workers; port 2222
  bool ready_at_create = false;
  bool slow_delete = false;  // live tasks stay `terminating` until finishDelete()
  bool held = false;         // tasks are held until they are released
};

enum class FakeCall {
  kWatch,
  kList,
  kObserve,
  kCreate,
  kDelete,
  kPublish,
  kStatus,
  kEvent,
  kQuota
};
// "create", "delete", ...
std::optional<FakeCall> parseFakeCall(std::string_view name);

// Thread-safe.
class FakeCluster : public Cluster {
 public:
  // --- what a test does
  JobKey addJob(const v1::TrainingJob& job);
  void removeJob(const JobKey& key);
  // A change by the user: generation + 1.
  void editSpec(const JobKey& key, const std::function<void(v1::JobSpec*)>& edit);
  // The record is being deleted but still there.
  void markDeleted(const JobKey& key, const std::string& time);
  // By the user; not a change of the spec.
  void annotate(const JobKey& key, const std::string& name, const std::string& value);
  // A write by somebody else that leaves the content alone: ages what others have read.
  void touch(const JobKey& key);
  void setLife(const FakeLife& life);

  // Each acts on the task that is there; a bug of the test when none is.
  void setAddress(const JobKey& key, const TaskKey& task);
  void setReady(const JobKey& key, const TaskKey& task, bool ready = true);
  void setWaiting(const JobKey& key, const TaskKey& task, const TaskWait& wait);
  void setDeletionCost(const JobKey& key, const TaskKey& task, std::int32_t cost);
  // Of one that has ended.
  void setLingers(const JobKey& key, const TaskKey& task);
  void setRestarts(const JobKey& key, const TaskKey& task, std::uint32_t restarts);
  void exitTask(const JobKey& key, const TaskKey& task, int code, const std::string& cause = "",
                UnixMillis at = 0);
  void killTask(const JobKey& key, const TaskKey& task, int signal);
  void disruptTask(const JobKey& key, const TaskKey& task, const std::string& cause);
  // Somebody else deletes it: terminating until finishDelete() or forgetTask(); it is to end at
  // `due` (0: nobody knows when).
  void beginDelete(const JobKey& key, const TaskKey& task, UnixMillis due = 0);
  // As a drained node does it.
  void evict(const JobKey& key, const TaskKey& task);
  void finishDelete(const JobKey& key, const TaskKey& task);
  // What the cluster says of the job as a whole; nothing: no such trouble.
  void setObstacle(const JobKey& key, const std::optional<TaskWait>& obstacle);
  void setPassingStorage(const JobKey& key, const std::optional<TaskWait>& why);
  void setRefusal(const JobKey& key, const std::optional<TaskWait>& refusal);
  void setImages(const JobKey& key, const v1::Images& images);
  // It waits in a queue, which grants its claim with so many of the workers, wants that back, or
  // says why it waits.
  void setQueue(const JobKey& key, const std::string& queue);
  void grantQuota(const JobKey& key, int workers);
  void withdrawQuota(const JobKey& key, const std::string& message);
  void explainQuota(const JobKey& key, const std::string& message);
  // It is there no more, without a word.
  void vanishTask(const JobKey& key, const TaskKey& task);

  // The next `times` calls of that kind return `status`; with `applied` they take effect before.
  void failNext(FakeCall call, const Status& status, int times = 1, bool applied = false);
  // After so many more writes every call fails, as if the caller had been killed; revive() ends it.
  void dieAfterWrites(int writes);
  void revive();
  bool dead() const;
  int writes() const;  // that took effect

  // One line per write that took effect, oldest first; clears it.
  std::vector<std::string> takeTrace();

  // The volume claims that there are: "data-job-worker-0", ...
  std::vector<std::string> volumeClaims(const JobKey& key) const;

  // --- Cluster
  Status watch(std::function<void(const JobKey&)> changed) override;
  StatusOr<std::vector<JobKey>> listJobs() override;
  StatusOr<JobObservation> observe(const JobKey& key) override;
  Status createTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override;
  Status deleteTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override;
  Status forgetTask(const v1::TrainingJob& job, const TaskKey& task,
                    std::uint32_t created) override;
  Status releaseTask(const v1::TrainingJob& job, const TaskKey& task,
                     std::uint32_t created) override;
  Status dropVolumeClaims(const v1::TrainingJob& job, const TaskKey& task) override;
  Status claimQuota(const v1::TrainingJob& job, const QuotaClaim& claim) override;
  Status giveQuotaBack(const v1::TrainingJob& job) override;
  Status dropClaim(const v1::TrainingJob& job) override;
  Status deleteJob(const v1::TrainingJob& job) override;
  Status publish(const v1::TrainingJob& job, const v1::Membership& membership) override;
  Status writeStatus(const v1::TrainingJob& job, const v1::JobStatus& status) override;
  Status recordEvent(const v1::TrainingJob& job, std::string_view type, std::string_view reason,
                     std::string_view message) override;

 private:
  struct Record {
    v1::TrainingJob job;
    std::uint64_t version = 1;
    std::map<TaskKey, TaskObservation> tasks;
    std::optional<v1::Membership> membership;
    std::optional<TaskWait> obstacle;
    std::optional<TaskWait> passing_storage;
    std::optional<TaskWait> refusal;
    v1::Images images;
    std::optional<QuotaObservation> quota;
    std::map<TaskKey, std::vector<std::string>> claims;  // by task: names of its templates
  };
  struct Failure {
    Status status;
    int times = 0;
    bool applied = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  // The failure set for this call; `applied` tells whether to take effect all the same.
  Status takeFailure(FakeCall call, bool* applied);
  // Runs `write` unless a failure says otherwise; counts and traces it when it took effect.
  Status doWrite(const v1::TrainingJob& job, FakeCall call,
                 const std::function<StatusOr<std::string>(Record&)>& write);
  void change(const JobKey& key, const std::function<void(Record&)>& change);
  void changeTask(const JobKey& key, const TaskKey& task,
                  const std::function<void(TaskObservation&)>& change);
  void notify(const JobKey& key);

  mutable std::mutex mutex_;
  std::map<JobKey, Record> jobs_;
  FakeLife life_;
  std::vector<std::function<void(const JobKey&)>> watchers_;
  std::map<FakeCall, Failure> failures_;
  std::vector<std::string> trace_;
  int writes_ = 0;
  std::optional<int> writes_left_;
};

}  // namespace trainyard::control
