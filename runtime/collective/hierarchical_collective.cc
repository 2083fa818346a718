#include "runtime/collective/hierarchical_collective.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/collective/cost.h"
#include "runtime/collective/internal/arguments.h"
#include "runtime/collective/internal/call.h"
#include "runtime/collective/internal/meeting.h"
#include "runtime/collective/shared_collective.h"
#include "runtime/transport/rank_view.h"

namespace trainyard::runtime::collective {
namespace {

using transport::Algorithm;
using transport::Kind;
using transport::Operation;
using transport::RankView;
using transport::SharedArena;

// No algorithm numbers its messages that far.
constexpr std::uint32_t kGreeting = 0xFFFFFFFF;

std::vector<int> allOf(int ranks) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  return all;
}

class HierarchicalCollective : public Collective {
 public:
  HierarchicalCollective(std::unique_ptr<transport::Transport> transport,
                         std::shared_ptr<SharedArena> arena, std::span<std::byte> window,
                         Hosts hosts, const CollectiveOptions& options)
      : transport_(std::move(transport)),
        arena_(std::move(arena)),
        window_(window),
        hosts_(std::move(hosts)),
        options_(options),
        flat_(makeMessageCollective(
            std::make_unique<RankView>(*transport_, allOf(transport_->size()), transport_->rank()),
            options)) {
    if (hosts_.place < hosts_.lanes()) lane_.emplace(*transport_, hosts_.lane(), hosts_.host);
  }

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void abort(const Status& status) override { transport_->abort(status); }

  // Both of the network's and of the memory's bytes.
  Totals totals() const override {
    Totals totals = flat_->totals();
    totals.operations = operations_;
    totals.rounds += rounds_;
    totals.bytes_sent += written_;
    totals.bytes_received += read_;
    totals.seconds = seconds_;
    return totals;
  }

  Status allReduce(const Array& array, Reduction reduction) override {
    return run(Kind::kAllReduce, array, reduction, 0, [&](Running& running) -> Status {
      const bool in_place = running.meeting.allInArena();
      const std::int64_t divisor = internal::divisorOf(reduction, size());
      const auto step = static_cast<std::int64_t>(window_.size() / sizeOf(array.type));
      // The same pieces on all hosts, whatever their arrays lie in.
      for (std::int64_t b = 0; b < array.elements; b += step) {
        const Array piece = array.slice(b, std::min(array.elements, b + step));
        TY_RETURN_IF_ERROR(in_place ? reducePiece(running, arraysAt(running, piece, b), divisor)
                                    : throughWindow(running, piece, divisor));
      }
      TY_RETURN_IF_ERROR(endGreeting(running));
      return in_place ? running.meeting.meet(array) : absl::OkStatus();
    });
  }

  Status reduceScatter(const Array& array, Reduction reduction) override {
    return runFlat(Kind::kReduceScatter, array, reduction, 0,
                   [&] { return flat_->reduceScatter(array, reduction); });
  }

  Status allGather(const Array& array, std::span<const std::int64_t> counts) override {
    TY_RETURN_IF_ERROR(internal::checkCounts(counts, size(), array.elements));
    return runFlat(Kind::kAllGather, array, Reduction::kSum, 0,
                   [&] { return flat_->allGather(array, counts); });
  }

  Status broadcast(const Array& array, int root) override {
    TY_RETURN_IF_ERROR(internal::checkRoot(root, size()));
    return runFlat(Kind::kBroadcast, array, Reduction::kSum, root,
                   [&] { return flat_->broadcast(array, root); });
  }

  Status allToAll(const Array& send, std::span<const std::int64_t> send_counts,
                  const Array& receive, std::span<const std::int64_t> receive_counts,
                  std::int64_t total) override {
    TY_RETURN_IF_ERROR(
        internal::checkAllToAll(send, send_counts, receive, receive_counts, rank(), size()));
    // What each has for others is its own affair; the total is not.
    return runFlat(Kind::kAllToAll, {nullptr, total, send.type}, Reduction::kSum, 0, [&] {
      return flat_->allToAll(send, send_counts, receive, receive_counts, total);
    });
  }

  Status barrier() override {
    return runFlat(Kind::kBarrier, {}, Reduction::kSum, 0, [&] { return flat_->barrier(); });
  }

 private:
  struct Running {
    internal::Meeting meeting;
    TimePoint deadline;
    // Of the greetings; none for a rank without counterparts.
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };

  template <typename Act>
  Status run(Kind kind, const Array& array, Reduction reduction, int root, const Act& act) {
    const TimePoint start = systemClock().now();
    const Operation operation =
        internal::operationOf(operations_++, kind, array, reduction, Algorithm::kHierarchical);
    const TimePoint deadline = start + options_.timeout;
    Running running{{*arena_, *transport_, hosts_.local(), operation,
                     static_cast<std::uint64_t>(root), deadline},
                    deadline};
    Status done = running.meeting.meet(array);
    if (done.ok()) {
      greet(running);
      done = act(running);
    }
    rounds_ += static_cast<std::uint64_t>(running.meeting.count());
    seconds_ += systemClock().now() - start;
    return done;
  }

  template <typename Act>
  Status runFlat(Kind kind, const Array& array, Reduction reduction, int root, const Act& act) {
    return run(kind, array, reduction, root, [&](Running& running) -> Status {
      TY_RETURN_IF_ERROR(act());
      return endGreeting(running);
    });
  }

  void greet(Running& running) {
    if (!lane_) return;
    const int hosts = hosts_.count();
    internal::Call call(*lane_, running.meeting.operation(), running.deadline);
    running.sent = call.send((hosts_.host + 1) % hosts, kGreeting, {});
    running.received = call.receive((hosts_.host + hosts - 1) % hosts, kGreeting, {});
  }

  Status endGreeting(Running& running) {
    if (!lane_) return absl::OkStatus();
    const int hosts = hosts_.count();
    internal::Call call(*lane_, running.meeting.operation(), running.deadline);
    TY_RETURN_IF_ERROR(
        call.received((hosts_.host + hosts - 1) % hosts, running.received, kGreetingRound));
    return call.sent((hosts_.host + 1) % hosts, running.sent, kGreetingRound);
  }

  // All local arrays' `piece`, which begins at element `b`.
  std::vector<Array> arraysAt(const Running& running, const Array& piece, std::int64_t b) const {
    std::vector<Array> arrays;
    for (int p = 0; p < static_cast<int>(hosts_.local().size()); ++p) {
      const Array whole{running.meeting.arrayAt(p), b + piece.elements, piece.type};
      arrays.push_back(whole.slice(b, b + piece.elements));
    }
    return arrays;
  }

  Status throughWindow(Running& running, const Array& piece, std::int64_t divisor) {
    std::copy_n(piece.data, piece.bytes(), window_.data());
    TY_RETURN_IF_ERROR(running.meeting.meetAgain());
    std::vector<Array> windows;
    for (int p = 0; p < static_cast<int>(hosts_.local().size()); ++p) {
      // Windows lie at the same place in every part.
      std::byte* at = arena_->part(p) + (window_.data() - arena_->part(hosts_.place));
      windows.push_back({at, piece.elements, piece.type});
    }
    TY_RETURN_IF_ERROR(reducePiece(running, windows, divisor));
    TY_RETURN_IF_ERROR(running.meeting.meetAgain());
    std::copy_n(window_.data(), piece.bytes(), piece.data);
    return absl::OkStatus();
  }

  // The same piece of all local arrays, by place. Nobody else touches this rank's slice of any.
  Status reducePiece(Running& running, const std::vector<Array>& arrays, std::int64_t divisor) {
    if (!lane_) return absl::OkStatus();
    const Range own = sliceOf(arrays[0].elements, hosts_.place, hosts_.lanes());
    const auto at = static_cast<std::size_t>(hosts_.place);
    const Array mine = arrays[at].slice(own.begin, own.end);
    const std::uint64_t of_others = (arrays.size() - 1) * mine.bytes();
    std::vector<const std::byte*> from;
    for (const Array& array : arrays) from.push_back(array.slice(own.begin, own.end).data);
    std::byte* const into[] = {mine.data};
    if (from.size() > 1 && mine.elements > 0) {
      reduceAcross(mine.type, running.meeting.operation().op, from, into, mine.elements);
    }
    read_ += of_others;
    internal::Call call(*lane_, running.meeting.operation(), running.deadline);
    TY_RETURN_IF_ERROR(reduceBetweenHosts(call, mine, divisor));
    rounds_ += static_cast<std::uint64_t>(call.rounds());
    for (std::size_t p = 0; p < arrays.size() && mine.elements > 0; ++p) {
      if (p != at) std::memcpy(arrays[p].slice(own.begin, own.end).data, mine.data, mine.bytes());
    }
    written_ += of_others;
    return absl::OkStatus();
  }

  Status reduceBetweenHosts(internal::Call& call, const Array& slice, std::int64_t divisor) {
    const auto bytes = static_cast<std::int64_t>(slice.bytes());
    const Algorithm algorithm =
        options_.algorithm.value_or(allReduceAlgorithmFor(bytes, call.size()));
    if (algorithm == Algorithm::kRing) return internal::ringAllReduce(call, slice, divisor);
    return algorithm == Algorithm::kDoubling ? internal::doubling(call, slice, divisor, scratch_)
                                             : internal::halvingDoubling(call, slice, divisor);
  }

  static constexpr int kGreetingRound = 0;

  const std::unique_ptr<transport::Transport> transport_;
  const std::shared_ptr<SharedArena> arena_;
  const std::span<std::byte> window_;
  const Hosts hosts_;
  const CollectiveOptions options_;
  const std::unique_ptr<Collective> flat_;
  std::optional<RankView> lane_;  // this rank's counterparts, by host
  internal::Scratch scratch_;
  std::uint64_t operations_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;
  Duration seconds_{};
};

}  // namespace

StatusOr<std::unique_ptr<Collective>> makeHierarchicalCollective(
    std::unique_ptr<transport::Transport> transport, std::shared_ptr<SharedArena> arena,
    const Hosts& hosts, const CollectiveOptions& options) {
  TY_CHECK(!options.deterministic && !options.wire, "not in the order of ranks, and not rounded");
  TY_ASSIGN_OR_RETURN(const std::span<std::byte> window,
                      arena->allocate(windowBytes(arena->bytes())));
  std::unique_ptr<Collective> collective = std::make_unique<HierarchicalCollective>(
      std::move(transport), std::move(arena), window, hosts, options);
  return collective;
}

}  // namespace trainyard::runtime::collective
