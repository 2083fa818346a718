#include "runtime/ring/exchange.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/clock.h"
#include "fmt/format.h"

namespace trainyard::runtime::ring {
namespace {

using collective::Array;
using collective::Reduction;

constexpr std::size_t kTotals = 2;
constexpr std::size_t kAlignment = 64;  // of an allocation in the arena

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
      buckets_(collective::planBuckets(tensors_, options_.buckets)),
      places_(tensors_.size()) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const collective::Bucket::Part& part : buckets_[b].parts) {
      places_[part.tensor] = {b, static_cast<std::size_t>(part.offset)};
    }
  }
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
  memory_.clear();
  collective::GroupOptions options;
  options.mesh.rank = place.rank;
  options.mesh.addresses = place.addresses;
  options.mesh.token = options_.token;
  options.mesh.epoch = static_cast<std::uint64_t>(place.epoch);
  options.mesh.timeout = options_.join_timeout;
  options.mesh.cancelled = [this, epoch = place.epoch] { return cancelled_(epoch); };
  options.tcp.cancelled = options.mesh.cancelled;
  options.tcp.stall_after = options_.warn_after;
  options.collective.timeout = options_.timeout;
  options.collective.deterministic = options_.deterministic;
  options.collective.wire = options_.wire;
  options.share_memory = options_.share_memory;
  options.arena.bytes = kTotals * sizeof(double) + kAlignment;
  for (const collective::Bucket& bucket : buckets_) {
    options.arena.bytes += static_cast<std::size_t>(bucket.elements) * sizeof(float) + kAlignment;
  }
  options.arena.timeout = options_.join_timeout;
  TY_ASSIGN_OR_RETURN(group_, collective::joinGroup(listener_, options, tensors_));
  return takeMemory();
}

Status Exchange::takeMemory() {
  own_memory_.clear();
  own_memory_.resize(buckets_.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto elements = static_cast<std::size_t>(buckets_[b].elements);
    if (group_.arena) {
      TY_ASSIGN_OR_RETURN(const std::span<std::byte> bytes,
                          group_.arena->allocate(elements * sizeof(float)));
      memory_.emplace_back(reinterpret_cast<float*>(bytes.data()), elements);
    } else {
      own_memory_[b].resize(elements);
      memory_.emplace_back(own_memory_[b]);
    }
  }
  own_totals_.assign(kTotals, 0);
  totals_ = own_totals_;
  if (group_.arena) {
    TY_ASSIGN_OR_RETURN(const std::span<std::byte> bytes,
                        group_.arena->allocate(kTotals * sizeof(double)));
    totals_ = {reinterpret_cast<double*>(bytes.data()), kTotals};
  }
  return absl::OkStatus();
}

void Exchange::tell(std::string_view name, std::int64_t step, TimePoint start) const {
  if (options_.span) options_.span({Lane::kExchange, name, step, start, systemClock().now()});
}

Status Exchange::counted(ExchangeWork::Operation& sum,
                         const std::function<Status(collective::Collective&)>& operation) {
  const collective::Totals before = group_.collective->totals();
  Status done = operation(*group_.collective);
  const collective::Totals after = group_.collective->totals();
  const std::lock_guard lock(mutex_);
  sum.bytes_sent += after.bytes_sent - before.bytes_sent;
  sum.bytes_received += after.bytes_received - before.bytes_received;
  sum.seconds += after.seconds - before.seconds;
  return done;
}

ExchangeWork Exchange::work() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

Status Exchange::broadcast(std::span<float> array, int root) {
  const TimePoint start = systemClock().now();
  const Status done = counted(work_.broadcast, [&](collective::Collective& group) {
    return group.broadcast(collective::arrayOf(array), root);
  });
  tell("broadcast", 0, start);
  return done;
}

void Exchange::begin(std::int64_t step) {
  std::lock_guard lock(mutex_);
  TY_CHECK(!reducing_ && !memory_.empty(), "a step begins in a group, after the former one");
  missing_.clear();
  for (const collective::Bucket& bucket : buckets_) missing_.push_back(bucket.parts.size());
  next_ = 0;
  totals_given_ = false;
  step_ = step;
  failure_ = absl::OkStatus();
  stepping_ = true;
}

void Exchange::filled(std::size_t bucket) {
  std::lock_guard lock(mutex_);
  TY_CHECK(missing_[bucket] > 0, "a tensor is submitted once in a step");
  if (--missing_[bucket] == 0) changed_.notify_all();
}

void Exchange::submit(std::size_t tensor, std::span<const float> values) {
  const std::span<float> into = sum(tensor);
  TY_CHECK(values.size() == into.size(), "a gradient is as long as its tensor");
  std::copy(values.begin(), values.end(), into.begin());
  filled(places_[tensor].bucket);
}

// x + -0 is x for every x, -0 and +0 as well.
void Exchange::submitNothing() {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const std::span<float> into = sum(t);
    std::fill(into.begin(), into.end(), -0.0F);
    filled(places_[t].bucket);
  }
}

StatusOr<StepTotals> Exchange::finish(const StepTotals& own) {
  std::unique_lock lock(mutex_);
  totals_[0] = own.loss_sum;
  totals_[1] = own.samples;
  totals_given_ = true;
  changed_.notify_all();
  const TimePoint start = systemClock().now();
  changed_.wait(lock, [&] { return next_ > buckets_.size() || !failure_.ok(); });
  work_.waited += systemClock().now() - start;
  stepping_ = false;
  if (!failure_.ok()) return failure_;
  return StepTotals{totals_[0], totals_[1]};
}

void Exchange::abandon() {
  std::unique_lock lock(mutex_);
  stepping_ = false;
  changed_.wait(lock, [&] { return !reducing_; });
}

std::span<float> Exchange::sum(std::size_t tensor) {
  const Place& place = places_[tensor];
  return memory_[place.bucket].subspan(place.offset,
                                       static_cast<std::size_t>(tensors_[tensor].elements));
}

// The next operation may begin.
bool Exchange::due() const {
  if (!stepping_ || !failure_.ok() || next_ > buckets_.size()) return false;
  return next_ < buckets_.size() ? missing_[next_] == 0 : totals_given_;
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
    const bool is_bucket = operation < buckets_.size();
    const Array array = is_bucket
                            ? collective::arrayOf(memory_[operation])
                            : Array{reinterpret_cast<std::byte*>(totals_.data()),
                                    static_cast<std::int64_t>(kTotals), ElementType::kFloat64};
    const TimePoint start = systemClock().now();
    const Status done = counted(work_.all_reduce, [&](collective::Collective& group) {
      return group.allReduce(array, Reduction::kSum);
    });
    tell(is_bucket ? fmt::format("bucket {}", operation) : "loss and samples", step, start);
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
