// The Cluster interface over a Kubernetes: jobs are TrainingJobs, tasks are pods, a membership is a
// ConfigMap.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/core/helper_pool.h"
#include "base/core/status.h"
#include "base/security/job_keys.h"
#include "operator/cache/reflector.h"
#include "operator/cluster/agent_directory.h"
#include "operator/cluster/cluster.h"
#include "operator/kube/client.h"
#include "operator/kube/kueue/workload.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {

struct KubeClusterOptions {
  std::string ns;  // whose jobs; "": those of all namespaces
  RenderOptions render;
  // Jobs with Kueue's label of a queue wait there; without it they are refused.
  bool kueue = false;
  // Of which every job's keys are derived, each at least 32 bytes that nobody can guess: new jobs
  // use the first, those that were taken up with one of the others keep it. Not empty.
  std::vector<std::string> root_secrets;
  // Asked before every write: false when another operator may be the leader. Never empty.
  std::function<bool()> may_write = [] { return true; };
  // A list or watch was refused, which may well stay so: UNAUTHENTICATED or PERMISSION_DENIED.
  std::function<void(const Status&)> refused = [](const Status&) {};
  ReflectorOptions reflector{
      .stream = true};  // each of the reflectors draws numbers of its own from `seed`
  Duration sync_timeout = std::chrono::seconds(60);
  Duration fresh_wait = std::chrono::milliseconds(100);  // for the caches to show our own writes
  std::string reporter = "trainyard-operator";           // of events
  // What a job's tasks share and nobody watches (Service, NetworkPolicy, Secret) is made again
  // where it is gone or changed: so often, and before pods are created.
  Duration shared_every = std::chrono::minutes(10);
};

// Sees jobs, pods and ConfigMaps through caches that watches keep up to date. What it has written
// itself it remembers by version: an observation that would not show that yet waits a moment, and
// is then refused (ABORTED); `changed` comes when it would. Pods carry a
// finalizer until releaseTask() or deleteTask(); those whose job is gone are freed when their key
// is observed, which fails as long as one of them cannot be.
//
// Objects of a job's name that are not that job's are left alone: creating fails with UNAVAILABLE,
// and the observation says NameConflict.
//
// watch() once, then listJobs(), which waits for the caches; the destructor ends the watches.
// Thread-safe. `client` and `clock` outlive it.
class KubeCluster : public Cluster, public AgentDirectory {
 public:
  KubeCluster(KubeClient& client, const Clock& clock, KubeClusterOptions options);
  ~KubeCluster() override;

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

  StatusOr<std::vector<AgentEndpoint>> agents(const JobKey& key) override;
  // The kubelet brings a pod's files up to date at once when the pod changes: writes an annotation,
  // once for each revision.
  void pushFailed(const JobKey& key, const AgentEndpoint& agent, std::int64_t revision) override;
  StatusOr<std::optional<AgentTls>> tls(const JobKey& key) override;
  StatusOr<std::string> token(const JobKey& key) override;

  bool hasSynced() const;
  std::size_t cachedPods() const;
  // By the name of what is watched: "pods", ...
  std::vector<std::pair<std::string, ReflectorCounts>> reflectorCounts() const;
  // As last seen, without those that cannot be read.
  std::vector<v1::TrainingJob> cachedJobs() const;

 private:
  using Json = nlohmann::json;
  static constexpr std::size_t kFreesAtOnce = 16;  // as many as the client has connections
  // What was written last for a job, by the kind of object.
  struct Written {
    WriteMark jobs, pods, maps, workloads;
  };
  struct JobNotes {
    Written written;
    std::string prepared;  // uid and text of the job whose shared objects were there ...
    std::optional<TimePoint> prepared_at;  // ... then; of one that was taken up, some time before
    std::optional<int> gang;               // how many tasks its PodGroup asks for
    std::optional<TaskWait> refusal;
    bool names_refused = false;  // `refusal` may be of the last attempt to write names
    // Whose PersistentVolumeClaims there are, once that was asked for, and of which job (uid).
    std::optional<std::set<TaskKey>> claims;
    std::string claims_of;
    std::string dropped;  // uid of the Workload that was deleted last
    std::string keys_of;  // the root's and the job's identity that `keys` are derived from
    JobKeys keys;
    // As of the last change of its objects: `keys` are those, and these its agents.
    bool keys_hold = false;
    std::optional<std::vector<AgentEndpoint>> endpoints;
  };

  std::vector<Reflector*> reflectors() const;  // that have to be complete
  void onChange(const std::vector<ObjectChange>& changes);
  void forgetRead(const std::set<JobKey>& keys);
  void notify(const JobKey& key);
  Status mayWrite() const;
  Status waitUntilFresh(const JobKey& key);
  bool isFresh(const Written& written) const;
  void noteWritten(const JobKey& key, WriteMark Written::*kind, const Json& object);
  void noteRefusal(const JobKey& key, std::optional<TaskWait> refusal);

  TaskObservation observeTask(const v1::TrainingJob& job, TaskObservation seen) const;
  StatusOr<std::optional<v1::Membership>> recordedMembership(const v1::TrainingJob& job) const;
  StatusOr<std::vector<AgentEndpoint>> findAgents(const JobKey& key) const;
  StatusOr<JobKeys> keysOf(const JobKey& key);
  std::size_t rootOf(const JobKey& key, const std::string& uid) const;
  PackedPtr mapOf(const v1::TrainingJob& job) const;
  // The pod of that life of the task, as cached; NOT_FOUND.
  StatusOr<ObjectPtr> podOf(const v1::TrainingJob& job, const TaskKey& task,
                            std::uint32_t created) const;

  // What tasks of a job share is made before a pod of theirs, or looked at in the job's turn.
  enum class Shared { kBeforePods, kInTurn };
  // Unless that was done less than `max_age` ago.
  Status prepare(const v1::TrainingJob& job, Duration max_age, Shared shared);
  void prepareWhenDue(const JobObservation& seen);
  Status createPodGroup(const v1::TrainingJob& job, Shared shared);
  Status createShared(const v1::TrainingJob& job, Shared shared);
  // kube_names.cc. Nothing where tasks go by addresses. `recorded`: the membership before.
  Status createService(const v1::TrainingJob& job, Shared shared);
  Status publishNames(const v1::TrainingJob& job, const std::optional<v1::Membership>& recorded,
                      const v1::Membership& membership);
  Status writeNames(const v1::TrainingJob& job, const std::optional<v1::Membership>& recorded,
                    const v1::Membership& membership);
  Status prepareMap(const v1::TrainingJob& job);
  Status createOrMend(const KubeResource& resource, const v1::TrainingJob& job, const Json& wanted,
                      Json (*patchOf)(const Json& found, const Json& wanted), Shared shared);
  Status mend(const KubeResource& resource, const JobKey& key, const Json& found,
              const Json& patch);
  StatusOr<Json> ownObject(const KubeResource& resource, const v1::TrainingJob& job,
                           const std::string& name);
  void noteRefusedWith(const JobKey& key, const Status& status);
  // kube_claims.cc.
  Status prepareClaim(const v1::TrainingJob& job, const Json& wanted, UnknownFields unknown);
  Status prepareClaims(const v1::TrainingJob& job, const TaskKey& task, UnknownFields unknown);
  StatusOr<std::vector<Json>> listClaims(const v1::TrainingJob& job);
  std::vector<TaskKey> claimsOf(const v1::TrainingJob& job);
  // kube_quota.cc. Null where the job has none; `workloads_` is there.
  StatusOr<ObjectPtr> workloadOf(const v1::TrainingJob& job);
  StatusOr<std::optional<QuotaObservation>> quotaOf(const v1::TrainingJob& job);
  StatusOr<PriorityClass> priorityOf(const v1::TrainingJob& job);
  Status notQueued(const v1::TrainingJob& job, const Status& status);
  Status createWorkload(const v1::TrainingJob& job, const QuotaClaim& claim);
  Status patchWorkload(const v1::TrainingJob& job, const Json& patch, std::string_view subresource);
  StatusOr<Json> flavor(const std::string& name);
  Status placeByQuota(const v1::TrainingJob& job, v1::Role role, nlohmann::ordered_json& pod);

  Status removeFinalizer(const JobKey& key, const Json& pod);
  Status removePod(const v1::TrainingJob& job, const TaskKey& task, const Json& pod,
                   std::optional<std::int64_t> grace_seconds);
  // The first failure, after all have been tried.
  Status freeOrphans(const JobKey& key, const std::string& live_uid);

  KubeClient& client_;
  const Clock& clock_;
  const KubeClusterOptions options_;
  HelperPool helpers_{kFreesAtOnce - 1};

  std::unique_ptr<ListWatch> jobs_source_, pods_source_, maps_source_, workloads_source_;

  std::mutex callback_mutex_;
  std::function<void(const JobKey&)> changed_;
  bool started_ = false;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable seen_more_;
  std::vector<std::string> root_ids_;  // of options_.root_secrets
  std::uint64_t changes_ = 0;          // seen in the caches
  std::map<JobKey, JobNotes> notes_;
  std::set<JobKey> preparing_;  // somebody makes their shared objects
  std::condition_variable prepared_;
  std::uint64_t events_ = 0;
  std::map<std::string, std::pair<TimePoint, Json>> flavors_;  // by name: when asked, and the spec

  // Last: their threads use all above.
  std::unique_ptr<Reflector> jobs_, pods_, maps_;
  std::unique_ptr<Reflector> workloads_;  // null where there are no queues
};

}  // namespace trainyard::control
