#include "runtime/task/shard_host.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_fetch.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/task/shard_files.h"
#include "runtime/task/shard_server.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(200);
// Between two questions for a chunk that did not come.
constexpr Duration kFetchPause = std::chrono::milliseconds(50);

}  // namespace

ShardHost::ShardHost(const TaskOptions& options, int number, const ModelLayout& layout,
                     const Placement& placement, std::function<void()> poke)
    : options_(options),
      number_(number),
      layout_(layout),
      placement_(placement),
      poke_(std::move(poke)),
      epoch_placement_(std::make_shared<const Placement>(placement)) {}

StatusOr<std::unique_ptr<ShardHost>> ShardHost::make(const TaskOptions& options, int number,
                                                     const ModelLayout& layout,
                                                     const Placement& placement,
                                                     const std::function<void()>& poke) {
  std::unique_ptr<ShardHost> host(new ShardHost(options, number, layout, placement, poke));
  TY_RETURN_IF_ERROR(host->build());
  return host;
}

Status ShardHost::build() {
  const v1::Training& training = options_.job.spec().training();
  TY_ASSIGN_OR_RETURN(optimizer_, makeOptimizer(training.optimizer()));
  ps::ShardConfig config;
  config.job_uid = options_.job.metadata().uid();
  config.self = options_.self;
  config.ps = number_;
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
      *shard_, options_.keys.data, *options_.clock, [this] { wake(); }, poke_);
  transfers_ =
      std::make_unique<ps::TransferService>(*shard_, options_.id, options_.self, config.job_uid);
  replicas_ = std::make_unique<ps::ReplicaLink>(
      ps::ReplicaLink::Options{.access = dataAccess(options_),
                               .ps = static_cast<std::uint32_t>(number_)},
      *options_.clock,
      [this](const v1::ChunkRequestHeader& update) { service_->replicated(update); });
  service_->setReplicator(
      [this](std::vector<ps::ReplicaUpdate> updates) { replicas_->send(std::move(updates)); });
  return absl::OkStatus();
}

ShardHost::~ShardHost() {
  close();
}

void ShardHost::close() {
  end();
  writer_.stop();
  if (replicas_ != nullptr) replicas_->close();
}

void ShardHost::wake() {
  std::lock_guard lock(mutex_);
  wanted_ = true;
  wake_.notify_all();
}

void ShardHost::end() {
  std::lock_guard lock(mutex_);
  end_ = true;
  wake_.notify_all();
}

bool ShardHost::await() {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, kTick, [&] { return wanted_ || end_; });
  wanted_ = false;
  return !end_;
}

void ShardHost::onView(const v1::View& view) {
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
  if (urgent) poke_();
  service_->update();
}

// What other servers hold of what is to be here: chunks, and then replicas, whose own server has
// fetched them by then.
Status ShardHost::fetch(const v1::EpochInfo& epoch) {
  ps::FetchOptions options;
  options.identity = options_.keys.control;
  options.job_uid = options_.job.metadata().uid();
  options.pause = [&] {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kFetchPause, [&] { return end_; });
    return !end_ && machine_->view().epoch().epoch() == epoch.epoch();
  };
  const TimePoint begin = options_.clock->now();
  std::vector<ps::FetchedChunk> chunks;
  for (const std::uint32_t chunk : ps::chunksToFetch(epoch, number_))
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
  for (const std::uint32_t chunk : ps::chunksToReplicate(startMap(), epoch, number_))
    replicas.push_back({chunk, servers[chunk], shard_->replicaVersion(chunk)});
  return ps::fetchChunks(options, epoch, replicas, *options_.clock,
                         [&](std::uint32_t chunk, const v1::ChunkContents& contents) {
                           hitFailpoint("ps.fetch.replica", epoch.first_step());
                           return shard_->takeOver(chunk, contents);
                         });
}

// From a checkpoint or the seed: its own chunks and those of which it keeps replicas.
Status ShardHost::load(const v1::EpochInfo& epoch) {
  const LoadChunk take = [this](std::uint32_t chunk, std::int64_t version,
                                std::vector<float> weights, std::vector<std::vector<float>> slots) {
    shard_->load(chunk, version, std::move(weights), std::move(slots));
  };
  if (number_ != kWorkerKeeper) {
    TY_RETURN_IF_ERROR(
        loadStart(options_, layout_, *epoch_placement_, *optimizer_, number_, epoch, take));
  }
  const std::vector<std::uint32_t> replicas = ps::chunksToReplicate(startMap(), epoch, number_);
  if (replicas.empty()) return absl::OkStatus();
  return loadStart(options_, layout_, *epoch_placement_, *optimizer_,
                   ps::serversOf(startMap(), epoch)[replicas.front()], epoch, take);
}

std::vector<int> ShardHost::startMap() const {
  return initialMap(chunkLoads(placement_), placement_.num_ps).ps;
}

void ShardHost::prepare(const v1::EpochInfo& epoch) {
  hitFailpoint("ps.prepare", epoch.first_step());
  const std::vector<int> map(epoch.chunk_ps().begin(), epoch.chunk_ps().end());
  epoch_placement_ = std::make_shared<const Placement>(withChunksAt(placement_, map));
  shard_->assign(ps::serversOf(startMap(), epoch));
  shard_->replicate(ps::chunksToReplicate(startMap(), epoch, number_),
                    ps::replicaTarget(epoch, number_) >= 0);
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
  if (urgent) poke_();
}

// Chunk by chunk, until something else is to be done.
void ShardHost::takeSnapshots() {
  const auto others_wait = [this] {
    std::lock_guard lock(mutex_);
    return wanted_ || end_;
  };
  while (shard_->captureNext() && !others_wait()) {
  }
  bool taken = false;
  while (std::optional<Snapshot> snapshot = shard_->takeSnapshot()) {
    std::lock_guard lock(mutex_);
    // Of an epoch that has ended nobody wants any.
    std::erase_if(to_write_,
                  [&](const ToWrite& one) { return one.snapshot.epoch != snapshot->epoch; });
    to_write_.push_back({*std::move(snapshot), epoch_placement_});
    writer_.add([this] { writeNext(); });
    taken = true;
  }
  if (taken) poke_();  // pushes may wait for it
}

void ShardHost::writeNext() {
  ToWrite next;
  {
    std::lock_guard lock(mutex_);
    if (to_write_.empty()) return;
    next = std::move(to_write_.front());
    to_write_.pop_front();
  }
  const v1::ShardFile file = writeSnapshot(options_.checkpointDir(), *next.placement, *optimizer_,
                                           options_.id, options_.self, next.snapshot);
  {
    std::lock_guard lock(mutex_);
    machine_->onWritten(file);
    machine_->takeUrgent();
  }
  poke_();
}

void ShardHost::work() {
  std::optional<v1::EpochInfo> epoch;
  {
    std::lock_guard lock(mutex_);
    epoch = machine_->takePrepare();
  }
  if (epoch) prepare(*epoch);
  service_->update();
  takeSnapshots();
  if (shard_->abort()) poke_();
  replicas_->tick();
  std::vector<ps::ChunkAnswer> late;
  shard_->onTick(options_.clock->now(), late);
  service_->deliver(std::move(late));
}

}  // namespace trainyard::runtime
