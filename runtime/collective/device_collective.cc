#include "runtime/collective/device_collective.h"

#include <utility>
#include <vector>

#include "base/core/sleep.h"
#include "fmt/format.h"
#include "runtime/collective/internal/arguments.h"
#include "runtime/collective/internal/call.h"
#include "runtime/collective/internal/device_steps.h"

namespace trainyard::runtime::collective {
namespace {

using transport::Algorithm;
using transport::Kind;
using transport::Operation;

// The device tells nobody when it is done: it is asked. Without a pause for as long as a small
// operation takes, then seldom enough to leave the processor to others.
constexpr Duration kSpin = std::chrono::microseconds(200);
constexpr Duration kPause = std::chrono::microseconds(50);
// The device notices a dead rank sometimes before the transport does, and does not say which.
constexpr Duration kHearing = std::chrono::seconds(1);
constexpr char kForming[] = "forming the device's group";

class DeviceCollective : public Collective {
 public:
  DeviceCollective(std::unique_ptr<transport::Transport> transport, const DeviceOptions& options)
      : transport_(std::move(transport)), options_(options) {}

  Status form(DeviceLibrary& library) {
    const TimePoint deadline = systemClock().now() + options_.join_timeout;
    DeviceGroupId id{};
    TY_RETURN_IF_ERROR(agree(library, deadline, id));
    auto joined = library.join(id, rank(), size());
    if (!joined.ok()) return failHere(joined.status(), kForming);
    communicator_ = std::move(*joined);
    TY_RETURN_IF_ERROR(watch(kForming, idOperation(), deadline));
    const Status all = meet(describe(Kind::kBarrier, {}), deadline + options_.grace);
    if (!all.ok()) return fail(annotate(all, kForming));
    is_formed_ = true;
    totals_ = {};
    return absl::OkStatus();
  }

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  Totals totals() const override {
    Totals totals = totals_;
    totals.messages_sent = transport_->counters().messages_sent;
    return totals;
  }
  void abort(const Status& status) override { (void)fail(status); }

  Status allReduce(const Array& array, Reduction reduction) override {
    std::vector<DeviceStep> steps;
    if (array.elements > 0)
      steps.push_back({DeviceStep::Kind::kAllReduce, array, array, reduction});
    return run(describe(Kind::kAllReduce, array, reduction), steps);
  }

  Status reduceScatter(const Array& array, Reduction reduction) override {
    return run(describe(Kind::kReduceScatter, array, reduction),
               internal::reduceScatterSteps(array, reduction, rank(), size()));
  }

  Status allGather(const Array& array, std::span<const std::int64_t> counts) override {
    TY_RETURN_IF_ERROR(internal::checkCounts(counts, size(), array.elements));
    return run(describe(Kind::kAllGather, array), internal::allGatherSteps(array, counts, rank()));
  }

  Status broadcast(const Array& array, int root) override {
    TY_RETURN_IF_ERROR(internal::checkRoot(root, size()));
    std::vector<DeviceStep> steps;
    if (array.elements > 0)
      steps.push_back({DeviceStep::Kind::kBroadcast, array, array, Reduction::kSum, root});
    return run(describe(Kind::kBroadcast, array), steps);
  }

  Status allToAll(const Array& send, std::span<const std::int64_t> send_counts,
                  const Array& receive, std::span<const std::int64_t> receive_counts,
                  std::int64_t total) override {
    TY_RETURN_IF_ERROR(
        internal::checkAllToAll(send, send_counts, receive, receive_counts, rank(), size()));
    Operation o = describe(Kind::kAllToAll, send);
    o.elements = static_cast<std::uint64_t>(total);
    return run(o, internal::allToAllSteps(send, send_counts, receive, receive_counts, rank()));
  }

  Status barrier() override { return run(describe(Kind::kBarrier, {}), {}); }

 private:
  Operation describe(Kind kind, const Array& array, Reduction reduction = Reduction::kSum) const {
    return internal::operationOf(totals_.operations, kind, array, reduction, Algorithm::kDirect);
  }

  static Operation idOperation() {
    Operation o;
    o.kind = Kind::kMessage;
    o.elements = sizeof(DeviceGroupId);
    return o;
  }

  // Rank 0's id, on all ranks.
  Status agree(DeviceLibrary& library, TimePoint deadline, DeviceGroupId& id) {
    if (rank() == 0) {
      auto made = library.makeId();
      if (!made.ok()) return failHere(made.status(), kForming);
      id = *made;
    }
    const Array array{id.data(), sizeof(id) / sizeof(std::int32_t), ElementType::kInt32};
    internal::Call call(*transport_, idOperation(), deadline);
    const Status told = internal::treeBroadcast(call, array, 0);
    return told.ok() ? told : fail(annotate(told, kForming));
  }

  Status run(const Operation& operation, const std::vector<DeviceStep>& steps) {
    TY_RETURN_IF_ERROR(failure_);
    const TimePoint start = systemClock().now();
    ++totals_.operations;
    const Status done = act(operation, steps, start + options_.timeout);
    totals_.seconds += systemClock().now() - start;
    return done;
  }

  Status act(const Operation& operation, const std::vector<DeviceStep>& steps, TimePoint deadline) {
    const Status met = meet(operation, deadline);
    if (!met.ok()) return fail(met);
    if (steps.empty()) return absl::OkStatus();
    const std::string place = toString(operation);
    const Status begun = communicator_->enqueue(steps);
    return begun.ok() ? watch(place, operation, deadline) : failHere(begun, place);
  }

  Status meet(const Operation& operation, TimePoint deadline) {
    internal::Call call(*transport_, operation, deadline);
    const Status met = internal::disseminationBarrier(call);
    totals_.rounds += static_cast<std::uint64_t>(call.rounds());
    return met;
  }

  // Until the device is done, or something is wrong.
  Status watch(const std::string& place, const Operation& operation, TimePoint deadline) {
    const TimePoint start = systemClock().now();
    TimePoint next_check = start + transport::kCancelCheck;
    for (;;) {
      const StatusOr<bool> done = communicator_->poll();
      if (!done.ok()) return fail(dueTo(annotate(done.status(), place)));
      if (*done) return absl::OkStatus();
      const TimePoint now = systemClock().now();
      if (now >= deadline) return fail(overdue(place, operation, now));
      if (now >= next_check) {
        const Status heard = transport_->check();
        if (!heard.ok()) return fail(annotate(heard, place));
        next_check = now + transport::kCancelCheck;
      }
      if (now - start > kSpin) sleepUntil(now + kPause);
    }
  }

  // What the transport knows of it, where it does: that names a rank.
  Status dueTo(const Status& of_device) {
    const TimePoint until = systemClock().now() + kHearing;
    for (TimePoint now; (now = systemClock().now()) < until;) {
      const Status heard = transport_->check();
      if (!heard.ok()) return annotate(heard, std::string(of_device.message()));
      sleepUntil(now + transport::kCancelCheck);
    }
    return ofDevice(of_device);
  }

  // All began the operation together, so all are late together: whoever does not answer now is to
  // blame. (A rank whose own part of the operation has ended meets for the next one, and names this
  // one, with what it is still in.)
  Status overdue(const std::string& place, Operation operation, TimePoint now) {
    const Duration given = is_formed_ ? options_.timeout : options_.join_timeout;
    const std::string late =
        fmt::format("{}: not done on the device after {:.1f} s", place, toSeconds(given));
    operation.kind = Kind::kBarrier;
    operation.algorithm = Algorithm::kRing;
    const Status answered = meet(operation, now + options_.grace);
    if (!answered.ok()) return annotate(answered, late);
    return ofDevice(absl::DeadlineExceededError(late + ", though every rank answers"));
  }

  Status failHere(const Status& status, const std::string& place) {
    const Status here = annotate(status, fmt::format("rank {}: {}", rank(), place));
    return fail(transport::withBlamedRank(ofDevice(here), rank()));
  }

  // While the group forms nobody is lost by it, and the others hear of it as ABORTED as well.
  Status ofDevice(const Status& status) const {
    return is_formed_ ? status : absl::AbortedError(status.message());
  }

  Status fail(const Status& status) {
    if (!failure_.ok()) return failure_;
    failure_ = status;
    if (communicator_) communicator_->abort();
    transport_->abort(status);
    return failure_;
  }

  const std::unique_ptr<transport::Transport> transport_;
  const DeviceOptions options_;
  std::unique_ptr<DeviceCommunicator> communicator_;
  bool is_formed_ = false;
  Status failure_;
  Totals totals_;
};

}  // namespace

StatusOr<std::unique_ptr<Collective>> makeDeviceCollective(
    std::unique_ptr<transport::Transport> transport, DeviceLibrary& library,
    const DeviceOptions& options) {
  auto collective = std::make_unique<DeviceCollective>(std::move(transport), options);
  TY_RETURN_IF_ERROR(collective->form(library));
  return collective;
}

}  // namespace trainyard::runtime::collective
