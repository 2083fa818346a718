// Direct exchange: every rank sends each slice to the rank that it belongs to, which puts the
// ranks' parts together in the order of ranks and sends the result to all. Two rounds, and the bits
// depend on nothing but the ranks' order.
//
// Between two ranks go the segments of one slice, then the segments of the other's result. What
// arrives to be put together has to wait for the parts of lower ranks, in scratch memory of two
// segments for each rank: while one is put together the next arrives.
#include "runtime/collective/cost.h"
#include "runtime/collective/internal/call.h"

namespace trainyard::runtime::collective::internal {
namespace {

constexpr std::int64_t kSlots = 2;

class Direct {
 public:
  Direct(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch)
      : call_(call),
        array_(array),
        divisor_(divisor),
        numbers_(static_cast<std::size_t>(call.size())),
        last_sent_(static_cast<std::size_t>(call.size())) {
    const auto size = static_cast<std::int64_t>(sizeOf(array.type));
    const std::int64_t largest = sliceOf(array.elements, 0, call.size()).size();
    segments_ = segmentsOf(largest * size);
    slot_bytes_ = static_cast<std::size_t>((largest / segments_ + 1) * size);
    slots_ = scratch.get(slot_bytes_ * kSlots * static_cast<std::size_t>(call.size()));
  }

  Status run(bool gather) {
    forPeers([&](int peer) {
      for (std::int64_t j = 0; j < segments_; ++j) {
        last_sent_[static_cast<std::size_t>(peer)] = call_.send(peer, part(j), segment(peer, j));
      }
      for (std::int64_t j = 0; j < std::min(kSlots, segments_); ++j) postPiece(peer, j);
    });
    for (std::int64_t j = 0; j < segments_; ++j) {
      TY_RETURN_IF_ERROR(piecesArrived(j));
      putTogether(j);
      const Array result = segment(call_.rank(), j);
      forPeers([&](int peer) {
        if (gather) {
          last_sent_[static_cast<std::size_t>(peer)] =
              call_.send(peer, part(segments_ + j), result);
        }
        if (j + kSlots < segments_) postPiece(peer, j + kSlots);
      });
    }
    if (gather) TY_RETURN_IF_ERROR(gatherResults());
    Status sent;
    forPeers([&](int peer) {
      if (sent.ok())
        sent = call_.sent(peer, last_sent_[static_cast<std::size_t>(peer)], gather ? 1 : 0);
    });
    return sent;
  }

 private:
  template <typename Act>
  void forPeers(const Act& act) {
    // Beginning after this rank, so that not all send to the same one first.
    for (int k = 1; k < call_.size(); ++k) act((call_.rank() + k) % call_.size());
  }
  static std::uint32_t part(std::int64_t j) { return static_cast<std::uint32_t>(j); }

  Array segment(int slice, std::int64_t j) const {
    const Range range = sliceOf(array_.elements, slice, call_.size());
    return array_.slice(range.begin + range.size() * j / segments_,
                        range.begin + range.size() * (j + 1) / segments_);
  }
  std::byte* slot(int peer, std::int64_t j) const {
    return slots_ + slot_bytes_ * static_cast<std::size_t>(peer * kSlots + j % kSlots);
  }
  void postPiece(int peer, std::int64_t j) {
    const Array own = segment(call_.rank(), j);
    numbers_[static_cast<std::size_t>(peer)] =
        call_.receive(peer, part(j), {slot(peer, j), own.elements, own.type});
    posted_ = std::max(posted_, j);
  }

  Status piecesArrived(std::int64_t j) {
    Status arrived;
    // The last posted is posted_, so that of j has a number that is as much smaller.
    forPeers([&](int peer) {
      const auto number =
          numbers_[static_cast<std::size_t>(peer)] - static_cast<std::uint64_t>(posted_ - j);
      if (arrived.ok()) arrived = call_.received(peer, number, 0);
    });
    return arrived;
  }

  void putTogether(std::int64_t j) {
    const Array own = segment(call_.rank(), j);
    std::vector<const std::byte*> sources;
    for (int r = 0; r < call_.size(); ++r) {
      sources.push_back(r == call_.rank() ? own.data : slot(r, j));
    }
    std::byte* const target = own.data;
    reduceAcross(own.type, call_.operation().op, sources, {&target, 1}, own.elements);
    divide(own, divisor_);
  }

  Status gatherResults() {
    Status arrived;
    forPeers([&](int peer) {
      for (std::int64_t j = 0; j < segments_; ++j) {
        numbers_[static_cast<std::size_t>(peer)] =
            call_.receive(peer, part(segments_ + j), segment(peer, j));
      }
    });
    forPeers([&](int peer) {
      if (arrived.ok()) arrived = call_.received(peer, numbers_[static_cast<std::size_t>(peer)], 1);
    });
    return arrived;
  }

  Call& call_;
  const Array array_;
  const std::int64_t divisor_;
  std::vector<std::uint64_t> numbers_;  // of the last receive posted, by peer
  std::vector<std::uint64_t> last_sent_;
  std::int64_t posted_ = 0;  // the last segment whose pieces are posted
  std::int64_t segments_ = 1;
  std::size_t slot_bytes_ = 0;
  std::byte* slots_ = nullptr;
};

}  // namespace

Status directAllReduce(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch) {
  return Direct(call, array, divisor, scratch).run(true);
}

Status directReduceScatter(Call& call, const Array& array, std::int64_t divisor, Scratch& scratch) {
  return Direct(call, array, divisor, scratch).run(false);
}

}  // namespace trainyard::runtime::collective::internal
