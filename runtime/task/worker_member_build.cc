// How a member is made, and who puts its gradients together with those of others: parameter
// servers, or the workers themselves.
#include <algorithm>
#include <utility>

#include "base/core/annotations.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/rpc/status_map.h"
#include "runtime/catalog/memory.h"
#include "runtime/catalog/wire_type.h"
#include "runtime/coordinator/names.h"
#include "runtime/ps/ps_synchronizer.h"
#include "runtime/ring/ring_synchronizer.h"
#include "runtime/task/coordinator_host.h"
#include "runtime/task/finish_record.h"
#include "runtime/task/shard_files.h"
#include "runtime/task/shard_server.h"
#include "runtime/task/worker_member.h"

namespace trainyard::runtime {
namespace {

// Steps between two lines of metrics.
constexpr std::int64_t kLogEvery = 5;
// Chunks to one server that it has not received yet: enough to keep two connections busy.
constexpr std::size_t kWindow = 16;
// Chunks to one server that it has not answered yet, where workers keep abreast of each other: as
// few bytes as keep a short link busy, because nothing comes back before the slowest worker has
// sent as much (measured with seven workers at links of 1 Gbit/s, and between processes of one
// machine). Long links get more (ps::LinkEstimate).
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
  for (const Chunk& chunk : placement.chunks)
    largest = std::max(largest, chunk.elements * wireBytes(training));
  const auto fitting = static_cast<std::size_t>(kAbreastBytes / largest);
  config.window = std::clamp(fitting, kLeastAbreast, kWindow);
  config.chunk_bytes = static_cast<std::uint64_t>(largest);
  config.abreast_bytes = kUnderWayToMany;
}

// Where whoever computes makes the update: a rule without slots, so that none are made, moved or
// saved.
v1::OptimizerSpec unusedOptimizer() {
  v1::OptimizerSpec spec;
  spec.set_name("SGD");
  spec.set_learning_rate(kDefaultLearningRate);
  return spec;
}

void setWire(const v1::AllReduceSpec& spec, ring::ExchangeOptions& options) {
  const ElementType wire = wireType(spec.wire_type());
  if (wire != ElementType::kFloat32) options.wire = wire;
  if (spec.has_bucket_bytes()) {
    options.buckets = ring::bucketsOf(spec.bucket_bytes());
  } else {
    options.sizes_to_try.assign(std::begin(kBucketSizes), std::end(kBucketSizes));
  }
}

}  // namespace

WorkerMember::WorkerMember(const TaskOptions& options, WorkerModel model)
    : options_(options), model_(std::move(model)), membership_(options.membership) {}

StatusOr<std::unique_ptr<WorkerMember>> WorkerMember::make(const TaskOptions& options,
                                                           WorkerModel model) {
  std::unique_ptr<WorkerMember> member(new WorkerMember(options, std::move(model)));
  TY_RETURN_IF_ERROR(member->build());
  return member;
}

Status WorkerMember::build() {
  const v1::Training& training = options_.job.spec().training();
  TY_RETURN_IF_ERROR(place());
  TY_ASSIGN_OR_RETURN(digest_, jobDigest(options_.job));
  const std::string metrics_dir = options_.id.index() == 0 ? options_.job_dir : "";
  TY_ASSIGN_OR_RETURN(
      log_, RunLog::open(options_.task_dir, metrics_dir, LearningRate(training.optimizer()),
                         kLogEvery, *options_.clock));
  const std::string place = options_.recordsPlace();
  if (!metrics_dir.empty() && !place.empty())
    kept_ = std::make_unique<KeptRecords>(
        KeptRecords::Options{.job_dir = options_.job_dir, .place = place});
  openTimeline();
  // Which life of the coordinator's task made the record is not known here.
  finished_ = readFinish(options_.checkpointDir(), options_.job, /*created=*/0,
                         membership_.steps() > 0 ? membership_.steps() : training.steps());
  TY_RETURN_IF_ERROR(isRing(options_.job) ? synchronizeInRing() : synchronizeOverServers());
  return hostsCoordinator(options_) ? hostCoordinator() : absl::OkStatus();
}

// Training goes on without it.
void WorkerMember::openTimeline() {
  const auto& annotations = options_.job.metadata().annotations();
  const auto wanted = annotations.find(kTimelineAnnotation);
  if (wanted == annotations.end() || wanted->second != "true") return;
  const auto index = options_.id.index();
  auto opened = Timeline::open(options_.job_dir + "/timeline.json", static_cast<int>(index),
                               memberName(options_.id.role(), index, processesPerPod(options_.job)),
                               *options_.clock);
  if (opened.ok()) {
    timeline_ = *std::move(opened);
  } else {
    TY_WARN("no timeline: {}", fromAbsl(opened.status().message()));
  }
}

// A worker of an all-reduce holds what a single server would.
Status WorkerMember::place() {
  const v1::JobSpec& spec = options_.job.spec();
  if (isRing(options_.job)) {
    v1::PlacementSpec all;
    all.set_strategy("Balanced");
    TY_ASSIGN_OR_RETURN(placement_, runtime::place(all, model_.layout.variables, 1));
    return absl::OkStatus();
  }
  const GridServers grid = gridServers(options_.job, membership_);
  TY_ASSIGN_OR_RETURN(placement_, runtime::place(spec.training().placement(),
                                                 model_.layout.variables, grid.start, grid.most));
  return absl::OkStatus();
}

void WorkerMember::poke() {
  if (link_ != nullptr) link_->poke();
}

Status WorkerMember::synchronizeOverServers() {
  const v1::Training& training = options_.job.spec().training();
  log_->setPlacement(placement_);
  ps::PsSynchronizerOptions sync;
  TY_ASSIGN_OR_RETURN(sync.access,
                      dataAccess(options_, {v1::ROLE_WORKER, options_.id.index(), options_.self}));
  sync.share_memory = training.shared_memory() != "Never";
  sync.wire = wireType(training.wire_type());
  sync.worker.job_uid = options_.job.metadata().uid();
  sync.worker.index = options_.id.index();
  sync.worker.self = options_.self;
  sync.worker.evaluates = model_.evaluation_samples > 0;
  sync.worker.evaluate_every = training.evaluate_every_steps();
  sync.worker.asynchronous = isAsynchronous(training.update());
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
  if (!model_.tables.empty()) {
    const ps::RowGrid grid(placement_.chunks.size(), placement_.num_ps);
    sync.worker.ps_of_part = grid.psOfPart();
    sync.rows = ps::RowLinkOptions{model_.tables, grid, model_.row_ids, sync.worker.asynchronous};
  }
  synchronizer_ = std::make_unique<ps::PsSynchronizer>(sync, placement_, model_.weights,
                                                       *options_.clock, [this] { poke(); });
  return absl::OkStatus();
}

// Training goes on without it.
void WorkerMember::startKeeper() {
  const bool replicated = keepsReplicas(options_.job.spec());
  const bool wanted = options_.id.index() == 0 && !isRing(options_.job) && replicated;
  if (!wanted) return;
  auto keeper = ReplicaKeeper::start(options_, model_.layout, placement_, [this] { poke(); });
  if (keeper.ok()) {
    keeper_ = *std::move(keeper);
  } else {
    TY_WARN("the weights of an only parameter server are not kept here: {}",
            fromAbsl(keeper.status().message()));
  }
}

Status WorkerMember::synchronizeInRing() {
  const v1::Training& training = options_.job.spec().training();
  TY_ASSIGN_OR_RETURN(optimizer_, model_.own_update ? makeOptimizer(unusedOptimizer())
                                                    : makeOptimizer(training.optimizer()));
  TY_RETURN_IF_ERROR(makeStoredFolder(options_.checkpointDir()));
  ring::RingSynchronizerOptions sync;
  sync.worker.index = options_.id.index();
  sync.worker.evaluates = model_.evaluation_samples > 0;
  sync.worker.evaluate_every = training.evaluate_every_steps();
  sync.worker.tells_standing = model_.own_update || model_.state != nullptr;
  sync.exchange.bind = options_.bind;
  sync.exchange.token = options_.token;
  TY_ASSIGN_OR_RETURN(sync.exchange.encryption, dataEncryption(options_));
  sync.exchange.share_memory = training.shared_memory() != "Never";
  sync.exchange.deterministic = training.deterministic();
  sync.exchange.device = model_.device;
  setWire(training.all_reduce(), sync.exchange);
  if (timeline_ != nullptr) sync.exchange.span = [this](const Span& span) { timeline_->add(span); };
  sync.clip_norm = training.optimizer().clip_norm();
  sync.by_rows = model_.by_rows;
  sync.state = model_.state;
  if (options_.id.index() == 0) sync.beside = model_.beside;
  sync.processes_per_pod = processesPerPod(options_.job);
  if (finished_) sync.patience = kOverPatience;
  sync.load = [this](const v1::EpochInfo& epoch, const LoadChunk& load) -> Status {
    TY_ASSIGN_OR_RETURN(const EpochStart start,
                        openStart(options_, placement_, *optimizer_, {}, epoch));
    return loadStart(options_, start, model_.layout, placement_, *optimizer_, 0, load);
  };
  sync.write = [this](const Snapshot& snapshot) {
    return writeSnapshot(options_.checkpointDir(), placement_, *optimizer_, {}, options_.id,
                         options_.self, snapshot);
  };
  auto made = std::make_unique<ring::RingSynchronizer>(
      sync, placement_, model_.weights, *optimizer_, LearningRate(training.optimizer()),
      *options_.clock, [this] { poke(); });
  TY_RETURN_IF_ERROR(made->open());
  commit_ = made.get();
  synchronizer_ = std::move(made);
  return absl::OkStatus();
}

Status WorkerMember::hostCoordinator() {
  // Before the coordinator claims the checkpoints: a second start by mistake ends here.
  TY_ASSIGN_OR_RETURN(UniqueFd listener, TaskServer::listen(taskServerOptions(options_)));
  TY_ASSIGN_OR_RETURN(
      coordinator_,
      startCoordinator(options_, digest_, placement_, *optimizer_,
                       model_.own_update ? "the program's own"
                                         : options_.job.spec().training().optimizer().name()));
  std::vector<grpc::Service*> services = {coordinator_.get()};
  if (coordinatorHasDisk(options_.job)) {
    files_ = serveFiles(options_);
    services.push_back(files_.get());
  }
  TY_ASSIGN_OR_RETURN(
      server_, TaskServer::start(taskServerOptions(options_), services, {}, std::move(listener)));
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
