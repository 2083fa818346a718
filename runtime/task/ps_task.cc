#include "runtime/task/ps_task.h"

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/log_context.h"
#include "base/core/strings.h"
#include "base/metrics/bucket_message.h"
#include "base/process/files.h"
#include "base/rpc/channel.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/coordinator/names.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_fetch.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/task/coordinator_host.h"
#include "runtime/task/memory_check.h"
#include "runtime/task/shard_files.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(200);
// Between two questions for a chunk that did not come.
constexpr Duration kFetchPause = std::chrono::milliseconds(50);

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
  const GridServers grid = gridServers(options_.job, membership_);
  TY_ASSIGN_OR_RETURN(placement_,
                      place(training.placement(), model_.variables, grid.start, grid.most));
  epoch_placement_ = placement_;
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
  // Without common steps workers clip what they push.
  if (!config.asynchronous) config.clip_norm = training.optimizer().clip_norm();
  shard_ = std::make_unique<ps::Shard>(config, placement_, *optimizer_,
                                       LearningRate(training.optimizer()));
  machine_ = std::make_unique<ps::PsMachine>(*shard_);
  service_ = std::make_unique<ps::PsService>(
      *shard_, options_.id, options_.self, options_.token, *options_.clock, [this] { wake(); },
      [this] { link_->poke(); }, config.job_uid);
  replicas_ = std::make_unique<ps::ReplicaLink>(
      ps::ReplicaLink::Options{.token = options_.token, .ps = options_.id.index()}, *options_.clock,
      [this](const v1::ChunkRequestHeader& update) { service_->replicated(update); });
  service_->setReplicator(
      [this](std::vector<ps::ReplicaUpdate> updates) { replicas_->send(std::move(updates)); });
  return makeDirectories(options_.checkpointDir());
}

Status PsTask::listen() {
  grpc::ServerBuilder builder;
  applyServerDefaults(builder);
  int port = 0;
  const std::string address = fmt::format("{}:{}", options_.bind, options_.port);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service_.get());
  if (hostsCoordinator(options_)) {
    TY_ASSIGN_OR_RETURN(coordinator_, startCoordinator(options_, digest_, placement_, *optimizer_));
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
  if (replicas_ != nullptr) replicas_->close();
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
    if (link_ != nullptr)
      link_->setAddress(coordinatorAddress(options_.job, directive.membership()));
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
    was_active_ = was_active_ || machine_->serves() || machine_->over();
    report.set_ready(was_active_);
    report.set_message(machine_->view().waiting_for());
    report.set_steps(machine_->view().steps());
  }
  report.set_step(std::max<std::int64_t>(0, state.min_version()));
  setLogProgress(report.epoch(), report.step());
  report.set_requests(service_->requests());
  report.set_parameter_bytes(shard_->parameterBytes());
  service_->traffic().fill(report);
  service_->replicaTraffic().fill(report);
  if (coordinator_ != nullptr) *report.mutable_job() = coordinator_->progress();
  return report;
}

v1::Measurements PsTask::measurements() const {
  v1::Measurements measured = identifiedMeasurements(options_);
  setBuckets(*measured.mutable_request_times(), service_->requestTimes());
  if (coordinator_ != nullptr) coordinator_->measure(measured);
  return measured;
}

// What other servers hold of what is to be here: chunks, and then replicas, whose own server has
// fetched them by then.
Status PsTask::fetch(const v1::EpochInfo& epoch) {
  ps::FetchOptions options;
  options.token = options_.token;
  options.job_uid = options_.job.metadata().uid();
  options.pause = [&] {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kFetchPause, [&] { return end_; });
    return !end_ && machine_->view().epoch().epoch() == epoch.epoch();
  };
  const int ps = static_cast<int>(options_.id.index());
  const TimePoint begin = options_.clock->now();
  std::vector<ps::FetchedChunk> chunks;
  for (const std::uint32_t chunk : ps::chunksToFetch(epoch, ps))
    chunks.push_back({chunk, epoch.former_ps(static_cast<int>(chunk))});
  TY_RETURN_IF_ERROR(ps::fetchChunks(options, epoch, chunks, *options_.clock,
                                     [&](std::uint32_t chunk, const v1::ChunkContents& contents) {
                                       hitFailpoint("ps.fetch", epoch.first_step());
                                       return shard_->takeOver(chunk, contents);
                                     }));
  shard_->adoptReplicas();
  if (!chunks.empty()) {
    TY_INFO(
        "epoch {}: {} chunks taken over from other servers in {:.3f} s, {} bytes of parameters now",
        epoch.epoch(), chunks.size(), toSeconds(options_.clock->now() - begin),
        shard_->parameterBytes());
  }
  const std::vector<int> servers = ps::serversOf(startMap(), epoch);
  std::vector<ps::FetchedChunk> replicas;
  for (const std::uint32_t chunk : ps::chunksToReplicate(startMap(), epoch, ps))
    replicas.push_back({chunk, servers[chunk], shard_->replicaVersion(chunk)});
  return ps::fetchChunks(options, epoch, replicas, *options_.clock,
                         [&](std::uint32_t chunk, const v1::ChunkContents& contents) {
                           hitFailpoint("ps.fetch.replica", epoch.first_step());
                           return shard_->takeOver(chunk, contents);
                         });
}

// From a checkpoint or the seed: its own chunks and those of which it keeps replicas.
Status PsTask::load(const v1::EpochInfo& epoch) {
  const LoadChunk take = [this](std::uint32_t chunk, std::int64_t version,
                                std::vector<float> weights, std::vector<std::vector<float>> slots) {
    shard_->load(chunk, version, std::move(weights), std::move(slots));
  };
  const int ps = static_cast<int>(options_.id.index());
  TY_RETURN_IF_ERROR(loadStart(options_, model_, epoch_placement_, *optimizer_, ps, epoch, take));
  const std::vector<std::uint32_t> replicas = ps::chunksToReplicate(startMap(), epoch, ps);
  if (replicas.empty()) return absl::OkStatus();
  return loadStart(options_, model_, epoch_placement_, *optimizer_,
                   ps::serversOf(startMap(), epoch)[replicas.front()], epoch, take);
}

std::vector<int> PsTask::startMap() const {
  return initialMap(chunkLoads(placement_), placement_.num_ps).ps;
}

void PsTask::prepare(const v1::EpochInfo& epoch) {
  hitFailpoint("ps.prepare", epoch.first_step());
  const int ps = static_cast<int>(options_.id.index());
  const std::vector<int> map(epoch.chunk_ps().begin(), epoch.chunk_ps().end());
  epoch_placement_ = withChunksAt(placement_, map);
  shard_->assign(ps::serversOf(startMap(), epoch));
  shard_->replicate(ps::chunksToReplicate(startMap(), epoch, ps),
                    ps::replicaTarget(epoch, ps) >= 0);
  replicas_->start(epoch);
  const bool loads = epoch.fresh() || !epoch.restore_manifest().empty();
  const Status loaded = loads ? load(epoch) : fetch(epoch);
  if (!loads && absl::IsCancelled(loaded)) return;
  hitFailpoint("ps.prepared", epoch.first_step());
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
  while (std::optional<Snapshot> snapshot = shard_->takeSnapshot()) {
    const v1::ShardFile file = writeSnapshot(options_.checkpointDir(), epoch_placement_,
                                             *optimizer_, options_.id, options_.self, *snapshot);
    {
      std::lock_guard lock(mutex_);
      machine_->onWritten(file);
      machine_->takeUrgent();
    }
    link_->poke();
  }
  if (shard_->abort()) link_->poke();
  replicas_->tick();
  std::vector<ps::ChunkAnswer> late;
  shard_->onTick(options_.clock->now(), late);
  service_->deliver(std::move(late));
}

Status PsTask::outcome() const {
  std::lock_guard lock(mutex_);
  if (!machine_->over()) return absl::CancelledError("ended before the job was over");
  if (machine_->view().phase() == v1::PHASE_FAILED && !machine_->view().left()) {
    return absl::FailedPreconditionError(machine_->view().failure());
  }
  return absl::OkStatus();
}

Status PsTask::run() {
  agent_ = std::make_unique<AgentLink>(
      options_.agent_target, options_.token, [this] { return runtimeReport(); },
      [this](const v1::RuntimeDirective& d) { onDirective(d); }, [this] { return measurements(); },
      options_.local_agent);
  link_->setAddress(coordinatorAddress(options_.job, membership_));
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
  {
    std::lock_guard lock(mutex_);
    if (machine_->view().left())
      TY_INFO("left on request, the job is at step {}", machine_->view().progress());
  }
  hitFailpoint("ps.finished", shard_->state().min_version());
  link_->flush(std::chrono::seconds(2));  // "leaving", so that nobody waits for this server
  agent_->stop();
  return outcome();
}

}  // namespace trainyard::runtime
