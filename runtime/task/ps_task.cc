#include "runtime/task/ps_task.h"

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/rpc/channel.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/coordinator/names.h"
#include "runtime/task/finish_record.h"
#include "runtime/task/memory_check.h"
#include "runtime/task/shard_files.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(200);

int replicasOf(const v1::Membership& membership, v1::Role role) {
  int count = 0;
  for (const v1::MemberTask& task : membership.tasks()) count += task.id().role() == role;
  return count;
}

CoordinatorConfig coordinatorConfig(const TaskOptions& options, const std::string& digest) {
  const v1::Training& training = options.job.spec().training();
  CoordinatorConfig config;
  config.job_uid = options.job.metadata().uid();
  config.job_digest = digest;
  config.self = options.self;
  config.steps = training.steps();
  config.passes = training.passes();
  config.batch_size = training.batch_size();
  config.global_batch_size = training.global_batch_size();
  const v1::UpdateSpec& update = training.update();
  config.backup_workers = update.backup_workers();
  if (isAsynchronous(update)) {
    config.tickets.emplace();
    config.tickets->aggregate = std::max(1, update.aggregate());
    if (update.has_max_delay()) config.tickets->max_delay = update.max_delay();
    config.tickets->stop_all = update.stop() == "All";
  }
  config.evaluate_every = training.evaluate_every_steps();
  config.checkpoint_every = std::chrono::seconds(training.checkpoint().every_seconds());
  return config;
}

}  // namespace

PsTask::PsTask(const TaskOptions& options) : options_(options), membership_(options.membership) {}

StatusOr<std::unique_ptr<PsTask>> PsTask::start(const TaskOptions& options) {
  std::unique_ptr<PsTask> task(new PsTask(options));
  TY_RETURN_IF_ERROR(task->build());
  task->link_ = std::make_unique<MemberLink>(
      MemberLink::Options{.token = options.token}, *options.clock,
      [ps = task.get()] { return ps->report(); },
      [ps = task.get()](const v1::View& v) { ps->onView(v); });
  TY_RETURN_IF_ERROR(task->listen());
  return task;
}

Status PsTask::build() {
  const v1::Training& training = options_.job.spec().training();
  const InputShape input = impliedInput(training);
  TY_ASSIGN_OR_RETURN(model_, modelLayout(training.model(), input.shape, input.classes));
  const int servers = replicasOf(membership_, v1::ROLE_PS);
  TY_ASSIGN_OR_RETURN(placement_,
                      place(training.placement(), model_.variables, servers,
                            std::max(servers, options_.job.spec().ps().max_replicas())));
  TY_ASSIGN_OR_RETURN(optimizer_, makeOptimizer(training.optimizer()));
  TY_RETURN_IF_ERROR(checkServerMemory(options_.job.spec(), placement_,
                                       static_cast<int>(options_.id.index()),
                                       static_cast<int>(optimizer_->slots().size())));
  TY_ASSIGN_OR_RETURN(digest_, jobDigest(options_.job));
  ps::ShardConfig config;
  config.job_uid = options_.job.metadata().uid();
  config.self = options_.self;
  config.ps = static_cast<int>(options_.id.index());
  config.deterministic = training.deterministic();
  const v1::UpdateSpec& update = training.update();
  config.asynchronous = isAsynchronous(update);
  config.aggregate = std::max(1, update.aggregate());
  config.clip_norm = training.optimizer().clip_norm();
  shard_ = std::make_unique<ps::Shard>(config, placement_, *optimizer_,
                                       LearningRate(training.optimizer()));
  machine_ = std::make_unique<ps::PsMachine>(*shard_);
  service_ = std::make_unique<ps::PsService>(
      *shard_, options_.id, options_.self, options_.token, *options_.clock, [this] { wake(); },
      [this] { link_->poke(); });
  return makeDirectories(options_.checkpointDir());
}

Status PsTask::startCoordinator(std::optional<Manifest> newest) {
  CoordinatorService::Options options;
  options.token = options_.token;
  options.checkpoint_dir = options_.checkpointDir();
  options.keep = options_.job.spec().training().checkpoint().keep();
  options.complete = [this](Manifest& manifest, const v1::DataFingerprint& data) {
    describeModel(placement_, *optimizer_, options_.job.spec().training().optimizer().name(),
                  manifest);
    manifest.data_sha256 = data.sha256();
    manifest.data_samples = data.samples();
    manifest.max_ps = std::max(placement_.num_ps, options_.job.spec().ps().max_replicas());
  };
  options.evaluated = [](const v1::Evaluation& e) {
    TY_INFO("step {}: accuracy {:.4f} on {} samples", e.version(),
            static_cast<double>(e.hits()) / static_cast<double>(e.samples()), e.samples());
  };
  options.finish = [this](const FinishAction& end) {
    return recordFinish(options_.checkpointDir(), options_.job, end.steps, end.evaluation);
  };
  CoordinatorConfig config = coordinatorConfig(options_, digest_);
  config.used_epoch = highestEpochNamed(options_.checkpointDir());
  config.finished = readFinish(options_.checkpointDir(), options_.job);
  const std::string& init_from = options_.job.spec().training().init_from();
  if (!newest && !init_from.empty()) {
    TY_ASSIGN_OR_RETURN(config.init_manifest, chooseInitManifest(init_from, placement_));
    TY_INFO("the weights start from {}", config.init_manifest);
  }
  coordinator_ = std::make_unique<CoordinatorService>(
      std::move(options),
      Coordinator(config, membership_, std::move(newest), options_.clock->now()), *options_.clock);
  return absl::OkStatus();
}

Status PsTask::listen() {
  grpc::ServerBuilder builder;
  applyServerDefaults(builder);
  int port = 0;
  const std::string address = fmt::format("{}:{}", options_.bind, options_.port);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service_.get());
  if (options_.id.index() == 0) {
    std::vector<std::string> problems;
    std::optional<Manifest> newest;
    for (const Manifest& manifest : listManifests(options_.checkpointDir(), &problems)) {
      // A corrupt file is named and the one before it taken.
      const Status verified = verifyFiles(options_.checkpointDir(), manifest);
      if (verified.ok() && manifest.job_uid == options_.job.metadata().uid()) {
        newest = manifest;
        break;
      }
      TY_WARN("checkpoint {} is left out: {}", manifest.fileName(),
              verified.ok() ? "of another job" : std::string(fromAbsl(verified.message())));
    }
    for (const std::string& problem : problems) TY_WARN("{}", problem);
    TY_RETURN_IF_ERROR(startCoordinator(std::move(newest)));
    builder.RegisterService(coordinator_.get());
  }
  TY_ASSIGN_OR_RETURN(
      server_,
      startServer(builder, taskName(options_.id.role(), options_.id.index()), address, port));
  TY_INFO("listening on {}:{}, {} bytes of parameters", options_.bind, port,
          shard_->parameterBytes());
  return absl::OkStatus();
}

PsTask::~PsTask() {
  if (link_ != nullptr) link_->stop();
  agent_.reset();
  if (coordinator_ != nullptr) coordinator_->stop();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::time_point{});
  server_.reset();
  link_.reset();  // after the server, whose requests may poke it
}

void PsTask::wake() {
  std::lock_guard lock(mutex_);
  wanted_ = true;
  wake_.notify_all();
}

void PsTask::requestEnd() {
  std::lock_guard lock(mutex_);
  end_ = true;
  wake_.notify_all();
}

v1::MemberReport PsTask::report() {
  v1::MemberReport report = identifiedMemberReport(options_, digest_);
  std::lock_guard lock(mutex_);
  report.set_revision(membership_.revision());
  machine_->fillReport(report);
  return report;
}

void PsTask::onView(const v1::View& view) {
  if (!view.refusal().empty()) TY_WARN("refused by the coordinator: {}", view.refusal());
  std::vector<ps::ChunkAnswer> answers;
  bool urgent = false;
  {
    std::lock_guard lock(mutex_);
    machine_->onView(view, answers);
    urgent = machine_->takeUrgent();
    wanted_ = true;
    wake_.notify_all();
  }
  service_->deliver(std::move(answers));
  if (urgent) link_->poke();
  service_->update();
}

void PsTask::onDirective(const v1::RuntimeDirective& directive) {
  if (directive.has_membership()) {
    {
      std::lock_guard lock(mutex_);
      if (directive.membership().revision() <= membership_.revision()) return;
      membership_ = directive.membership();
    }
    if (link_ != nullptr) link_->setAddress(coordinatorAddress(directive.membership()));
    if (coordinator_ != nullptr) coordinator_->setMembership(directive.membership());
  }
  if (directive.stop_job() && coordinator_ != nullptr) coordinator_->requestStop();
}

v1::RuntimeReport PsTask::runtimeReport() {
  v1::RuntimeReport report = identifiedRuntimeReport(options_);
  v1::ShardState state = shard_->state();
  {
    std::lock_guard lock(mutex_);
    report.set_revision(membership_.revision());
    report.set_epoch(machine_->view().epoch().epoch());
    const v1::Phase phase = machine_->view().phase();
    report.set_phase(machine_->over()               ? "Done"
                     : phase == v1::PHASE_ACTIVE    ? "Training"
                     : phase == v1::PHASE_PREPARING ? "Restoring"
                     : phase == v1::PHASE_STOPPING  ? "Stopping"
                                                    : "Joining");
    was_active_ =
        was_active_ || phase == v1::PHASE_ACTIVE || phase == v1::PHASE_STOPPING || machine_->over();
    report.set_ready(was_active_);
    report.set_message(machine_->view().waiting_for());
    report.set_steps(machine_->view().steps());
  }
  report.set_step(std::max<std::int64_t>(0, state.min_version()));
  report.set_requests(service_->requests());
  report.set_parameter_bytes(shard_->parameterBytes());
  service_->traffic().fill(report);
  if (coordinator_ != nullptr) *report.mutable_job() = coordinator_->progress();
  return report;
}

void PsTask::prepare(const v1::EpochInfo& epoch) {
  hitFailpoint("ps.prepare", epoch.first_step());
  Status loaded = absl::OkStatus();
  const int ps = static_cast<int>(options_.id.index());
  if (!epoch.init_manifest().empty()) {
    loaded = loadInitial(epoch.init_manifest(), placement_, *optimizer_, ps, *shard_);
  } else if (epoch.fresh()) {
    loadFresh(placement_, *optimizer_, ps,
              static_cast<std::uint64_t>(options_.job.spec().training().seed()), model_.values,
              *shard_);
  } else if (!epoch.restore_manifest().empty()) {
    loaded = loadCheckpoint(options_.checkpointDir(), epoch.restore_manifest(), placement_,
                            *optimizer_, ps, *shard_);
  }
  bool urgent = false;
  {
    std::lock_guard lock(mutex_);
    machine_->onPrepared(epoch, loaded);
    urgent = machine_->takeUrgent();
  }
  if (urgent) link_->poke();
}

// What is due now: an epoch to prepare, a snapshot to write, calls that wait too long.
void PsTask::work() {
  std::optional<v1::EpochInfo> epoch;
  {
    std::lock_guard lock(mutex_);
    epoch = machine_->takePrepare();
  }
  if (epoch) prepare(*epoch);
  service_->update();
  while (std::optional<ps::Snapshot> snapshot = shard_->takeSnapshot()) {
    const v1::ShardFile file =
        writeSnapshot(options_.checkpointDir(), placement_, *optimizer_,
                      static_cast<int>(options_.id.index()), options_.self, *snapshot);
    {
      std::lock_guard lock(mutex_);
      machine_->onWritten(file);
      machine_->takeUrgent();
    }
    link_->poke();
  }
  if (shard_->abort()) link_->poke();
  std::vector<ps::ChunkAnswer> late;
  shard_->onTick(options_.clock->now(), late);
  service_->deliver(std::move(late));
}

Status PsTask::outcome() const {
  std::lock_guard lock(mutex_);
  if (!machine_->over()) return absl::CancelledError("ended before the job was over");
  if (machine_->view().phase() == v1::PHASE_FAILED) {
    return absl::FailedPreconditionError(machine_->view().failure());
  }
  return absl::OkStatus();
}

Status PsTask::run() {
  agent_ = std::make_unique<AgentLink>(
      options_.agent_target, options_.token, [this] { return runtimeReport(); },
      [this](const v1::RuntimeDirective& d) { onDirective(d); }, options_.local_agent);
  link_->setAddress(coordinatorAddress(membership_));
  agent_->start();
  link_->start();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kTick, [&] { return wanted_ || end_; });
      wanted_ = false;
      if (end_) break;
      if (machine_->over() && coordinator_ == nullptr) break;
    }
    if (coordinator_ != nullptr && coordinator_->finished()) break;
    work();
  }
  hitFailpoint("ps.finished", shard_->state().min_version());
  link_->flush(std::chrono::seconds(2));  // "leaving", so that nobody waits for this server
  agent_->stop();
  return outcome();
}

}  // namespace trainyard::runtime
