// Puts the gradients of a step together with those of the other ranks while the backward pass goes
// on: gradients are copied into buckets, and a thread of its own all-reduces each bucket as soon as
// it and all before it are full, in the same order on every rank.
//
// Tensors that are planned by rows are in no bucket: they are summed one after the other when all
// buckets are (row_exchange.h).
//
// The memory of the buckets is shared memory where the group has it, so that ranks of one machine
// read each other's gradients where they are. Where all ranks have a device of their own it is the
// devices' (GPUs'): gradients are copied and put together there, and each bucket's sum is copied to
// the host while the next one is on its way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/core/status.h"
#include "runtime/collective/group.h"
#include "runtime/events/timeline.h"
#include "runtime/ring/bucket_tuner.h"
#include "runtime/ring/device_buckets.h"
#include "runtime/ring/row_exchange.h"
#include "runtime/stream/stream.h"

namespace trainyard::runtime::ring {

struct ExchangeOptions {
  std::string bind = "127.0.0.1";  // the other ranks connect to a free port there
  std::string token;               // of the job
  std::shared_ptr<const stream::Encryption> encryption = {};  // as of transport::MeshOptions
  bool deterministic = false;            // sums in the order of ranks, over every transport
  bool share_memory = true;              // where all ranks have one address, and no `wire` is set
  std::optional<ElementType> wire = {};  // what buckets travel as: see CollectiveOptions
  collective::BucketSizes buckets;
  // Instead of these: sizes of which the fastest is found by trying (BucketTuner). Ascending.
  std::vector<std::int64_t> sizes_to_try = {};
  // Of this rank, which see collective::joinGroup() for: not with `deterministic` or `wire`.
  collective::GroupDevice device = {};
  Duration join_timeout = std::chrono::seconds(60);
  // Of one operation: how long the slowest rank may be behind. A rank that ends is noticed at once;
  // one that is silent, by the coordinator.
  Duration timeout = std::chrono::minutes(10);
  Duration warn_after = std::chrono::seconds(10);  // of waiting: says for whom
  // Each operation, when it has ended; called from either thread. May be empty.
  std::function<void(const Span&)> span = {};
};

struct RingPlace {
  std::int64_t epoch = 0;
  int rank = 0;
  std::vector<transport::TcpAddress> addresses;  // by rank
};

// What all ranks bring beside their gradients, summed.
struct StepTotals {
  double loss_sum = 0;
  double samples = 0;
  double hits = 0;  // of samples told right; -1: a rank has not counted
};

// What was done so far, over all groups; see collective::Totals. Bytes between devices are not
// known.
struct ExchangeWork {
  struct Operation {
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t rounds = 0;
    Duration seconds{};
  };
  Operation all_reduce;
  Operation broadcast;
  Duration waited{};  // by finish(): what the trainer did not hide behind its own work
};

// All calls from one thread but port() and work().
class Exchange {
 public:
  // `tensors` in the order in which gradients become ready. `cancelled` is asked by waits, on
  // either thread, with the epoch of the group: true ends them with CANCELLED.
  static StatusOr<std::unique_ptr<Exchange>> make(ExchangeOptions options,
                                                  std::vector<collective::PlannedTensor> tensors,
                                                  std::function<bool(std::int64_t)> cancelled);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  std::uint16_t port() const { return listener_.port(); }

  // Leaves the former group and forms the next one. Errors as of collective::joinGroup().
  Status join(const RingPlace& place);
  // Every rank's array becomes that of `root`.
  Status broadcast(std::span<float> array, int root);
  Status broadcast(std::span<std::byte> bytes, int root);
  // Whether one rank's is true.
  StatusOr<bool> any(bool own);

  // Whether gradients may be submitted where they are on the device; known by join().
  bool onDevice() const { return group_.device != nullptr; }

  // Step `step`: begin(), each tensor once by submit() or, where it is planned by rows, by
  // submitRows(), finish(). After a failure the group is of no more use, and finish() says why.
  // `values` are read before submit() returns; they lie in the host's memory, or where `on_device`
  // in that of options.device, and are there already. False: they lie in the host's memory and are
  // not all finite, and the tensor is not submitted.
  void begin(std::int64_t step = 0);
  bool submit(std::size_t tensor, std::span<const float> values, bool on_device = false);
  bool isByRows(std::size_t tensor) const { return rows_.has(tensor); }
  // See RowExchange::bring(). False as of submit().
  bool submitRows(std::size_t tensor, std::span<const std::int64_t> rows,
                  std::span<const float> values);
  // For a rank without samples: what changes nobody's sum, not a bit.
  void submitNothing();
  StatusOr<StepTotals> finish(const StepTotals& own);
  // Instead of finish(), when not all has been submitted.
  void abandon();
  // After finish(): the sums over all ranks, to be changed at will until begin().
  std::span<float> sum(std::size_t tensor);

  ExchangeWork work() const;
  // Of the buckets after the first, as planned for the next step.
  std::int64_t bucketBytes() const { return tuner_ ? tuner_->size() : options_.buckets.bytes; }

 private:
  Exchange(ExchangeOptions options, std::vector<collective::PlannedTensor> tensors,
           std::function<bool(std::int64_t)> cancelled, transport::TcpListener listener);
  collective::GroupDevice offer();
  Status broadcast(const collective::Array& array, int root);
  Status takeMemory();
  Status agreeOnSize();
  void plan(const collective::BucketSizes& sizes);
  void learn(Duration taken);
  bool tuning() const { return tuner_ && tuner_->chosen() == 0; }
  void run();
  bool due() const;
  void put(std::size_t tensor, std::span<const float> values, bool on_device);
  void filled(std::size_t operation);
  Status perform(std::size_t operation);
  std::string nameOf(std::size_t operation) const;
  Status reduce(const collective::Array& array);
  Status reduceOnDevice(std::span<const float> bucket);
  Status reduceTotals();
  Status failHere(const Status& status);
  void tell(std::string_view name, std::int64_t step, TimePoint start) const;
  // Runs one operation of the group and adds what it cost; mutex_ is not held.
  Status counted(ExchangeWork::Operation& sum, collective::Collective& group,
                 const std::function<Status(collective::Collective&)>& operation);

  const ExchangeOptions options_;
  const std::vector<collective::PlannedTensor> tensors_;
  const std::function<bool(std::int64_t)> cancelled_;
  const transport::TcpListener listener_;
  std::optional<BucketTuner> tuner_;  // where several sizes are to be tried
  std::int64_t planned_size_ = 0;     // the tuner's, of buckets_
  std::vector<collective::Bucket> buckets_;
  std::vector<std::size_t> operation_of_;     // by tensor, as the next
  std::vector<std::size_t> begins_;           // in memory_
  std::size_t elements_ = 0;                  // of all tensors in buckets
  std::unique_ptr<DeviceBuckets> on_device_;  // null where the group is not
  RowExchange rows_;
  collective::Group group_;
  std::vector<float> own_memory_;  // where there is neither arena nor device
  std::span<float> memory_;        // tensors one after the other, and so buckets
  std::span<double> totals_;       // loss, samples, and what the tuner brings
  std::vector<double> own_totals_;
  int rank_ = 0;
  TimePoint begun_;  // the step

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ExchangeWork work_;
  std::vector<std::size_t> missing_;      // tensors, by operation but the last
  std::vector<std::span<float>> arrays_;  // by bucket
  std::size_t next_ = 0;                  // operation: buckets in order, tensors by rows, totals
  bool totals_given_ = false;
  std::int64_t step_ = 0;
  bool stepping_ = false;
  bool reducing_ = false;
  bool ending_ = false;
  Status put_failure_;  // of this rank's device, found when the bucket's turn comes
  Status failure_;
  std::thread thread_;
};

}  // namespace trainyard::runtime::ring
