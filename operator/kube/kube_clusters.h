// The jobs of several namespaces of one Kubernetes, and of no others.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operator/kube/kube_cluster.h"

namespace trainyard::control {

// A KubeCluster for each namespace, with watches and caches of its own: rights there are all that
// is needed. Everything that names a job goes to its namespace's; a job of another is NOT_FOUND.
// Thread-safe and used as a KubeCluster is.
class KubeClusters final : public Cluster, public AgentDirectory {
 public:
  // Of all namespaces where `namespaces` is empty; the same one may be named twice. `options.ns` is
  // not looked at.
  KubeClusters(KubeClient& client, const Clock& clock, KubeClusterOptions options,
               const std::vector<std::string>& namespaces);

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
  void pushFailed(const JobKey& key, const AgentEndpoint& agent, std::int64_t revision) override;
  StatusOr<std::optional<AgentTls>> tls(const JobKey& key) override;
  StatusOr<std::string> token(const JobKey& key) override;

  // As of KubeCluster, of all together.
  bool hasSynced() const;
  std::size_t cachedPods() const;
  std::vector<std::pair<std::string, ReflectorCounts>> reflectorCounts() const;
  std::vector<v1::TrainingJob> cachedJobs() const;

 private:
  StatusOr<KubeCluster*> of(const std::string& ns) const;

  std::map<std::string, std::unique_ptr<KubeCluster>> clusters_;  // by namespace; "": all
};

}  // namespace trainyard::control
