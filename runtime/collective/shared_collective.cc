#include "runtime/collective/shared_collective.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "runtime/collective/internal/arguments.h"
#include "runtime/collective/internal/meeting.h"

namespace trainyard::runtime::collective {
namespace {

using transport::Algorithm;
using transport::Kind;
using transport::Operation;
using transport::SharedArena;

// What is averaged is divided while it is still in the second-level cache.
constexpr std::int64_t kAverageBlock = 32 * 1024;
// Every rank puts arrays up to this size together by itself: what that costs is less than a
// meeting.
constexpr std::size_t kTinyBytes = kTinyPlacesBytes / 2;
// What goes through the windows, and is more than the first of these, goes in pieces of the second:
// they stay in the caches between the two copies. Of 4 MiB and two ranks that saves a third of the
// time where waits spin, an eighth where they sleep; of 1 MiB the meetings would cost a third
// there.
constexpr std::size_t kWholeBytes = std::size_t{1} << 20;
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
constexpr std::size_t kTableBytes = sizeof(std::int64_t) * transport::kMaxRanks;

class SharedCollective : public Collective {
 public:
  SharedCollective(std::unique_ptr<transport::Transport> transport,
                   std::shared_ptr<SharedArena> arena, std::span<std::byte> window,
                   std::span<std::byte> tiny, const CollectiveOptions& options)
      : transport_(std::move(transport)),
        arena_(std::move(arena)),
        options_(options),
        table_(window.first(kTableBytes)),
        window_(window.subspan(kTableBytes)),
        tiny_(tiny),
        members_(static_cast<std::size_t>(transport_->size())) {
    std::iota(members_.begin(), members_.end(), 0);
  }

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  void abort(const Status& status) override { transport_->abort(status); }
  Totals totals() const override { return totals_; }

  Status allReduce(const Array& array, Reduction reduction) override {
    Call call = begin(Kind::kAllReduce, array, reduction, 0);
    const std::int64_t divisor = internal::divisorOf(reduction, size());
    if (array.bytes() <= kTinyBytes) return allReduceTiny(call, array, divisor);
    TY_RETURN_IF_ERROR(call.meeting.meet(array));
    if (call.meeting.allInArena()) {
      reduceSlice(call, arraysOfAll(call, array), divisor, true);
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
      return finish(call);
    }
    return inPieces(call, array, array, [&](const std::vector<Array>& pieces) {
      reduceSlice(call, pieces, divisor, true);
    });
  }

  Status reduceScatter(const Array& array, Reduction reduction) override {
    Call call = begin(Kind::kReduceScatter, array, reduction, 0);
    const std::int64_t divisor = internal::divisorOf(reduction, size());
    TY_RETURN_IF_ERROR(call.meeting.meet(array));
    if (call.meeting.allInArena()) {
      reduceSlice(call, arraysOfAll(call, array), divisor, false);
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
      return finish(call);
    }
    // A piece's slices are not the array's: every rank puts whole pieces together, as far as they
    // are in its slice.
    const Range own = sliceOf(array.elements, rank(), size());
    std::int64_t at = 0;
    return inPieces(
        call, array, {array.data, 0, array.type}, [&](const std::vector<Array>& pieces) {
          const std::int64_t n = pieces[0].elements;
          const Range mine{std::max(own.begin, at), std::min(own.end, at + n)};
          if (mine.size() > 0) {
            const Array target = array.slice(mine.begin, mine.end);
            reduceRange(call, pieces, {mine.begin - at, mine.end - at}, {&target, 1}, divisor);
          }
          at += n;
        });
  }

  Status allGather(const Array& array, std::span<const std::int64_t> counts) override {
    TY_RETURN_IF_ERROR(internal::checkCounts(counts, size(), array.elements));
    Call call = begin(Kind::kAllGather, array, Reduction::kSum, 0);
    std::vector<Range> ranges;
    std::int64_t at = 0;
    for (const std::int64_t count : counts) {
      ranges.push_back({at, at + count});
      at += count;
    }
    const Range own = ranges[static_cast<std::size_t>(rank())];
    TY_RETURN_IF_ERROR(call.meeting.meet(array));
    if (call.meeting.allInArena()) {
      const std::vector<Array> all = arraysOfAll(call, array);
      for (int r = 0; r < size(); ++r) {
        const Range range = ranges[static_cast<std::size_t>(r)];
        copyFrom(r, all[static_cast<std::size_t>(r)].slice(range.begin, range.end),
                 array.slice(range.begin, range.end).data);
      }
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
      return finish(call);
    }
    const std::int64_t largest = *std::max_element(counts.begin(), counts.end());
    const std::int64_t step = windowElements(array.type);
    for (std::int64_t b = 0; b < largest; b += step) {
      const auto pieceOf = [&](const Range& range) {
        const std::int64_t begin = std::min(range.end, range.begin + b);
        return array.slice(begin, std::min(range.end, begin + step));
      };
      const Array mine = pieceOf(own);
      std::copy_n(mine.data, mine.bytes(), window_.data());
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
      for (int r = 0; r < size(); ++r) {
        const Array piece = pieceOf(ranges[static_cast<std::size_t>(r)]);
        copyFrom(r, {windowOf(r), piece.elements, piece.type}, piece.data);
      }
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
    }
    return finish(call);
  }

  Status broadcast(const Array& array, int root) override {
    TY_RETURN_IF_ERROR(internal::checkRoot(root, size()));
    Call call = begin(Kind::kBroadcast, array, Reduction::kSum, root);
    TY_RETURN_IF_ERROR(call.meeting.meet(array));
    if (call.meeting.inArena(root)) {
      copyFrom(root, arraysOfAll(call, array)[static_cast<std::size_t>(root)], array.data);
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
      return finish(call);
    }
    const std::int64_t step = windowElements(array.type);
    for (std::int64_t b = 0; b < array.elements; b += step) {
      const Array piece = array.slice(b, std::min(array.elements, b + step));
      if (rank() == root) std::copy_n(piece.data, piece.bytes(), window_.data());
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
      copyFrom(root, {windowOf(root), piece.elements, piece.type}, piece.data);
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
    }
    return finish(call);
  }

  // The table says where in the sender's array, or window, each rank's part begins.
  Status allToAll(const Array& send, std::span<const std::int64_t> send_counts,
                  const Array& receive, std::span<const std::int64_t> receive_counts,
                  std::int64_t total) override {
    TY_RETURN_IF_ERROR(
        internal::checkAllToAll(send, send_counts, receive, receive_counts, rank(), size()));
    Call call = begin(Kind::kAllToAll, send, Reduction::kSum, 0);
    call.meeting.setElements(total);
    call.meeting.setArgument(*std::max_element(send_counts.begin(), send_counts.end()));
    writeTable(send_counts);
    TY_RETURN_IF_ERROR(call.meeting.meet(send));
    const std::int64_t largest = call.meeting.largestArgument();
    const bool direct = call.meeting.allInArena();
    const std::int64_t step =
        direct ? std::max<std::int64_t>(1, largest) : windowElements(send.type) / size();
    for (std::int64_t b = 0; b < largest; b += step) {
      if (!direct) {
        fillWindow(send, send_counts, b, step);
        TY_RETURN_IF_ERROR(call.meeting.meet(send));
      }
      std::int64_t into = 0;
      for (int r = 0; r < size(); ++r) {
        const std::int64_t count = receive_counts[static_cast<std::size_t>(r)];
        const std::int64_t begin = std::min(count, b);
        const std::int64_t n = std::min(count - begin, step);
        const Array from =
            direct
                ? Array{call.meeting.arrayAt(r) +
                            static_cast<std::size_t>(readTable(r)) * sizeOf(send.type),
                        n, send.type}
                : Array{windowOf(r) + static_cast<std::size_t>(rank() * step) * sizeOf(send.type),
                        n, send.type};
        copyFrom(r, from, receive.slice(into + begin, into + begin + n).data);
        into += count;
      }
      if (!direct) TY_RETURN_IF_ERROR(call.meeting.meet(send));
    }
    if (direct) TY_RETURN_IF_ERROR(call.meeting.meet(send));
    return finish(call);
  }

  Status barrier() override {
    Call call = begin(Kind::kBarrier, {}, Reduction::kSum, 0);
    TY_RETURN_IF_ERROR(call.meeting.meet({}));
    return finish(call);
  }

 private:
  struct Call {
    internal::Meeting meeting;
    TimePoint start;
  };

  Call begin(Kind kind, const Array& array, Reduction reduction, int root) {
    const TimePoint start = systemClock().now();
    const Operation operation =
        internal::operationOf(totals_.operations++, kind, array, reduction, Algorithm::kDirect);
    return {{*arena_, *transport_, members_, operation, static_cast<std::uint64_t>(root),
             start + options_.timeout},
            start};
  }

  Status finish(const Call& call) {
    totals_.rounds += static_cast<std::uint64_t>(call.meeting.count());
    totals_.seconds += systemClock().now() - call.start;
    return absl::OkStatus();
  }

  // In one meeting, after which every rank reads what all have brought. There are two places for
  // it, taken in turns: by the meeting of the next one all have read this.
  Status allReduceTiny(Call& call, const Array& array, std::int64_t divisor) {
    const std::span<std::byte> own = tiny_.subspan(next_tiny_ * kTinyBytes, kTinyBytes);
    next_tiny_ = 1 - next_tiny_;
    std::copy_n(array.data, array.bytes(), own.data());
    TY_RETURN_IF_ERROR(call.meeting.meet(array));
    brought_.clear();
    for (int r = 0; r < size(); ++r) {
      brought_.push_back({elsewhere(own.data(), r), array.elements, array.type});
    }
    reduceRange(call, brought_, {0, array.elements}, {&array, 1}, divisor);
    totals_.bytes_sent += array.bytes() * static_cast<std::size_t>(size() - 1);  // others read it
    return finish(call);
  }

  std::vector<Array> arraysOfAll(const Call& call, const Array& like) const {
    std::vector<Array> all;
    for (int r = 0; r < size(); ++r) {
      all.push_back({call.meeting.arrayAt(r), like.elements, like.type});
    }
    return all;
  }

  // What all ranks have allocated lies at the same place in every part.
  std::byte* elsewhere(const std::byte* own, int r) const {
    return arena_->part(r) + (own - arena_->part(rank()));
  }
  std::byte* windowOf(int r) const { return elsewhere(window_.data(), r); }
  std::int64_t windowElements(ElementType type) const {
    return static_cast<std::int64_t>(window_.size() / sizeOf(type));
  }

  void writeTable(std::span<const std::int64_t> counts) {
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      std::memcpy(table_.data() + 8 * r, &begin, 8);
      begin += counts[r];
    }
  }
  std::int64_t readTable(int r) const {
    std::int64_t begin;
    std::memcpy(&begin, elsewhere(table_.data(), r) + 8 * static_cast<std::size_t>(rank()), 8);
    return begin;
  }
  void fillWindow(const Array& send, std::span<const std::int64_t> counts, std::int64_t b,
                  std::int64_t step) {
    std::int64_t at = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const std::int64_t begin = std::min(counts[r], b);
      const Array piece = send.slice(at + begin, at + std::min(counts[r], begin + step));
      std::copy_n(piece.data, piece.bytes(),
                  window_.data() + r * static_cast<std::size_t>(step) * sizeOf(send.type));
      at += counts[r];
    }
  }

  void copyFrom(int r, const Array& from, std::byte* to) {
    if (from.data == to || from.elements == 0) return;
    std::memcpy(to, from.data, from.bytes());
    if (r != rank()) totals_.bytes_received += from.bytes();
  }

  // This rank's slice of arrays of equal size, into all of them or only its own.
  void reduceSlice(const Call& call, const std::vector<Array>& arrays, std::int64_t divisor,
                   bool everywhere) {
    const Range own = sliceOf(arrays[0].elements, rank(), size());
    std::vector<Array> targets;
    for (int r = 0; r < size(); ++r) {
      if (everywhere || r == rank()) {
        targets.push_back(arrays[static_cast<std::size_t>(r)].slice(own.begin, own.end));
      }
    }
    reduceRange(call, arrays, own, targets, divisor);
  }

  void reduceRange(const Call& call, const std::vector<Array>& arrays, Range range,
                   std::span<const Array> targets, std::int64_t divisor) {
    const ElementType type = arrays[0].type;
    const std::size_t size_of = sizeOf(type);
    totals_.bytes_received +=
        static_cast<std::uint64_t>(range.size()) * size_of * static_cast<std::uint64_t>(size() - 1);
    totals_.bytes_sent += static_cast<std::uint64_t>(range.size()) * size_of *
                          static_cast<std::uint64_t>(targets.size() - 1);
    const std::int64_t step = divisor > 1 ? kAverageBlock : std::max<std::int64_t>(1, range.size());
    from_.resize(arrays.size());
    to_.resize(targets.size());
    for (std::int64_t b = 0; b < range.size(); b += step) {
      const std::int64_t n = std::min(step, range.size() - b);
      for (std::size_t r = 0; r < arrays.size(); ++r) {
        from_[r] = arrays[r].data + static_cast<std::size_t>(range.begin + b) * size_of;
      }
      for (std::size_t t = 0; t < targets.size(); ++t) {
        to_[t] = targets[t].data + static_cast<std::size_t>(b) * size_of;
      }
      if (divisor == 1) {
        reduceAcross(type, call.meeting.operation().op, from_, to_, n);
        continue;
      }
      reduceAcross(type, call.meeting.operation().op, from_, std::span(to_).first(1), n);
      divideElements(type, to_[0], n, divisor);
      for (std::byte* other : std::span(to_).subspan(1)) {
        std::memcpy(other, to_[0], static_cast<std::size_t>(n) * size_of);
      }
    }
  }

  // `array` through the windows of all ranks; `act` is given the same piece of every rank, and what
  // it leaves in this rank's window goes to the same place of `result`, as far as that reaches.
  template <typename Act>
  Status inPieces(Call& call, const Array& array, const Array& result, const Act& act) {
    const std::int64_t most = windowElements(array.type);
    const std::int64_t small = static_cast<std::int64_t>(kPieceBytes / sizeOf(array.type));
    const std::int64_t step = array.bytes() > kWholeBytes ? std::min(most, small) : most;
    for (std::int64_t b = 0; b < array.elements; b += step) {
      const Array piece = array.slice(b, std::min(array.elements, b + step));
      std::copy_n(piece.data, piece.bytes(), window_.data());
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
      std::vector<Array> pieces;
      for (int r = 0; r < size(); ++r) {
        pieces.push_back({windowOf(r), piece.elements, piece.type});
      }
      act(pieces);
      TY_RETURN_IF_ERROR(call.meeting.meet(array));
      if (result.elements > 0) std::copy_n(window_.data(), piece.bytes(), piece.data);
    }
    return finish(call);
  }

  const std::unique_ptr<transport::Transport> transport_;
  const std::shared_ptr<SharedArena> arena_;
  const CollectiveOptions options_;
  const std::span<std::byte> table_;
  const std::span<std::byte> window_;
  const std::span<std::byte> tiny_;  // two places
  std::size_t next_tiny_ = 0;
  std::vector<int> members_;  // all ranks
  // Kept, so that a small array costs no allocation.
  std::vector<Array> brought_;
  std::vector<const std::byte*> from_;
  std::vector<std::byte*> to_;
  Totals totals_;
};

}  // namespace

std::size_t windowBytes(std::size_t arena_bytes) {
  constexpr std::size_t kMost = std::size_t{4} << 20;
  return kTableBytes + std::min(kMost, arena_bytes / 4 / 64 * 64);
}

StatusOr<std::unique_ptr<Collective>> makeSharedCollective(
    std::unique_ptr<transport::Transport> transport, std::shared_ptr<SharedArena> arena,
    const CollectiveOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::span<std::byte> window,
                      arena->allocate(windowBytes(arena->bytes())));
  TY_ASSIGN_OR_RETURN(const std::span<std::byte> tiny, arena->allocate(kTinyPlacesBytes));
  std::unique_ptr<Collective> collective = std::make_unique<SharedCollective>(
      std::move(transport), std::move(arena), window, tiny, options);
  return collective;
}

}  // namespace trainyard::runtime::collective
