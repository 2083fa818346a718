// Who puts a worker's gradients together with those of others: parameter servers, or the workers
// themselves.
#include <algorithm>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/rpc/status_map.h"
#include "runtime/coordinator/names.h"
#include "runtime/placement/placement_table.h"
#include "runtime/ps/ps_synchronizer.h"
#include "runtime/ring/ring_synchronizer.h"
#include "runtime/task/coordinator_host.h"
#include "runtime/task/exchange_device.h"
#include "runtime/task/shard_files.h"
#include "runtime/task/shard_server.h"
#include "runtime/task/worker_task.h"

namespace trainyard::runtime {
namespace {

// Chunks to one server that it has not received yet: enough to keep two connections busy.
constexpr std::size_t kWindow = 16;
// Chunks to one server that it has not answered yet, where workers keep abreast of each other: as
// few bytes as keep a link busy, because nothing comes back before the slowest worker has sent as
// much (measured with seven workers at links of 1 Gbit/s, and between processes of one machine).
constexpr std::size_t kLeastAbreast = 3;
constexpr std::int64_t kAbreastBytes = 1 << 20;
// Of which the fastest is taken where the job does not say.
constexpr std::int64_t kBucketSizes[] = {1 << 20, 4 << 20, 25 << 20, 64 << 20};
// How long a worker of a job that is over looks for the coordinator, which may have left.
constexpr Duration kOverPatience = std::chrono::seconds(5);

void setWindow(const v1::Training& training, const Placement& placement, ps::WorkerConfig& config) {
  // Clipping answers no chunk before the step's last one is in; asynchronous workers need not wait
  // for each other.
  config.window_until_answer = !config.asynchronous && !(training.optimizer().clip_norm() > 0);
  config.window = kWindow;
  if (!config.window_until_answer) return;
  std::int64_t largest = 1;
  for (const Chunk& chunk : placement.chunks) largest = std::max(largest, chunk.elements * 4);
  const auto fitting = static_cast<std::size_t>(kAbreastBytes / largest);
  config.window = std::clamp(fitting, kLeastAbreast, kWindow);
}

void setWire(const v1::AllReduceSpec& spec, ring::ExchangeOptions& options) {
  if (spec.wire_type() == "Float16") options.wire = ElementType::kFloat16;
  if (spec.wire_type() == "BFloat16") options.wire = ElementType::kBFloat16;
  if (spec.has_bucket_bytes()) {
    options.buckets = ring::bucketsOf(spec.bucket_bytes());
  } else {
    options.sizes_to_try.assign(std::begin(kBucketSizes), std::end(kBucketSizes));
  }
}

}  // namespace

// A worker of an all-reduce holds what a single server would.
Status WorkerTask::place() {
  const v1::JobSpec& spec = options_.job.spec();
  if (isRing(options_.job)) {
    v1::PlacementSpec all;
    all.set_strategy("Balanced");
    TY_ASSIGN_OR_RETURN(placement_, runtime::place(all, layout_.variables, 1));
    return absl::OkStatus();
  }
  const GridServers grid = gridServers(options_.job, membership_);
  TY_ASSIGN_OR_RETURN(placement_, runtime::place(spec.training().placement(), layout_.variables,
                                                 grid.start, grid.most));
  return absl::OkStatus();
}

std::vector<std::span<float>> WorkerTask::weights() {
  std::vector<std::span<float>> weights;
  for (std::size_t v = 0; v < model_->variables().size(); ++v)
    weights.push_back(model_->weights(static_cast<int>(v)));
  return weights;
}

void WorkerTask::poke() {
  if (link_ != nullptr) link_->poke();
}

Status WorkerTask::synchronizeOverServers() {
  const v1::Training& training = options_.job.spec().training();
  log_->setPlacement(placementTable(placement_));
  ps::PsSynchronizerOptions sync;
  sync.access = dataAccess(options_);
  sync.share_memory = training.shared_memory() != "Never";
  sync.worker.job_uid = options_.job.metadata().uid();
  sync.worker.index = options_.id.index();
  sync.worker.self = options_.self;
  sync.worker.evaluates = data_.eval != nullptr;
  sync.worker.evaluate_every = training.evaluate_every_steps();
  sync.worker.asynchronous = isAsynchronous(training.update());
  skips_versions_ = sync.worker.asynchronous || training.update().backup_workers() > 0;
  if (sync.worker.asynchronous) sync.push_clip_norm = training.optimizer().clip_norm();
  setWindow(training, placement_, sync.worker);
  sync.worker.aggregate = std::max(1, training.update().aggregate());
  sync.ask = [this](const v1::TakeRequest& request, auto answer) {
    link_->take(request, [answer](const grpc::Status& status, const v1::TakeReply& reply) {
      answer(fromGrpc(status, "ask"), reply);
    });
  };
  if (finished_) sync.patience = kOverPatience;
  for (const Chunk& chunk : placement_.chunks) sync.worker.ps_of_chunk.push_back(chunk.ps);
  synchronizer_ = std::make_unique<ps::PsSynchronizer>(sync, placement_, weights(), *options_.clock,
                                                       [this] { poke(); });
  return absl::OkStatus();
}

// Training goes on without it.
void WorkerTask::startKeeper() {
  const v1::Training& training = options_.job.spec().training();
  const bool replicated = isAsynchronous(training.update()) ? training.chunk_replicas() == "Always"
                                                            : training.chunk_replicas() != "Never";
  const bool wanted = options_.id.index() == 0 && !isRing(options_.job) && replicated;
  if (!wanted) return;
  auto keeper = ReplicaKeeper::start(options_, layout_, placement_, [this] { poke(); });
  if (keeper.ok()) {
    keeper_ = *std::move(keeper);
  } else {
    TY_WARN("the weights of an only parameter server are not kept here: {}",
            fromAbsl(keeper.status().message()));
  }
}

Status WorkerTask::synchronizeInRing(const ComputeDevice& device) {
  const v1::Training& training = options_.job.spec().training();
  TY_ASSIGN_OR_RETURN(optimizer_, makeOptimizer(training.optimizer()));
  TY_RETURN_IF_ERROR(makeDirectories(options_.checkpointDir()));
  ring::RingSynchronizerOptions sync;
  sync.worker.index = options_.id.index();
  sync.worker.evaluates = data_.eval != nullptr;
  sync.worker.evaluate_every = training.evaluate_every_steps();
  sync.exchange.bind = options_.bind;
  sync.exchange.token = options_.token;
  sync.exchange.share_memory = training.shared_memory() != "Never";
  sync.exchange.deterministic = training.deterministic();
  sync.exchange.device = exchangeDevice(device);
  setWire(training.all_reduce(), sync.exchange);
  if (timeline_ != nullptr) sync.exchange.span = [this](const Span& span) { timeline_->add(span); };
  sync.clip_norm = training.optimizer().clip_norm();
  sync.by_rows = model_->deliverRows();
  for (const int variable : sync.by_rows)
    TY_INFO("{}: only the rows that a step uses are sent", model_->variables()[variable].name);
  sync.processes_per_pod = processesPerPod(options_.job);
  if (finished_) sync.patience = kOverPatience;
  sync.load = [this](const v1::EpochInfo& epoch, const LoadChunk& load) {
    return loadStart(options_, layout_, placement_, *optimizer_, 0, epoch, load);
  };
  sync.write = [this](const Snapshot& snapshot) {
    return writeSnapshot(options_.checkpointDir(), placement_, *optimizer_, options_.id,
                         options_.self, snapshot);
  };
  auto made = std::make_unique<ring::RingSynchronizer>(sync, placement_, weights(), *optimizer_,
                                                       LearningRate(training.optimizer()),
                                                       *options_.clock, [this] { poke(); });
  TY_RETURN_IF_ERROR(made->open());
  synchronizer_ = std::move(made);
  return absl::OkStatus();
}

Status WorkerTask::hostCoordinator() {
  TY_ASSIGN_OR_RETURN(coordinator_, startCoordinator(options_, digest_, placement_, *optimizer_));
  TY_ASSIGN_OR_RETURN(server_,
                      TaskServer::start(taskServerOptions(options_), {coordinator_.get()}));
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
