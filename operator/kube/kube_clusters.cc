#include "operator/kube/kube_clusters.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace trainyard::control {

namespace {

const std::string& nsOf(const v1::TrainingJob& job) {
  return job.metadata().namespace_();
}

void add(ReflectorCounts& sum, const ReflectorCounts& more) {
  sum.lists += more.lists;
  sum.items += more.items;
  sum.list_seconds += more.list_seconds;
  sum.watches += more.watches;
  sum.short_watches += more.short_watches;
  sum.events += more.events;
  sum.failures += more.failures;
  sum.last_version = std::max(sum.last_version, more.last_version);
}

}  // namespace

KubeClusters::KubeClusters(KubeClient& client, const Clock& clock, KubeClusterOptions options,
                           const std::vector<std::string>& namespaces) {
  const std::vector<std::string> all{""};
  for (const std::string& ns : namespaces.empty() ? all : namespaces) {
    options.ns = ns;
    clusters_.try_emplace(ns, std::make_unique<KubeCluster>(client, clock, options));
    ++options.reflector.seed;
  }
}

StatusOr<KubeCluster*> KubeClusters::of(const std::string& ns) const {
  const auto everywhere = clusters_.find("");
  const auto found = everywhere == clusters_.end() ? clusters_.find(ns) : everywhere;
  if (found == clusters_.end())
    return absl::NotFoundError(fmt::format("namespace {} is not looked after", ns));
  return found->second.get();
}

Status KubeClusters::watch(std::function<void(const JobKey&)> changed) {
  for (const auto& [ns, cluster] : clusters_) TY_RETURN_IF_ERROR(cluster->watch(changed));
  return absl::OkStatus();
}

StatusOr<std::vector<JobKey>> KubeClusters::listJobs() {
  std::vector<JobKey> keys;
  for (const auto& [ns, cluster] : clusters_) {
    TY_ASSIGN_OR_RETURN(const std::vector<JobKey> here, cluster->listJobs());
    keys.insert(keys.end(), here.begin(), here.end());
  }
  return keys;
}

StatusOr<JobObservation> KubeClusters::observe(const JobKey& key) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(key.ns));
  return cluster->observe(key);
}

Status KubeClusters::createTask(const v1::TrainingJob& job, const TaskKey& task,
                                std::uint32_t created) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->createTask(job, task, created);
}

Status KubeClusters::deleteTask(const v1::TrainingJob& job, const TaskKey& task,
                                std::uint32_t created) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->deleteTask(job, task, created);
}

Status KubeClusters::forgetTask(const v1::TrainingJob& job, const TaskKey& task,
                                std::uint32_t created) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->forgetTask(job, task, created);
}

Status KubeClusters::releaseTask(const v1::TrainingJob& job, const TaskKey& task,
                                 std::uint32_t created) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->releaseTask(job, task, created);
}

Status KubeClusters::dropVolumeClaims(const v1::TrainingJob& job, const TaskKey& task) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->dropVolumeClaims(job, task);
}

Status KubeClusters::claimQuota(const v1::TrainingJob& job, const QuotaClaim& claim) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->claimQuota(job, claim);
}

Status KubeClusters::giveQuotaBack(const v1::TrainingJob& job) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->giveQuotaBack(job);
}

Status KubeClusters::dropClaim(const v1::TrainingJob& job) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->dropClaim(job);
}

Status KubeClusters::deleteJob(const v1::TrainingJob& job) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->deleteJob(job);
}

Status KubeClusters::publish(const v1::TrainingJob& job, const v1::Membership& membership) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->publish(job, membership);
}

Status KubeClusters::writeStatus(const v1::TrainingJob& job, const v1::JobStatus& status) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->writeStatus(job, status);
}

Status KubeClusters::recordEvent(const v1::TrainingJob& job, std::string_view type,
                                 std::string_view reason, std::string_view message) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(nsOf(job)));
  return cluster->recordEvent(job, type, reason, message);
}

StatusOr<std::vector<AgentEndpoint>> KubeClusters::agents(const JobKey& key) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(key.ns));
  return cluster->agents(key);
}

void KubeClusters::pushFailed(const JobKey& key, const AgentEndpoint& agent,
                              std::int64_t revision) {
  const auto cluster = of(key.ns);
  if (cluster.ok()) (*cluster)->pushFailed(key, agent, revision);
}

StatusOr<std::optional<AgentTls>> KubeClusters::tls(const JobKey& key) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(key.ns));
  return cluster->tls(key);
}

StatusOr<std::string> KubeClusters::token(const JobKey& key) {
  TY_ASSIGN_OR_RETURN(KubeCluster* const cluster, of(key.ns));
  return cluster->token(key);
}

bool KubeClusters::hasSynced() const {
  return std::all_of(clusters_.begin(), clusters_.end(),
                     [](const auto& entry) { return entry.second->hasSynced(); });
}

std::size_t KubeClusters::cachedPods() const {
  std::size_t pods = 0;
  for (const auto& [ns, cluster] : clusters_) pods += cluster->cachedPods();
  return pods;
}

std::vector<std::pair<std::string, ReflectorCounts>> KubeClusters::reflectorCounts() const {
  std::map<std::string, ReflectorCounts> sums;
  for (const auto& [ns, cluster] : clusters_) {
    for (const auto& [name, counts] : cluster->reflectorCounts()) add(sums[name], counts);
  }
  return {sums.begin(), sums.end()};
}

std::vector<v1::TrainingJob> KubeClusters::cachedJobs() const {
  std::vector<v1::TrainingJob> jobs;
  for (const auto& [ns, cluster] : clusters_) {
    std::vector<v1::TrainingJob> here = cluster->cachedJobs();
    std::move(here.begin(), here.end(), std::back_inserter(jobs));
  }
  return jobs;
}

}  // namespace trainyard::control
