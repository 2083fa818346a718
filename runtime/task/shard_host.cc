#include "runtime/task/shard_host.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/core/failpoint.h"
#include "runtime/catalog/wire_type.h"
#include "runtime/task/shard_server.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(200);

}  // namespace

ShardHost::ShardHost(const TaskOptions& options, int number, const ModelLayout& layout,
                     const Placement& placement, std::function<void()> poke)
    : options_(options),
      number_(number),
      layout_(layout),
      placement_(placement),
      poke_(std::move(poke)) {}

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
  config.wire = wireType(training.wire_type());
  const v1::UpdateSpec& update = training.update();
  config.asynchronous = isAsynchronous(update);
  config.aggregate = std::max(1, update.aggregate());
  // Without common steps workers clip what they push.
  if (!config.asynchronous) config.clip_norm = training.optimizer().clip_norm();
  TY_ASSIGN_OR_RETURN(job_tables_, jobTables(training));
  std::unique_ptr<ps::RowShard> rows;
  if (!job_tables_.empty()) {
    const ps::RowGrid grid(placement_.chunks.size(), placement_.num_ps);
    const auto aggregate = config.asynchronous ? std::optional(config.aggregate) : std::nullopt;
    rows = std::make_unique<ps::RowShard>(job_tables_.configs, grid, number_, config.wire,
                                          aggregate, training.checkpoint().has_full());
  }
  shard_ = std::make_unique<ps::Shard>(config, placement_, *optimizer_,
                                       LearningRate(training.optimizer()), std::move(rows));
  machine_ = std::make_unique<ps::PsMachine>(*shard_);
  lanes::End self{v1::ROLE_PS, static_cast<std::uint32_t>(number_), options_.self};
  TY_ASSIGN_OR_RETURN(const ps::DataAccess access, dataAccess(options_, self));
  contents_ = std::make_unique<EpochContents>(options_, number_, layout_, placement_, *optimizer_,
                                              job_tables_, access, *shard_);
  snapshots_ =
      std::make_unique<SnapshotWriter>(options_, *optimizer_, job_tables_.described(), *shard_,
                                       [this](const v1::ShardFile& file) { onWritten(file); });
  copier_ = std::make_unique<PartCopier>(
      *options_.clock,
      [this](const v1::EpochInfo& epoch, const std::function<bool()>& over) {
        return contents_->copy(epoch, over);
      },
      [this](const v1::EpochInfo& epoch) { onCopied(epoch); });
  ps::PsServiceOptions serving = ps::serviceOptions(access.secrets, self, placement_);
  serving.wire = config.wire;
  service_ = std::make_unique<ps::PsService>(
      std::move(serving), *shard_, *options_.clock, [this] { wake(); }, poke_);
  tables_ = std::make_unique<ps::TableService>(*shard_, options_.id, options_.self);
  ps::ReplicaLink::Options copies{
      .access = access, .ps = static_cast<std::uint32_t>(number_), .grid = placement_.num_ps};
  if (training.shared_memory() != "Never") copies.memory = [this] { return service_->memory(); };
  replicas_ = std::make_unique<ps::ReplicaLink>(
      std::move(copies), *options_.clock,
      [this](const v1::ChunkRequestHeader& update) { service_->replicated(update); });
  service_->setReplicator(
      [this](std::vector<ps::ReplicaUpdate> updates) { replicas_->send(std::move(updates)); });
  return service_->start();
}

ShardHost::~ShardHost() {
  close();
}

void ShardHost::close() {
  end();
  copier_.reset();
  if (snapshots_ != nullptr) snapshots_->stop();
  if (service_ != nullptr) service_->close();
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

bool ShardHost::othersWait() const {
  std::lock_guard lock(mutex_);
  return wanted_ || end_;
}

void ShardHost::prepareEpoch() {
  std::optional<v1::EpochInfo> epoch;
  {
    std::lock_guard lock(mutex_);
    epoch = machine_->takePrepare();
  }
  if (!epoch) return;
  copier_->stop();
  hitFailpoint("ps.prepare", epoch->first_step());
  contents_->assign(*epoch);
  replicas_->start(*epoch);
  const Status filled = contents_->fill(*epoch, [&] {
    std::lock_guard lock(mutex_);
    return end_ || machine_->view().epoch().epoch() != epoch->epoch();
  });
  if (absl::IsCancelled(filled)) return;
  hitFailpoint("ps.prepared", epoch->first_step());
  bool urgent = false;
  {
    std::lock_guard lock(mutex_);
    machine_->onPrepared(*epoch, filled);
    urgent = machine_->takeUrgent();
  }
  if (urgent) poke_();
}

void ShardHost::copyParts() {
  std::optional<v1::EpochInfo> epoch;
  {
    std::lock_guard lock(mutex_);
    epoch = machine_->takeCopies();
  }
  if (epoch) copier_->start(*epoch);
}

void ShardHost::onCopied(const v1::EpochInfo& epoch) {
  bool urgent = false;
  {
    std::lock_guard lock(mutex_);
    machine_->onCopied(epoch);
    urgent = machine_->takeUrgent();
  }
  if (urgent) poke_();
}

void ShardHost::takeSnapshots() {
  const bool taken = snapshots_->take(contents_->placement(), [this] { return othersWait(); });
  if (taken) poke_();  // pushes may wait for it
}

void ShardHost::onWritten(const v1::ShardFile& file) {
  {
    std::lock_guard lock(mutex_);
    machine_->onWritten(file);
    machine_->takeUrgent();
  }
  poke_();
}

void ShardHost::tellTrouble() {
  if (shard_->abort()) poke_();
}

// Of replicas whose server does not answer, and of workers whose step does not become complete.
void ShardHost::endLongWaits() {
  replicas_->tick();
  std::vector<ps::ChunkAnswer> late;
  shard_->onTick(options_.clock->now(), late);
  service_->deliver(std::move(late));
}

void ShardHost::work() {
  prepareEpoch();
  copyParts();
  service_->update();
  takeSnapshots();
  tellTrouble();
  endLongWaits();
}

}  // namespace trainyard::runtime
