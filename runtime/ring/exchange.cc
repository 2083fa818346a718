#include "runtime/ring/exchange.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/clock.h"
#include "base/core/log.h"
#include "fmt/format.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::ring {
namespace {

using collective::Reduction;

constexpr std::size_t kTotals = 3;  // loss, samples and hits
// Of a rank that has not counted its hits: no number of others' makes up for it.
constexpr double kUncounted = -1e18;
constexpr std::size_t kAlignment = 64;  // of an allocation in the arena
// Rows are not in the arena: they go through windows of a quarter of it, of 4 MiB at most.
constexpr std::size_t kRowsArena = std::size_t{16} << 20;

}  // namespace

StatusOr<std::unique_ptr<Exchange>> Exchange::make(ExchangeOptions options,
                                                   std::vector<collective::PlannedTensor> tensors,
                                                   std::function<bool(std::int64_t)> cancelled) {
  TY_ASSIGN_OR_RETURN(transport::TcpListener listener,
                      transport::TcpListener::listen(options.bind, 0));
  return std::unique_ptr<Exchange>(new Exchange(std::move(options), std::move(tensors),
                                                std::move(cancelled), std::move(listener)));
}

Exchange::Exchange(ExchangeOptions options, std::vector<collective::PlannedTensor> tensors,
                   std::function<bool(std::int64_t)> cancelled, transport::TcpListener listener)
    : options_(std::move(options)),
      tensors_(std::move(tensors)),
      cancelled_(std::move(cancelled)),
      listener_(std::move(listener)),
      operation_of_(tensors_.size()),
      rows_(tensors_) {
  for (const collective::PlannedTensor& tensor : tensors_) {
    begins_.push_back(elements_);
    if (tensor.rows > 0) continue;
    elements_ += static_cast<std::size_t>(tensor.elements);
  }
  if (!options_.sizes_to_try.empty())
    tuner_.emplace(differingSizes(tensors_, options_.sizes_to_try));
  thread_ = std::thread([this] { run(); });
}

Exchange::~Exchange() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

Status Exchange::join(const RingPlace& place) {
  abandon();
  group_ = {};
  memory_ = {};
  collective::GroupOptions options;
  options.mesh.rank = place.rank;
  options.mesh.addresses = place.addresses;
  options.mesh.token = options_.token;
  options.mesh.encryption = options_.encryption;
  options.mesh.epoch = static_cast<std::uint64_t>(place.epoch);
  options.mesh.timeout = options_.join_timeout;
  options.mesh.cancelled = [this, epoch = place.epoch] { return cancelled_(epoch); };
  options.tcp.cancelled = options.mesh.cancelled;
  options.tcp.stall_after = options_.warn_after;
  options.collective.timeout = options_.timeout;
  options.collective.deterministic = options_.deterministic;
  options.collective.wire = options_.wire;
  options.share_memory = options_.share_memory;
  own_totals_.assign(kTotals + (tuner_ ? tuner_->sizes().size() : 0), 0);
  options.arena.bytes =
      elements_ * sizeof(float) + own_totals_.size() * sizeof(double) + 2 * kAlignment;
  options.arena.bytes += std::min(rows_.bytes(), kRowsArena);
  options.arena.timeout = options_.join_timeout;
  options.device = offer();
  TY_ASSIGN_OR_RETURN(group_, collective::joinGroup(listener_, options, tensors_));
  rank_ = place.rank;
  TY_RETURN_IF_ERROR(takeMemory());
  TY_RETURN_IF_ERROR(agreeOnSize());
  plan(tuner_ ? bucketsOf(tuner_->size()) : options_.buckets);
  return absl::OkStatus();
}

// A device without room for the buckets is none, and said to be so before the ranks decide. Where
// there are no buckets no rank has a use for one.
collective::GroupDevice Exchange::offer() {
  if (elements_ == 0) return {};
  const bool ruled_out = options_.deterministic || options_.wire;
  if (!options_.device.library || ruled_out || on_device_) return options_.device;
  auto made = DeviceBuckets::make(options_.device.memory, elements_);
  if (!made.ok()) {
    collective::GroupDevice none;
    none.missing =
        fmt::format("memory for the gradients: {}", std::string(made.status().message()));
    return none;
  }
  on_device_ = std::move(*made);
  return options_.device;
}

// Ranks that have been in other groups have chosen what is chosen for all; none: they begin anew.
Status Exchange::agreeOnSize() {
  if (!tuner_) return absl::OkStatus();
  std::int64_t chosen = tuner_->chosen();
  TY_RETURN_IF_ERROR(group_.collective->allReduce(
      {reinterpret_cast<std::byte*>(&chosen), 1, ElementType::kInt64}, Reduction::kMax));
  tuner_->agree(chosen);
  planned_size_ = tuner_->size();
  return absl::OkStatus();
}

// Between two steps.
void Exchange::plan(const collective::BucketSizes& sizes) {
  buckets_ = collective::planBuckets(tensors_, sizes);
  arrays_.clear();
  std::size_t begin = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const collective::Bucket::Part& part : buckets_[b].parts) operation_of_[part.tensor] = b;
    const auto elements = static_cast<std::size_t>(buckets_[b].elements);
    arrays_.push_back(memory_.subspan(begin, elements));
    begin += elements;
  }
  for (std::size_t r = 0; r < rows_.tensors().size(); ++r)
    operation_of_[rows_.tensors()[r]] = buckets_.size() + r;
}

Status Exchange::takeMemory() {
  own_memory_.clear();
  totals_ = own_totals_;
  if (group_.device) {
    memory_ = on_device_->onHost();
    return on_device_->finishToHost();  // of a step that was given up
  }
  on_device_.reset();
  if (!group_.arena) {
    own_memory_.resize(elements_);
    memory_ = own_memory_;
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(const std::span<std::byte> bytes,
                      group_.arena->allocate(elements_ * sizeof(float)));
  memory_ = {reinterpret_cast<float*>(bytes.data()), elements_};
  TY_ASSIGN_OR_RETURN(const std::span<std::byte> totals,
                      group_.arena->allocate(totals_.size_bytes()));
  totals_ = {reinterpret_cast<double*>(totals.data()), own_totals_.size()};
  return absl::OkStatus();
}

void Exchange::tell(std::string_view name, std::int64_t step, TimePoint start) const {
  if (options_.span) options_.span({Lane::kExchange, name, step, start, systemClock().now()});
}

Status Exchange::counted(ExchangeWork::Operation& sum, collective::Collective& group,
                         const std::function<Status(collective::Collective&)>& operation) {
  const collective::Totals before = group.totals();
  Status done = operation(group);
  const collective::Totals after = group.totals();
  const std::lock_guard lock(mutex_);
  sum.bytes_sent += after.bytes_sent - before.bytes_sent;
  sum.bytes_received += after.bytes_received - before.bytes_received;
  sum.rounds += after.rounds - before.rounds;
  sum.seconds += after.seconds - before.seconds;
  return done;
}

ExchangeWork Exchange::work() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

Status Exchange::broadcast(std::span<float> array, int root) {
  return broadcast(collective::arrayOf(array), root);
}

Status Exchange::broadcast(std::span<std::byte> bytes, int root) {
  return broadcast({bytes.data(), static_cast<std::int64_t>(bytes.size()), ElementType::kUint8},
                   root);
}

StatusOr<bool> Exchange::any(bool own) {
  std::int64_t most = own ? 1 : 0;
  TY_RETURN_IF_ERROR(group_.collective->allReduce(
      {reinterpret_cast<std::byte*>(&most), 1, ElementType::kInt64}, Reduction::kMax));
  return most != 0;
}

Status Exchange::broadcast(const collective::Array& array, int root) {
  const TimePoint start = systemClock().now();
  const Status done =
      counted(work_.broadcast, *group_.collective,
              [&](collective::Collective& group) { return group.broadcast(array, root); });
  tell("broadcast", 0, start);
  return done;
}

void Exchange::begin(std::int64_t step) {
  std::lock_guard lock(mutex_);
  TY_CHECK(!reducing_ && group_.collective, "a step begins in a group, after the former one");
  if (tuner_ && tuner_->size() != planned_size_) {
    planned_size_ = tuner_->size();
    plan(bucketsOf(planned_size_));
  }
  begun_ = systemClock().now();
  missing_.clear();
  for (const collective::Bucket& bucket : buckets_) missing_.push_back(bucket.parts.size());
  missing_.resize(buckets_.size() + rows_.tensors().size(), 1);
  next_ = 0;
  totals_given_ = false;
  step_ = step;
  put_failure_ = absl::OkStatus();
  failure_ = absl::OkStatus();
  stepping_ = true;
}

void Exchange::filled(std::size_t operation) {
  std::lock_guard lock(mutex_);
  TY_CHECK(missing_[operation] > 0, "a tensor is submitted once in a step");
  if (--missing_[operation] == 0) changed_.notify_all();
}

bool Exchange::submit(std::size_t tensor, std::span<const float> values, bool on_device) {
  TY_CHECK(!isByRows(tensor), "a tensor is submitted as it was planned");
  const std::span<float> into = sum(tensor);
  TY_CHECK(values.size() == into.size(), "a gradient is as long as its tensor");
  TY_CHECK(!on_device || onDevice(), "onDevice() is asked before");
  if (onDevice()) {
    if (!on_device && !allFinite(values)) return false;
    put(tensor, values, on_device);
  } else if (!copyFinite(values, into)) {
    return false;
  }
  filled(operation_of_[tensor]);
  return true;
}

bool Exchange::submitRows(std::size_t tensor, std::span<const std::int64_t> rows,
                          std::span<const float> values) {
  TY_CHECK(isByRows(tensor), "a tensor is submitted as it was planned");
  if (!allFinite(values)) return false;
  rows_.bring(tensor, rows, values);
  filled(operation_of_[tensor]);
  return true;
}

// x + -0 is x for every x, -0 and +0 as well.
void Exchange::submitNothing() {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (isByRows(t)) {
      submitRows(t, {}, {});
      continue;
    }
    const std::span<float> into = sum(t);
    std::fill(into.begin(), into.end(), -0.0F);
    if (onDevice()) put(t, into, /*on_device=*/false);
    filled(operation_of_[t]);
  }
}

void Exchange::put(std::size_t tensor, std::span<const float> values, bool on_device) {
  const Status done = on_device_->put(begins_[tensor], values, on_device);
  if (done.ok()) return;
  const std::lock_guard lock(mutex_);
  put_failure_ = done;
}

StatusOr<StepTotals> Exchange::finish(const StepTotals& own) {
  std::unique_lock lock(mutex_);
  totals_[0] = own.loss_sum;
  totals_[1] = own.samples;
  totals_[2] = own.hits < 0 ? kUncounted : own.hits;
  const std::span<double> times = totals_.subspan(kTotals);
  std::fill(times.begin(), times.end(), 0.0);
  if (tuning() && tuner_->reports()) std::ranges::copy(tuner_->times(), times.begin());
  totals_given_ = true;
  changed_.notify_all();
  const TimePoint start = systemClock().now();
  changed_.wait(lock, [&] { return next_ > missing_.size() || !failure_.ok(); });
  work_.waited += systemClock().now() - start;
  stepping_ = false;
  if (!failure_.ok()) return failure_;
  if (tuning()) learn(systemClock().now() - begun_);
  return StepTotals{totals_[0], totals_[1], std::max(totals_[2], -1.0)};
}

// All ranks do so after the same step, and are given the same sums.
void Exchange::learn(Duration taken) {
  if (!tuner_->reports()) return tuner_->took(toSeconds(taken));
  tuner_->choose(totals_.subspan(kTotals), group_.collective->size());
  if (rank_ == 0) TY_INFO("{}", tuner_->summary());
}

void Exchange::abandon() {
  std::unique_lock lock(mutex_);
  stepping_ = false;
  changed_.wait(lock, [&] { return !reducing_; });
}

std::span<float> Exchange::sum(std::size_t tensor) {
  if (isByRows(tensor)) return rows_.matrix(tensor);
  return memory_.subspan(begins_[tensor], static_cast<std::size_t>(tensors_[tensor].elements));
}

// The next operation may begin.
bool Exchange::due() const {
  if (!stepping_ || !failure_.ok() || next_ > missing_.size()) return false;
  return next_ < missing_.size() ? missing_[next_] == 0 : totals_given_;
}

Status Exchange::perform(std::size_t operation) {
  if (operation < buckets_.size()) {
    const std::span<float> bucket = arrays_[operation];
    return onDevice() ? reduceOnDevice(bucket) : reduce(collective::arrayOf(bucket));
  }
  if (operation == missing_.size()) return reduceTotals();
  return counted(work_.all_reduce, *group_.collective, [&](collective::Collective& group) {
    return rows_.sum(rows_.tensors()[operation - buckets_.size()], group);
  });
}

std::string Exchange::nameOf(std::size_t operation) const {
  if (operation < buckets_.size()) return fmt::format("bucket {}", operation);
  if (operation == missing_.size()) return "loss and samples";
  return "rows of " + tensors_[rows_.tensors()[operation - buckets_.size()]].name;
}

Status Exchange::reduce(const collective::Array& array) {
  return counted(work_.all_reduce, *group_.collective, [&](collective::Collective& group) {
    return group.allReduce(array, Reduction::kSum);
  });
}

// `bucket` is where the sum goes on the host.
Status Exchange::reduceOnDevice(std::span<const float> bucket) {
  Status brought;
  {
    const std::lock_guard lock(mutex_);
    brought = put_failure_;
  }
  if (!brought.ok()) return failHere(brought);
  const auto begin = static_cast<std::size_t>(bucket.data() - memory_.data());
  TY_RETURN_IF_ERROR(counted(work_.all_reduce, *group_.device, [&](collective::Collective& group) {
    return group.allReduce(on_device_->at(begin, bucket.size()), Reduction::kSum);
  }));
  const Status copying = on_device_->startToHost(begin, bucket.size());
  return copying.ok() ? copying : failHere(copying);
}

// All sums are on the host as well then.
Status Exchange::reduceTotals() {
  TY_RETURN_IF_ERROR(reduce({reinterpret_cast<std::byte*>(totals_.data()),
                             static_cast<std::int64_t>(totals_.size()), ElementType::kFloat64}));
  const Status copied = onDevice() ? on_device_->finishToHost() : absl::OkStatus();
  return copied.ok() ? copied : failHere(copied);
}

// The others learn it from here, and need not wait.
Status Exchange::failHere(const Status& status) {
  const Status here = transport::withBlamedRank(
      annotate(status, fmt::format("rank {}: gradients on the GPU", rank_)), rank_);
  group_.device->abort(here);
  return here;
}

void Exchange::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || due(); });
    if (ending_) return;
    const std::size_t operation = next_;
    const std::int64_t step = step_;
    reducing_ = true;
    lock.unlock();
    const TimePoint start = systemClock().now();
    const Status done = perform(operation);
    tell(nameOf(operation), step, start);
    lock.lock();
    reducing_ = false;
    if (done.ok()) {
      ++next_;
    } else {
      failure_ = done;
    }
    changed_.notify_all();
  }
}

}  // namespace trainyard::runtime::ring
