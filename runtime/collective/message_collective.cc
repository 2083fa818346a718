#include "runtime/collective/message_collective.h"

#include <algorithm>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/collective/cost.h"
#include "runtime/collective/internal/arguments.h"
#include "runtime/collective/internal/call.h"

namespace trainyard::runtime::collective {
namespace {

using transport::Algorithm;
using transport::Kind;
using transport::Operation;

class MessageCollective : public Collective {
 public:
  MessageCollective(std::unique_ptr<transport::Transport> transport,
                    const CollectiveOptions& options)
      : transport_(std::move(transport)), options_(options) {
    TY_CHECK(!options.wire || sizeOf(*options.wire) == 2, "a 16-bit float on the wire");
  }

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void abort(const Status& status) override { transport_->abort(status); }

  Status allReduce(const Array& array, Reduction reduction) override {
    const std::int64_t divisor = internal::divisorOf(reduction, size());
    const bool on_wire = options_.wire && array.type == ElementType::kFloat32;
    Operation o = describe(Kind::kAllReduce, array, reduction);
    o.algorithm = allReduceAlgorithm(array, on_wire);
    if (on_wire) o.wire = *options_.wire;
    return run(o, [&](internal::Call& call) {
      switch (o.algorithm) {
        case Algorithm::kRing:
          return internal::ringAllReduce(call, array, divisor);
        case Algorithm::kHalvingDoubling:
          return internal::halvingDoubling(call, array, divisor);
        case Algorithm::kDoubling:
          return internal::doubling(call, array, divisor, scratch_);
        case Algorithm::kDirect:
        case Algorithm::kHierarchical:  // needs shared memory
          return on_wire ? internal::directOnWire(call, array, divisor, scratch_)
                         : internal::directAllReduce(call, array, divisor, scratch_);
      }
      TY_CHECK(false, "the algorithms above are all there are");
    });
  }

  Status reduceScatter(const Array& array, Reduction reduction) override {
    const std::int64_t divisor = internal::divisorOf(reduction, size());
    Operation o = describe(Kind::kReduceScatter, array, reduction);
    o.algorithm = options_.deterministic ? Algorithm::kDirect : Algorithm::kRing;
    return run(o, [&](internal::Call& call) {
      return options_.deterministic ? internal::directReduceScatter(call, array, divisor, scratch_)
                                    : internal::ringReduceScatter(call, array, divisor);
    });
  }

  Status allGather(const Array& array, std::span<const std::int64_t> counts) override {
    TY_RETURN_IF_ERROR(internal::checkCounts(counts, size(), array.elements));
    const Operation o = describe(Kind::kAllGather, array, Reduction::kSum);
    return run(o,
               [&](internal::Call& call) { return internal::ringAllGather(call, array, counts); });
  }

  Status broadcast(const Array& array, int root) override {
    TY_RETURN_IF_ERROR(internal::checkRoot(root, size()));
    const auto bytes = static_cast<std::int64_t>(array.bytes());
    Operation o = describe(Kind::kBroadcast, array, Reduction::kSum);
    o.algorithm = bytes > kTreeBytes ? Algorithm::kRing : Algorithm::kHalvingDoubling;
    return run(o, [&](internal::Call& call) {
      return bytes > kTreeBytes ? internal::chainBroadcast(call, array, root)
                                : internal::treeBroadcast(call, array, root);
    });
  }

  Status allToAll(const Array& send, std::span<const std::int64_t> send_counts,
                  const Array& receive, std::span<const std::int64_t> receive_counts,
                  std::int64_t total) override {
    TY_RETURN_IF_ERROR(
        internal::checkAllToAll(send, send_counts, receive, receive_counts, rank(), size()));
    if (size() == 1) std::copy_n(send.data, send.bytes(), receive.data);
    Operation o = describe(Kind::kAllToAll, send, Reduction::kSum);
    o.algorithm = Algorithm::kDirect;
    o.elements = static_cast<std::uint64_t>(total);
    return run(o, [&](internal::Call& call) {
      return internal::pairwiseAllToAll(call, send, send_counts, receive, receive_counts);
    });
  }

  Status barrier() override {
    Operation o = describe(Kind::kBarrier, {}, Reduction::kSum);
    o.algorithm = Algorithm::kDirect;
    return run(o, [](internal::Call& call) { return internal::disseminationBarrier(call); });
  }

  Totals totals() const override {
    Totals totals = totals_;
    const transport::Counters& counters = transport_->counters();
    totals.messages_sent = counters.messages_sent;
    totals.bytes_sent = counters.bytes_sent;
    totals.bytes_received = counters.bytes_received;
    return totals;
  }

 private:
  Operation describe(Kind kind, const Array& array, Reduction reduction) const {
    return internal::operationOf(totals_.operations, kind, array, reduction, Algorithm::kRing);
  }

  Algorithm allReduceAlgorithm(const Array& array, bool on_wire) const {
    if (options_.deterministic || on_wire) return Algorithm::kDirect;
    const auto bytes = static_cast<std::int64_t>(array.bytes());
    return options_.algorithm.value_or(allReduceAlgorithmFor(bytes, size()));
  }

  template <typename Act>
  Status run(const Operation& operation, const Act& act) {
    const TimePoint start = systemClock().now();
    ++totals_.operations;
    if (size() == 1) return absl::OkStatus();
    internal::Call call(*transport_, operation, start + options_.timeout);
    const Status done = act(call);
    totals_.seconds += systemClock().now() - start;
    totals_.rounds += static_cast<std::uint64_t>(call.rounds());
    return done;
  }

  const std::unique_ptr<transport::Transport> transport_;
  const CollectiveOptions options_;
  internal::Scratch scratch_;
  Totals totals_;
};

}  // namespace

std::unique_ptr<Collective> makeMessageCollective(std::unique_ptr<transport::Transport> transport,
                                                  const CollectiveOptions& options) {
  return std::make_unique<MessageCollective>(std::move(transport), options);
}

}  // namespace trainyard::runtime::collective
