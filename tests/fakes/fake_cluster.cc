#include "tests/fakes/fake_cluster.h"

#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "operator/cluster/volume_claims.h"
#include "operator/record/status_diff.h"

namespace trainyard::control {

namespace {

void giveAddress(TaskObservation& task) {
  const std::uint32_t last = task.key.index + 1 + (task.key.role == v1::ROLE_WORKER ? 100 : 0);
  task.ip = fmt::format("10.0.{}.{}", task.created, last);
  task.port = 2222;
  task.host = toString(task.key);
}

void endTask(TaskObservation& task, TaskPhase phase, const TaskExit& exit) {
  task.phase = phase;
  task.ready = false;
  task.exit = exit;
}

bool hasEnded(const TaskObservation& task) {
  return task.phase == TaskPhase::kSucceeded || task.phase == TaskPhase::kFailed;
}

std::string describe(const v1::Membership& membership) {
  std::string text = fmt::format("publish revision {}:", membership.revision());
  for (const v1::MemberTask& task : membership.tasks()) {
    text += fmt::format(" {}/{}@{}:{}", toString(TaskKey{task.id().role(), task.id().index()}),
                        task.created(), task.ip(), task.port());
  }
  if (membership.has_steps()) text += fmt::format(" steps={}", membership.steps());
  return text;
}

using Tasks = std::map<TaskKey, TaskObservation>;

// That life of the task; NOT_FOUND.
StatusOr<Tasks::iterator> findTask(Tasks& tasks, const TaskKey& task, std::uint32_t created) {
  const auto it = tasks.find(task);
  if (it != tasks.end() && it->second.created == created) return it;
  return absl::NotFoundError(fmt::format("{} (created {}) is not there", toString(task), created));
}

}  // namespace

v1::TrainingJob fakeJob(const std::string& name, int ps, int workers) {
  v1::TrainingJob job;
  v1::ObjectMeta* meta = job.mutable_metadata();
  meta->set_name(name);
  meta->set_namespace_("default");
  meta->set_uid(fmt::format("uid-{}", name));
  meta->set_generation(1);
  v1::JobSpec* spec = job.mutable_spec();
  spec->set_strategy("ParameterServer");
  spec->mutable_ps()->set_replicas(ps);
  spec->mutable_ps()->set_restart_policy("ExitCode");
  spec->mutable_worker()->set_replicas(workers);
  spec->mutable_worker()->set_restart_policy("ExitCode");
  spec->mutable_training()->mutable_model()->set_name("mlp");
  spec->mutable_run_policy()->set_backoff_limit(6);
  spec->mutable_run_policy()->set_clean_pod_policy("Running");
  spec->mutable_run_policy()->set_success_policy("Chief");
  return job;
}

std::optional<FakeCall> parseFakeCall(std::string_view name) {
  static const std::map<std::string_view, FakeCall> kCalls = {
      {"watch", FakeCall::kWatch},   {"list", FakeCall::kList},     {"observe", FakeCall::kObserve},
      {"create", FakeCall::kCreate}, {"delete", FakeCall::kDelete}, {"publish", FakeCall::kPublish},
      {"status", FakeCall::kStatus}, {"event", FakeCall::kEvent},   {"quota", FakeCall::kQuota}};
  const auto it = kCalls.find(name);
  return it == kCalls.end() ? std::nullopt : std::optional(it->second);
}

JobKey FakeCluster::addJob(const v1::TrainingJob& job) {
  const JobKey key = keyOf(job);
  {
    const Lock lock(mutex_);
    jobs_[key] = Record{};
    jobs_[key].job = job;
  }
  notify(key);
  return key;
}

void FakeCluster::removeJob(const JobKey& key) {
  {
    const Lock lock(mutex_);
    jobs_.erase(key);
  }
  notify(key);
}

void FakeCluster::editSpec(const JobKey& key, const std::function<void(v1::JobSpec*)>& edit) {
  change(key, [&edit](Record& record) {
    edit(record.job.mutable_spec());
    record.job.mutable_metadata()->set_generation(record.job.metadata().generation() + 1);
    ++record.version;
  });
}

void FakeCluster::markDeleted(const JobKey& key, const std::string& time) {
  change(key, [&time](Record& record) {
    record.job.mutable_metadata()->set_deletion_timestamp(time);
    ++record.version;
  });
}

void FakeCluster::touch(const JobKey& key) {
  change(key, [](Record& record) { ++record.version; });
}

void FakeCluster::setLife(const FakeLife& life) {
  const Lock lock(mutex_);
  life_ = life;
}

void FakeCluster::setAddress(const JobKey& key, const TaskKey& task) {
  changeTask(key, task, giveAddress);
}

void FakeCluster::setReady(const JobKey& key, const TaskKey& task, bool ready) {
  changeTask(key, task, [ready](TaskObservation& t) {
    t.phase = TaskPhase::kRunning;
    t.ready = ready;
    t.waiting.reset();
    if (t.port == 0) giveAddress(t);
  });
}

void FakeCluster::setRestarts(const JobKey& key, const TaskKey& task, std::uint32_t restarts) {
  changeTask(key, task, [restarts](TaskObservation& t) {
    t.restarts = restarts;
    t.ready = false;
  });
}

void FakeCluster::setDeletionCost(const JobKey& key, const TaskKey& task, std::int32_t cost) {
  changeTask(key, task, [cost](TaskObservation& t) { t.deletion_cost = cost; });
}

void FakeCluster::annotate(const JobKey& key, const std::string& name, const std::string& value) {
  change(key, [&](Record& record) {
    (*record.job.mutable_metadata()->mutable_annotations())[name] = value;
  });
}

void FakeCluster::setLingers(const JobKey& key, const TaskKey& task) {
  changeTask(key, task, [](TaskObservation& t) { t.lingers = true; });
}

void FakeCluster::setWaiting(const JobKey& key, const TaskKey& task, const TaskWait& wait) {
  changeTask(key, task, [&wait](TaskObservation& t) { t.waiting = wait; });
}

void FakeCluster::setObstacle(const JobKey& key, const std::optional<TaskWait>& obstacle) {
  change(key, [&obstacle](Record& record) { record.obstacle = obstacle; });
}

void FakeCluster::setPassingStorage(const JobKey& key, const std::optional<TaskWait>& why) {
  change(key, [&why](Record& record) { record.passing_storage = why; });
}

void FakeCluster::setRefusal(const JobKey& key, const std::optional<TaskWait>& refusal) {
  change(key, [&refusal](Record& record) { record.refusal = refusal; });
}

void FakeCluster::setImages(const JobKey& key, const v1::Images& images) {
  change(key, [&images](Record& record) { record.images = images; });
}

void FakeCluster::exitTask(const JobKey& key, const TaskKey& task, int code,
                           const std::string& cause, UnixMillis at) {
  changeTask(key, task, [&](TaskObservation& t) {
    const std::string text = cause.empty() ? fmt::format("exit code {}", code)
                                           : fmt::format("exit code {}: {}", code, cause);
    endTask(t, code == 0 ? TaskPhase::kSucceeded : TaskPhase::kFailed, {code, 0, text, at});
  });
}

void FakeCluster::killTask(const JobKey& key, const TaskKey& task, int signal) {
  changeTask(key, task, [signal](TaskObservation& t) {
    endTask(t, TaskPhase::kFailed, {0, signal, fmt::format("killed by signal {}", signal)});
  });
}

void FakeCluster::disruptTask(const JobKey& key, const TaskKey& task, const std::string& cause) {
  changeTask(key, task, [&cause](TaskObservation& t) {
    endTask(t, TaskPhase::kFailed, {0, 15, cause});
    t.disrupted = true;
    t.conditions = {{"DisruptionTarget", "True"}};
  });
}

void FakeCluster::beginDelete(const JobKey& key, const TaskKey& task, UnixMillis due) {
  changeTask(key, task, [due](TaskObservation& t) {
    t.terminating = true;
    t.end_due = due;
    t.ready = false;
  });
}

void FakeCluster::evict(const JobKey& key, const TaskKey& task) {
  changeTask(key, task, [](TaskObservation& t) { t.conditions = {{"DisruptionTarget", "True"}}; });
  beginDelete(key, task);
}

void FakeCluster::finishDelete(const JobKey& key, const TaskKey& task) {
  change(key, [&task](Record& record) {
    TY_CHECK(record.tasks.contains(task) && record.tasks[task].terminating, "it is terminating");
    if (record.tasks[task].held) {
      endTask(record.tasks[task], TaskPhase::kFailed, {0, 15, "killed by signal 15"});
    } else {
      record.tasks.erase(task);
    }
  });
}

void FakeCluster::vanishTask(const JobKey& key, const TaskKey& task) {
  change(key, [&task](Record& record) {
    TY_CHECK(record.tasks.erase(task) == 1, "only a task that is there can vanish");
  });
}

void FakeCluster::failNext(FakeCall call, const Status& status, int times, bool applied) {
  const Lock lock(mutex_);
  failures_[call] = {status, times, applied};
}

void FakeCluster::dieAfterWrites(int writes) {
  const Lock lock(mutex_);
  writes_left_ = writes;
}

void FakeCluster::revive() {
  const Lock lock(mutex_);
  writes_left_.reset();
}

bool FakeCluster::dead() const {
  const Lock lock(mutex_);
  return writes_left_ && *writes_left_ <= 0;
}

int FakeCluster::writes() const {
  const Lock lock(mutex_);
  return writes_;
}

std::vector<std::string> FakeCluster::takeTrace() {
  const Lock lock(mutex_);
  return std::exchange(trace_, {});
}

Status FakeCluster::takeFailure(FakeCall call, bool* applied) {
  *applied = false;
  if (writes_left_ && *writes_left_ <= 0) return absl::UnavailableError("the caller is dead");
  const auto it = failures_.find(call);
  if (it == failures_.end() || it->second.times == 0) return absl::OkStatus();
  --it->second.times;
  *applied = it->second.applied;
  return it->second.status;
}

Status FakeCluster::watch(std::function<void(const JobKey&)> changed) {
  const Lock lock(mutex_);
  bool applied = false;
  TY_RETURN_IF_ERROR(takeFailure(FakeCall::kWatch, &applied));
  watchers_.push_back(std::move(changed));
  return absl::OkStatus();
}

StatusOr<std::vector<JobKey>> FakeCluster::listJobs() {
  const Lock lock(mutex_);
  bool applied = false;
  TY_RETURN_IF_ERROR(takeFailure(FakeCall::kList, &applied));
  std::vector<JobKey> keys;
  for (const auto& [key, record] : jobs_) keys.push_back(key);
  return keys;
}

StatusOr<JobObservation> FakeCluster::observe(const JobKey& key) {
  const Lock lock(mutex_);
  bool applied = false;
  TY_RETURN_IF_ERROR(takeFailure(FakeCall::kObserve, &applied));
  const auto it = jobs_.find(key);
  if (it == jobs_.end()) {
    return absl::NotFoundError(fmt::format("job {} is not there", toString(key)));
  }
  JobObservation observed;
  observed.job = it->second.job;
  observed.job.mutable_metadata()->set_resource_version(fmt::format("{}", it->second.version));
  for (const auto& [task_key, task] : it->second.tasks) observed.tasks.push_back(task);
  observed.membership = it->second.membership;
  observed.obstacle = it->second.obstacle;
  observed.passing_storage = it->second.passing_storage;
  observed.refusal = it->second.refusal;
  observed.quota = it->second.quota;
  for (const auto& [task_key, names] : it->second.claims) {
    const v1::JobSpec& spec = observed.job.spec();
    if (claimsGoWithTheTask(spec, v1::ROLE_PS) || claimsGoWithTheTask(spec, v1::ROLE_WORKER))
      observed.volume_claims.push_back(task_key);
  }
  observed.images = it->second.images;
  return observed;
}

Status FakeCluster::doWrite(const v1::TrainingJob& job, FakeCall call,
                            const std::function<StatusOr<std::string>(Record&)>& write) {
  const JobKey key = keyOf(job);
  Status failure;
  {
    const Lock lock(mutex_);
    bool applied = false;
    failure = takeFailure(call, &applied);
    if (!failure.ok() && !applied) return failure;
    const auto it = jobs_.find(key);
    if (it == jobs_.end() || it->second.job.metadata().uid() != job.metadata().uid()) {
      return absl::NotFoundError(fmt::format("job {} is not there", toString(key)));
    }
    TY_ASSIGN_OR_RETURN(const std::string line, write(it->second));
    if (!line.empty()) {
      trace_.push_back(line);
      ++writes_;
      if (writes_left_) --*writes_left_;
    }
  }
  notify(key);
  return failure;
}

Status FakeCluster::createTask(const v1::TrainingJob& job, const TaskKey& task,
                               std::uint32_t created) {
  return doWrite(job, FakeCall::kCreate, [&](Record& record) -> StatusOr<std::string> {
    if (record.tasks.contains(task)) {
      return absl::AlreadyExistsError(fmt::format("{} is there", toString(task)));
    }
    for (const auto& claim : claimTemplates(record.job.spec(), task.role)) {
      std::vector<std::string>& names = record.claims[task];
      const std::string& name = claim.metadata().name();
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    TaskObservation& made = record.tasks[task];
    made.key = task;
    made.created = created;
    made.held = life_.held;
    if (life_.address_at_create) giveAddress(made);
    if (life_.ready_at_create) {
      made.phase = TaskPhase::kRunning;
      made.ready = true;
    }
    return fmt::format("create {} (created {})", toString(task), created);
  });
}

Status FakeCluster::deleteTask(const v1::TrainingJob& job, const TaskKey& task,
                               std::uint32_t created) {
  return doWrite(job, FakeCall::kDelete, [&](Record& record) -> StatusOr<std::string> {
    TY_ASSIGN_OR_RETURN(const auto it, findTask(record.tasks, task, created));
    const std::string line = fmt::format("delete {} (created {})", toString(task), created);
    if (life_.slow_delete && !hasEnded(it->second)) {
      if (it->second.terminating) return std::string();
      it->second.terminating = true;
      it->second.ready = false;
    } else {
      record.tasks.erase(it);
    }
    return line;
  });
}

Status FakeCluster::forgetTask(const v1::TrainingJob& job, const TaskKey& task,
                               std::uint32_t created) {
  return doWrite(job, FakeCall::kDelete, [&](Record& record) -> StatusOr<std::string> {
    TY_ASSIGN_OR_RETURN(const auto it, findTask(record.tasks, task, created));
    record.tasks.erase(it);
    return fmt::format("forget {} (created {})", toString(task), created);
  });
}

Status FakeCluster::releaseTask(const v1::TrainingJob& job, const TaskKey& task,
                                std::uint32_t created) {
  return doWrite(job, FakeCall::kDelete, [&](Record& record) -> StatusOr<std::string> {
    TY_ASSIGN_OR_RETURN(const auto it, findTask(record.tasks, task, created));
    if (!it->second.held) return std::string();
    it->second.held = false;
    if (it->second.terminating && hasEnded(it->second)) record.tasks.erase(it);
    return fmt::format("release {} (created {})", toString(task), created);
  });
}

Status FakeCluster::dropVolumeClaims(const v1::TrainingJob& job, const TaskKey& task) {
  return doWrite(job, FakeCall::kDelete, [&](Record& record) -> StatusOr<std::string> {
    if (record.claims.erase(task) == 0) return std::string();
    return fmt::format("drop the volume claims of {}", toString(task));
  });
}

std::vector<std::string> FakeCluster::volumeClaims(const JobKey& key) const {
  const Lock lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [task, names] : jobs_.at(key).claims) {
    for (const std::string& name : names)
      all.push_back(fmt::format("{}-{}-{}", name, key.name, toString(task)));
  }
  return all;
}

Status FakeCluster::deleteJob(const v1::TrainingJob& job) {
  const Status status = doWrite(job, FakeCall::kDelete, [](Record&) -> StatusOr<std::string> {
    return std::string("delete the job");
  });
  if (status.ok()) removeJob(keyOf(job));
  return status;
}

Status FakeCluster::publish(const v1::TrainingJob& job, const v1::Membership& membership) {
  return doWrite(job, FakeCall::kPublish, [&](Record& record) -> StatusOr<std::string> {
    const std::int64_t revision = record.membership ? record.membership->revision() : 0;
    const bool same = record.membership &&
                      record.membership->SerializeAsString() == membership.SerializeAsString();
    if (same) return std::string();
    if (membership.revision() != revision + 1) {
      return absl::FailedPreconditionError(fmt::format(
          "revision {} after {}, or with other content", membership.revision(), revision));
    }
    record.membership = membership;
    return describe(membership);
  });
}

Status FakeCluster::writeStatus(const v1::TrainingJob& job, const v1::JobStatus& status) {
  return doWrite(job, FakeCall::kStatus, [&](Record& record) -> StatusOr<std::string> {
    const std::string version = fmt::format("{}", record.version);
    if (job.metadata().resource_version() != version) {
      return absl::FailedPreconditionError(fmt::format("the record has version {}, read was {}",
                                                       version, job.metadata().resource_version()));
    }
    const auto lines = diffStatus(record.job.status(), status);
    *record.job.mutable_status() = status;
    ++record.version;
    return lines.empty() ? std::string("status") : "status\n  " + join(lines, "\n  ");
  });
}

Status FakeCluster::recordEvent(const v1::TrainingJob& job, std::string_view type,
                                std::string_view reason, std::string_view message) {
  return doWrite(job, FakeCall::kEvent, [&](Record&) -> StatusOr<std::string> {
    return fmt::format("event {} {}: {}", type, reason, message);
  });
}

void FakeCluster::change(const JobKey& key, const std::function<void(Record&)>& change) {
  {
    const Lock lock(mutex_);
    TY_CHECK(jobs_.contains(key), "the test names a job that it added");
    change(jobs_[key]);
  }
  notify(key);
}

void FakeCluster::changeTask(const JobKey& key, const TaskKey& task,
                             const std::function<void(TaskObservation&)>& change_one) {
  change(key, [&](Record& record) {
    TY_CHECK(record.tasks.contains(task), "the test names a task that is there");
    change_one(record.tasks[task]);
  });
}

void FakeCluster::notify(const JobKey& key) {
  std::vector<std::function<void(const JobKey&)>> watchers;
  {
    const Lock lock(mutex_);
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) watcher(key);
}

}  // namespace trainyard::control
