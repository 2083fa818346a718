#include "runtime/ring/ring_synchronizer.h"

#include <algorithm>
#include <utility>

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime::ring {
namespace {

std::string nameOfRank(const v1::EpochInfo& epoch, int rank, int processes) {
  for (const v1::EpochMember& m : epoch.members()) {
    if (static_cast<int>(m.rank()) == rank) {
      return memberName(m.id().role(), m.id().index(), processes);
    }
  }
  return "";
}

}  // namespace

RingSynchronizer::RingSynchronizer(RingSynchronizerOptions options, const Placement& placement,
                                   std::vector<std::span<float>> weights,
                                   const Optimizer& optimizer, LearningRate learning_rate,
                                   const Clock& clock, std::function<void()> urgent)
    : options_(std::move(options)),
      placement_(placement),
      clock_(clock),
      urgent_(std::move(urgent)),
      replica_(placement, std::move(weights), optimizer, learning_rate, options_.clip_norm) {
  for (const Variable& variable : placement.variables) {
    if (variable.trainable) names_.push_back(variable.name);
  }
}

// A backward pass delivers the last variable first.
Status RingSynchronizer::open() {
  std::vector<collective::PlannedTensor> tensors;
  RingWorkerConfig config = options_.worker;
  for (auto v = placement_.variables.rbegin(); v != placement_.variables.rend(); ++v) {
    if (!v->trainable) continue;
    const auto number = static_cast<int>(names_.size() - 1 - tensors.size());
    const bool by_rows = std::ranges::count(options_.by_rows, number) > 0;
    tensors.push_back(
        {v->name, ElementType::kFloat32, v->elements(), by_rows ? v->shape[0] : std::int64_t{0}});
    config.parameter_bytes += static_cast<std::uint64_t>(v->elements()) * sizeof(float);
  }
  TY_ASSIGN_OR_RETURN(exchange_,
                      Exchange::make(options_.exchange, std::move(tensors),
                                     [this](std::int64_t epoch) { return cancelled(epoch); }));
  config.port = exchange_->port();
  if (options_.state != nullptr) relay_.emplace(*options_.state, *exchange_);
  worker_ = std::make_unique<RingWorker>(config);
  return absl::OkStatus();
}

RingSynchronizer::~RingSynchronizer() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  writer_.stop();
  exchange_.reset();
}

bool RingSynchronizer::cancelled(std::int64_t epoch) const {
  std::lock_guard lock(mutex_);
  return closing_ || worker_->cancelled(epoch);
}

// Wakes the trainer and, where the worker asks for it, the link.
void RingSynchronizer::changed() {
  bool urgent = false;
  {
    std::lock_guard lock(mutex_);
    urgent = worker_->takeUrgent();
  }
  changed_.notify_all();
  if (urgent) urgent_();
}

void RingSynchronizer::onView(const v1::View& view) {
  {
    std::lock_guard lock(mutex_);
    worker_->onView(view);
  }
  changed();
}

void RingSynchronizer::fillReport(v1::MemberReport& report) const {
  std::lock_guard lock(mutex_);
  worker_->fillReport(report);
}

void RingSynchronizer::measure(v1::Measurements& measured) const {
  const ExchangeWork work = exchange_->work();
  const auto add = [&](const char* op, const ExchangeWork::Operation& done, Duration waited) {
    v1::CollectiveWork* to = measured.add_collective();
    to->set_op(op);
    to->set_sent_bytes(done.bytes_sent);
    to->set_received_bytes(done.bytes_received);
    to->set_seconds(toSeconds(done.seconds));
    to->set_waited_seconds(toSeconds(waited));
  };
  add("all_reduce", work.all_reduce, work.waited);
  add("broadcast", work.broadcast, work.broadcast.seconds);
}

bool RingSynchronizer::interrupted() const {
  std::lock_guard lock(mutex_);
  return worker_->interrupted();
}

StatusOr<Turn> RingSynchronizer::next() {
  const TimePoint limit = clock_.now() + options_.patience;
  for (;;) {
    TY_RETURN_IF_ERROR(copyIfDue());
    std::unique_lock lock(mutex_);
    if (const auto epoch = worker_->takePrepare()) {
      lock.unlock();
      TY_RETURN_IF_ERROR(prepare(*epoch));
      continue;
    }
    TY_ASSIGN_OR_RETURN(const std::optional<Turn> turn, worker_->turn());
    const bool stands = worker_->standing();
    const std::int64_t step = worker_->step();
    if (!turn && !stands) {
      if (clock_.now() >= limit) return absl::DeadlineExceededError("nothing to do for too long");
      changed_.wait_for(lock, std::chrono::milliseconds(50));
      continue;
    }
    lock.unlock();
    if (turn && turn->kind != Turn::Kind::kTrain) return *turn;
    exchange_->begin(step);
    if (turn) return *turn;
    exchange_->submitNothing();
    if (const auto summed = gather({})) update(*summed);
  }
}

// Forms the group of an epoch; then all of its ranks have what it starts from. That it comes to
// nothing is no error: all meet again.
Status RingSynchronizer::prepare(const v1::EpochInfo& epoch) {
  hitFailpoint("ring.prepare", epoch.first_step());
  RingPlace place;
  place.epoch = epoch.epoch();
  for (const v1::EpochMember& m : epoch.members()) {
    if (m.id().index() == options_.worker.index) place.rank = static_cast<int>(m.rank());
    place.addresses.push_back({m.ring_host(), static_cast<std::uint16_t>(m.ring_port())});
  }
  group_ = epoch;
  Status status = exchange_->join(place);
  if (status.ok()) status = receive(epoch, place.rank);
  if (!status.ok()) {
    failed(epoch, status);
    return relay_ ? relay_->failure() : absl::OkStatus();
  }
  hitFailpoint("ring.prepared", epoch.first_step());
  {
    std::lock_guard lock(mutex_);
    worker_->onPrepared(epoch);
  }
  changed();
  return absl::OkStatus();
}

Status RingSynchronizer::load(const v1::EpochInfo& epoch) {
  TY_RETURN_IF_ERROR(options_.load(
      epoch, [this](std::uint32_t chunk, std::int64_t, const std::vector<float>& weights,
                    const std::vector<std::vector<float>>& slots) {
        replica_.load(chunk, weights, slots);
      }));
  return relay_ ? relay_->read(epoch) : absl::OkStatus();
}

// The source rank reads what is in no rank's memory. Who has the state already keeps it: should the
// group fail meanwhile, the next one can still start from there.
Status RingSynchronizer::receive(const v1::EpochInfo& epoch, int rank) {
  bool missing = false;
  {
    std::lock_guard lock(mutex_);
    missing = worker_->beginReceive(epoch);
  }
  hitFailpoint("ring.receive", epoch.first_step());
  const bool is_source = rank == epoch.source_rank();
  if (missing && is_source) {
    const Status loaded = load(epoch);
    if (!loaded.ok()) {
      std::lock_guard lock(mutex_);
      worker_->onProblem(std::string(fromAbsl(loaded.message())));
      return loaded;
    }
  }
  std::vector<float> unread;
  for (std::span<float> array : replica_.arrays()) {
    if (!missing && !is_source) {
      unread.resize(array.size());
      array = unread;
    }
    TY_RETURN_IF_ERROR(exchange_->broadcast(array, epoch.source_rank()));
  }
  return relay_ ? relay_->pass(epoch, rank, missing) : absl::OkStatus();
}

void RingSynchronizer::failed(const v1::EpochInfo& epoch, const Status& status) {
  std::string message(fromAbsl(status.message()));
  if (const auto rank = transport::blamedRank(status); rank && *rank >= 0) {
    message += fmt::format(" (rank {} is {})", *rank,
                           nameOfRank(epoch, *rank, options_.processes_per_pod));
  }
  if (!absl::IsCancelled(status)) TY_WARN("epoch {}: {}", epoch.epoch(), message);
  {
    std::lock_guard lock(mutex_);
    worker_->onFailure(epoch.epoch(), message);
  }
  changed();
}

bool RingSynchronizer::wantsGradientsOnDevice() const {
  return exchange_->onDevice();
}

// Tensors are numbered in the order of the backward pass.
bool RingSynchronizer::push(Gradient gradient) {
  const auto tensor = names_.size() - 1 - static_cast<std::size_t>(gradient.variable);
  if (exchange_->isByRows(tensor))
    return exchange_->submitRows(tensor, gradient.rows, gradient.values);
  return exchange_->submit(tensor, gradient.values, gradient.on_device);
}

StatusOr<StepOutcome> RingSynchronizer::finish(const BatchLoss& loss) {
  TY_ASSIGN_OR_RETURN(const std::optional<SummedStep> summed, sum(loss));
  return summed ? update(*summed) : StepOutcome{};
}

StepOutcome RingSynchronizer::update(const SummedStep& summed) {
  replica_.update(summed.step, summed.means);
  return commit();
}

StatusOr<std::optional<SummedStep>> RingSynchronizer::sum(const BatchLoss& loss, Arrays means) {
  bool aborted = false;
  bool standing = false;
  {
    std::lock_guard lock(mutex_);
    aborted = worker_->aborted();
    standing = worker_->standing();
  }
  if (aborted) {
    // Some gradients were not handed over: nothing can be made of the step. The others wait in it
    // until they hear that the job fails.
    leaveStep();
    exchange_->abandon();
    return std::optional<SummedStep>();
  }
  if (standing) exchange_->submitNothing();
  const std::int64_t hits = loss.samples == 0 ? 0 : loss.hits;
  return gather({loss.loss_sum, static_cast<double>(loss.samples), static_cast<double>(hits)},
                std::move(means));
}

void RingSynchronizer::leaveStep() {
  {
    std::lock_guard lock(mutex_);
    worker_->leaveStep();
  }
  changed();
}

std::optional<SummedStep> RingSynchronizer::gather(const StepTotals& own, Arrays means) {
  const StatusOr<StepTotals> totals = exchange_->finish(own);
  if (!totals.ok()) {
    failed(group_, totals.status());
    leaveStep();
    return std::nullopt;
  }
  Arrays sums;
  for (std::size_t v = 0; v < names_.size(); ++v)
    sums.push_back(exchange_->sum(names_.size() - 1 - v));
  SummedStep summed;
  summed.means = means.empty() ? sums : std::move(means);
  copyInStep();  // the version that the step starts from
  std::int64_t samples = 0;
  {
    std::lock_guard lock(mutex_);
    summed.step = worker_->step();
    samples = worker_->stepSamples();
  }
  const Replica::Means found = replica_.average(sums, samples, summed.means);
  if (found.not_finite) {
    abort(summed.step, names_[static_cast<std::size_t>(*found.not_finite)],
          "the sum of the gradients is not finite");
    leaveStep();
    return std::nullopt;
  }
  {
    std::unique_lock lock(mutex_);
    if (!worker_->beginApply()) {
      lock.unlock();
      leaveStep();
      return std::nullopt;
    }
  }
  summed.loss = totals->loss_sum / totals->samples;
  summed.accuracy = accuracyOf(static_cast<std::int64_t>(totals->hits), totals->samples);
  summed.gradient_norm = found.norm;
  committing_ = {true, summed.step, summed.loss, summed.accuracy, summed.gradient_norm};
  hitFailpoint("ring.apply", summed.step);
  return summed;
}

StepOutcome RingSynchronizer::commit() {
  hitFailpoint("ring.applied", committing_.step);
  {
    std::lock_guard lock(mutex_);
    worker_->applied(committing_.loss);
  }
  changed();
  copyInStep();
  return committing_;
}

void RingSynchronizer::evaluated(const BatchScore& score) {
  {
    std::lock_guard lock(mutex_);
    worker_->evaluated(score.hits, score.samples, score.loss_sum);
  }
  changed();
}

void RingSynchronizer::abort(std::int64_t step, std::string_view variable,
                             std::string_view reason) {
  {
    std::lock_guard lock(mutex_);
    worker_->abort(step, std::string(variable), std::string(reason));
  }
  changed();
}

// What goes beside it can be asked for in next() only.
void RingSynchronizer::copyInStep() {
  if (!options_.beside) copyIfDue().IgnoreError();  // which only that can fail with
}

// The trainer's thread alone changes the state: what it copies stays as it is meanwhile.
Status RingSynchronizer::copyIfDue() {
  std::int64_t epoch = 0;
  std::int64_t version = 0;
  {
    std::lock_guard lock(mutex_);
    // Two copies at a time would need the memory of two. The last version of a job, which comes
    // unasked, and that of a stop are still there once the file before them is written.
    if (writing_ || !worker_->takeSnapshot()) return absl::OkStatus();
    writing_ = true;
    epoch = worker_->epoch();
    version = worker_->version();
  }
  std::function<Status()> beside;
  if (options_.beside) {
    TY_ASSIGN_OR_RETURN(beside, options_.beside(version));
  }
  writer_.add([this, snapshot = replica_.snapshot(epoch, version),
               beside = std::move(beside)]() mutable { write(std::move(snapshot), beside); });
  return absl::OkStatus();
}

void RingSynchronizer::write(Snapshot snapshot, const std::function<Status()>& beside) {
  const Status written = beside ? beside() : absl::OkStatus();
  v1::ShardFile file;
  if (written.ok()) {
    file = options_.write(snapshot);
  } else {
    file.set_epoch(snapshot.epoch);
    file.set_version(snapshot.version);
    file.set_error(std::string(fromAbsl(written.message())));
  }
  snapshot = {};  // before the next one is copied
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    worker_->onWritten(file);
  }
  changed();
}

}  // namespace trainyard::runtime::ring
