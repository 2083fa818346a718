// Clipping over several servers: the norm of a step's mean gradient, from each server's sum of
// squares. The sums are exact: servers are added in any order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/coordinator/chunk_holders.h"
#include "runtime/coordinator/member.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/tensor/square_sum.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Of one epoch. Not thread-safe.
class GradientNorm {
 public:
  // What a server has summed, of which the newest counts: reports may overtake one another. Says
  // what is wrong with it.
  std::optional<std::string> add(const MemberKey& key, const v1::SquareSum& told);
  // When every server that has variables has summed the same step, its norm is known.
  void follow(const Membership& membership, const ChunkHolders& chunks, Outbox& out);
  // Some chunks have taken the epoch's first step. With which norm, those know that hold them; the
  // others take it with the same.
  void followKnown(const Membership& membership, std::int64_t first_step);
  void endEpoch();

  void tell(v1::View& view) const;

 private:
  struct Part {
    std::int64_t step = -1;
    SquareSum squares;
  };
  std::map<MemberKey, Part> parts_;
  std::optional<v1::GradientNorm> newest_;
};

}  // namespace trainyard::runtime
