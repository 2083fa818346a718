#include "operator/kube/kube_cluster.h"

#include <algorithm>
#include <utility>

#include "base/core/log.h"
#include "base/core/rng.h"
#include "fmt/format.h"
#include "operator/job/job.h"
#include "operator/job/template.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

// The last of an object's names is the key of its job, as text; "NS/" where there is none.
JobKey jobOf(const PackedObject& object) {
  return parseJobKey(object.digest().names.back());
}
std::string ownerName(const Json& object) {
  return fmt::format("{}/{}", objectKey(object).ns, labelOf(object, kJobNameLabel));
}
ObjectDigest digestOwned(const Json& object) {
  return {{ownerName(object)}, controllerUid(object)};
}
const std::string& ownerOf(const PackedObject& object) {
  return *std::any_cast<std::string>(&object.digest().summary);
}
ObjectDigest digestJob(const Json& job) {
  const ObjectKey key = objectKey(job);
  return {{toString(JobKey{key.ns, key.name})}, {}};
}
// Pods are looked up by the job that owns them; those of a name by all that ever had it.
ObjectDigest digestPod(const Json& pod) {
  return {{controllerUid(pod), ownerName(pod)}, observePod(pod)};
}

const std::optional<TaskObservation>& taskOf(const PackedObject& pod) {
  return *std::any_cast<std::optional<TaskObservation>>(&pod.digest().summary);
}

// Why the tasks of such a job cannot be created at all.
std::optional<TaskWait> obstacleOf(const v1::TrainingJob& job, const KubeClusterOptions& options) {
  if (const Status status = checkTemplates(job); !status.ok()) {
    return TaskWait{isCommandMissing(status) ? "CommandRequired" : "TemplateInvalid",
                    std::string(status.message())};
  }
  if (const Status status = checkSupported(job); !status.ok()) {
    return TaskWait{"NotSupported", std::string(status.message())};
  }
  if (const Status status = checkImages(job, options.render); !status.ok()) {
    return TaskWait{"NotSupported", std::string(status.message())};
  }
  if (job.spec().run_policy().has_scheduling_policy() && !options.render.gang) {
    return TaskWait{"NotSupported",
                    "spec.runPolicy.schedulingPolicy: this operator knows no scheduler that places "
                    "tasks together (chart value gangScheduler.kind)"};
  }
  if (!queueOf(job).empty() && !options.kueue) {
    return TaskWait{
        "NotSupported",
        fmt::format("label {}: this operator knows no queues (chart value kueue.enabled)",
                    kQueueLabel)};
  }
  return std::nullopt;
}

}  // namespace

KubeCluster::KubeCluster(KubeClient& client, const Clock& clock, KubeClusterOptions options)
    : client_(client), clock_(clock), options_(std::move(options)) {
  for (const std::string& root : options_.root_secrets) root_ids_.push_back(rootId(root));
  ListQuery query;
  query.ns = options_.ns;
  jobs_source_ = makeListWatch(client_, kTrainingJobs, query);
  query.label_selector = std::string(kJobNameLabel);
  pods_source_ = makeListWatch(client_, kPods, query);
  maps_source_ = makeListWatch(client_, kConfigMaps, query);
  const auto callbacks = [this](void (*trim)(Json&)) {
    return ReflectorCallbacks{
        .trim = trim,
        .changed = [this](const std::vector<ObjectChange>& changes) { onChange(changes); },
        .failed =
            [this](const Status& status) {
              if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)) {
                options_.refused(status);
              }
            }};
  };
  // Unlike each other's: they are not to come back at the same moments.
  const auto reflect = [&](const char* name, ListWatch& source, void (*trim)(Json&),
                           DigestFunction digest) {
    ReflectorOptions reflector = options_.reflector;
    reflector.seed = mixKey(reflector.seed, name);
    return std::make_unique<Reflector>(name, source, clock_, reflector, callbacks(trim),
                                       std::move(digest));
  };
  jobs_ = reflect("trainingjobs", *jobs_source_, trimObject, digestJob);
  pods_ = reflect("pods", *pods_source_, trimPod, digestPod);
  maps_ = reflect("configmaps", *maps_source_, trimObject, digestOwned);
  if (!options_.kueue) return;
  workloads_source_ = makeListWatch(client_, kWorkloads, query);
  workloads_ = reflect("workloads", *workloads_source_, trimWorkload, digestOwned);
}

std::vector<Reflector*> KubeCluster::reflectors() const {
  return {jobs_.get(), pods_.get(), maps_.get()};
}

KubeCluster::~KubeCluster() {
  for (Reflector* reflector : reflectors()) reflector->stop();
  if (workloads_) workloads_->stop();
}

Status KubeCluster::watch(std::function<void(const JobKey&)> changed) {
  {
    const std::lock_guard lock(callback_mutex_);
    changed_ = std::move(changed);
    if (!changed_ || started_) return absl::OkStatus();
    started_ = true;
  }
  for (Reflector* reflector : reflectors()) reflector->start();
  if (workloads_) workloads_->start();
  return absl::OkStatus();
}

void KubeCluster::onChange(const std::vector<ObjectChange>& changes) {
  {
    const std::lock_guard lock(mutex_);
    seen_more_.notify_all();
  }
  std::set<JobKey> keys;
  for (const ObjectChange& change : changes) {
    for (const PackedPtr& object : {change.before, change.after}) {
      if (object == nullptr) continue;
      const JobKey key = jobOf(*object);
      if (!key.name.empty()) keys.insert(key);
    }
  }
  forgetRead(keys);
  for (const JobKey& key : keys) notify(key);
}

void KubeCluster::forgetRead(const std::set<JobKey>& keys) {
  const std::lock_guard lock(mutex_);
  ++changes_;
  for (const JobKey& key : keys) {
    const auto notes = notes_.find(key);
    if (notes == notes_.end()) continue;
    notes->second.endpoints.reset();
    notes->second.keys_hold = false;
  }
}

void KubeCluster::notify(const JobKey& key) {
  const std::lock_guard lock(callback_mutex_);
  if (changed_) changed_(key);
}

bool KubeCluster::hasSynced() const {
  return jobs_->hasSynced() && pods_->hasSynced() && maps_->hasSynced();
}

std::size_t KubeCluster::cachedPods() const {
  return pods_->store().size();
}

std::vector<std::pair<std::string, ReflectorCounts>> KubeCluster::reflectorCounts() const {
  std::vector<std::pair<std::string, ReflectorCounts>> result;
  for (const Reflector* reflector : reflectors()) {
    result.emplace_back(reflector->name(), reflector->counts());
  }
  if (workloads_) result.emplace_back(workloads_->name(), workloads_->counts());
  return result;
}

std::vector<v1::TrainingJob> KubeCluster::cachedJobs() const {
  std::vector<v1::TrainingJob> jobs;
  for (const PackedPtr& object : jobs_->store().all()) {
    if (auto job = readJob(object->unpack()); job.ok()) jobs.push_back(*std::move(job));
  }
  return jobs;
}

StatusOr<std::vector<JobKey>> KubeCluster::listJobs() {
  std::set<JobKey> keys;
  for (Reflector* reflector : reflectors()) {
    TY_RETURN_IF_ERROR(reflector->waitForSync(options_.sync_timeout));
  }
  for (const PackedPtr& job : jobs_->store().all()) keys.insert(jobOf(*job));
  // Also jobs that are gone and have left pods behind.
  for (const PackedPtr& pod : pods_->store().all()) {
    const JobKey key = jobOf(*pod);
    if (key.name.empty() || keys.contains(key)) continue;
    if (hasFinalizer(pod->unpack(), kResultFinalizer)) keys.insert(key);
  }
  return std::vector<JobKey>(keys.begin(), keys.end());
}

bool KubeCluster::isFresh(const Written& written) const {
  const bool queues =
      workloads_ == nullptr || !workloads_->hasSynced() || workloads_->shows(written.workloads);
  return queues && jobs_->shows(written.jobs) && pods_->shows(written.pods) &&
         maps_->shows(written.maps);
}

Status KubeCluster::waitUntilFresh(const JobKey& key) {
  std::unique_lock lock(mutex_);
  const auto found = notes_.find(key);
  if (found == notes_.end()) return absl::OkStatus();
  const Written written = found->second.written;
  const auto limit = std::chrono::nanoseconds(options_.fresh_wait);
  if (seen_more_.wait_for(lock, limit, [&] { return isFresh(written); })) return absl::OkStatus();
  return absl::AbortedError("the caches do not show yet what was written last");
}

StatusOr<JobObservation> KubeCluster::observe(const JobKey& key) {
  TY_RETURN_IF_ERROR(waitUntilFresh(key));
  const ObjectPtr object = jobs_->store().get({key.ns, key.name});
  const Status freed = freeOrphans(key, object == nullptr ? "" : objectUid(*object));
  if (object == nullptr) {
    // Somebody waits for that: such a pod, and its namespace, cannot go.
    TY_RETURN_IF_ERROR(freed);
    const std::lock_guard lock(mutex_);
    notes_.erase(key);
    return absl::NotFoundError(fmt::format("no job {}", toString(key)));
  }
  // A job that is there goes on. The next look tries again, at the latest when a name is not free.
  if (!freed.ok()) TY_WARN("{}: {}", toString(key), freed.ToString());
  JobObservation seen;
  TY_ASSIGN_OR_RETURN(seen.job, readJob(*object));
  for (const PackedPtr& pod : pods_->store().byName(objectUid(*object))) {
    if (const auto& task = taskOf(*pod)) seen.tasks.push_back(observeTask(seen.job, *task));
  }
  std::sort(seen.tasks.begin(), seen.tasks.end(),
            [](const TaskObservation& a, const TaskObservation& b) { return a.key < b.key; });
  TY_ASSIGN_OR_RETURN(seen.membership, recordedMembership(seen.job));
  seen.obstacle = obstacleOf(seen.job, options_);
  seen.passing_storage = passingStorage(seen.job);
  seen.volume_claims = claimsOf(seen.job);
  TY_ASSIGN_OR_RETURN(seen.quota, quotaOf(seen.job));
  seen.images.set_agent(options_.render.agent_image);
  seen.images.set_runtime(options_.render.runtime_image);
  if (!options_.render.runtime_torch_image.empty())
    seen.images.set_runtime_torch(options_.render.runtime_torch_image);
  prepareWhenDue(seen);
  const bool map_is_gone = mapOf(seen.job) == nullptr;
  const std::lock_guard lock(mutex_);
  JobNotes& notes = notes_[key];
  if (map_is_gone) notes.prepared.clear();
  seen.refusal = notes.refusal;
  return seen;
}

TaskObservation KubeCluster::observeTask(const v1::TrainingJob& job, TaskObservation seen) const {
  // Ours go by addresses, and a program that brings only the model is told these.
  if (isForeign(job)) seen.host = podHost(job, seen.key);
  seen.port = static_cast<std::uint32_t>(job.spec().network().task_port());
  return seen;
}

PackedPtr KubeCluster::mapOf(const v1::TrainingJob& job) const {
  const PackedPtr map = maps_->store().find({job.metadata().namespace_(), membershipName(job)});
  return map != nullptr && ownerOf(*map) == job.metadata().uid() ? map : nullptr;
}

StatusOr<std::optional<v1::Membership>> KubeCluster::recordedMembership(
    const v1::TrainingJob& job) const {
  const PackedPtr held = mapOf(job);
  if (held == nullptr) return std::nullopt;
  const Json map = held->unpack();
  if (!map.contains("data")) return std::nullopt;
  const Json& data = map["data"];
  const auto text = data.find(kMembershipFile);
  if (text == data.end() || !text->is_string()) return std::nullopt;
  StatusOr<v1::Membership> membership = parseMembershipText(text->get<std::string>());
  if (!membership.ok()) return annotate(membership.status(), membershipName(job));
  return std::optional<v1::Membership>(*std::move(membership));
}

StatusOr<ObjectPtr> KubeCluster::podOf(const v1::TrainingJob& job, const TaskKey& task,
                                       std::uint32_t created) const {
  const ObjectPtr pod = pods_->store().get({job.metadata().namespace_(), podName(job, task)});
  const bool ours = pod != nullptr && controllerUid(*pod) == job.metadata().uid();
  const auto seen = ours ? observePod(*pod) : std::nullopt;
  if (seen && seen->created == created) return pod;
  return absl::NotFoundError(fmt::format("no {} that was created as {}", toString(task), created));
}

// Asked for in each round: what the pods say is read when one of them has changed.
StatusOr<std::vector<AgentEndpoint>> KubeCluster::agents(const JobKey& key) {
  std::uint64_t changes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto notes = notes_.find(key);
    if (notes != notes_.end() && notes->second.endpoints) return *notes->second.endpoints;
    changes = changes_;
  }
  TY_ASSIGN_OR_RETURN(const std::vector<AgentEndpoint> found, findAgents(key));
  const std::lock_guard lock(mutex_);
  if (changes == changes_) notes_[key].endpoints = found;
  return found;
}

StatusOr<std::vector<AgentEndpoint>> KubeCluster::findAgents(const JobKey& key) const {
  const ObjectPtr object = jobs_->store().get({key.ns, key.name});
  if (object == nullptr) return absl::NotFoundError(fmt::format("no job {}", toString(key)));
  // Without reading the whole job.
  const Json::json_pointer at("/spec/network/agentPort");
  const bool has_port = object->contains(at) && (*object)[at].is_number_integer();
  if (!has_port) return absl::InternalError("spec.network.agentPort: missing");
  const int port = (*object)[at].get<int>();
  std::vector<AgentEndpoint> result;
  for (const PackedPtr& pod : pods_->store().byName(objectUid(*object))) {
    const std::optional<TaskObservation>& task = taskOf(*pod);
    if (!task || task->phase != TaskPhase::kRunning || task->ip.empty()) continue;
    const bool v6 = task->ip.find(':') != std::string::npos;
    result.push_back({task->key, task->created,
                      fmt::format("{}:{}", v6 ? "[" + task->ip + "]" : task->ip, port)});
  }
  return result;
}

StatusOr<std::string> KubeCluster::token(const JobKey& key) {
  TY_ASSIGN_OR_RETURN(const JobKeys keys, keysOf(key));
  return keys.token;
}

StatusOr<std::optional<AgentTls>> KubeCluster::tls(const JobKey& key) {
  TY_ASSIGN_OR_RETURN(const JobKeys keys, keysOf(key));
  const TlsIdentity& self = keys.client;
  return AgentTls{self.ca, self.cert, self.key, std::string(kTaskServerName)};
}

// Asked for in each round as well.
StatusOr<JobKeys> KubeCluster::keysOf(const JobKey& key) {
  std::uint64_t changes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto notes = notes_.find(key);
    if (notes != notes_.end() && notes->second.keys_hold) return notes->second.keys;
    changes = changes_;
  }
  const ObjectPtr object = jobs_->store().get({key.ns, key.name});
  if (object == nullptr) return absl::NotFoundError(fmt::format("no job {}", toString(key)));
  const std::string uid = objectUid(*object);
  const std::size_t root = rootOf(key, uid);
  const std::string keys_of = uid + "/" + root_ids_[root];
  const std::lock_guard lock(mutex_);
  JobNotes& notes = notes_[key];
  if (notes.keys_of != keys_of) {
    notes.keys = deriveJobKeys(options_.root_secrets[root], uid);
    notes.keys_of = keys_of;
  }
  notes.keys_hold = changes == changes_;
  return notes.keys;
}

// Which root secret the job was taken up with; the first where nothing says so.
std::size_t KubeCluster::rootOf(const JobKey& key, const std::string& uid) const {
  const PackedPtr map = maps_->store().find({key.ns, membershipName(key.name)});
  if (map == nullptr || ownerOf(*map) != uid) return 0;
  const std::string id = annotationOf(map->unpack(), kRootAnnotation);
  const auto found = std::ranges::find(root_ids_, id);
  return found == root_ids_.end() ? 0 : static_cast<std::size_t>(found - root_ids_.begin());
}

}  // namespace trainyard::control
