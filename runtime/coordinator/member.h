// One member of a job, as the coordinator knows it.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "base/core/clock.h"
#include "runtime/placement/moves.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime {

struct MemberKey {
  v1::Role role;
  std::uint32_t index;
  auto operator<=>(const MemberKey&) const = default;
};

inline MemberKey keyOf(const v1::TaskId& id) {
  return {id.role(), id.index()};
}

// Whose process a server of a map of chunks is: kWorkerKeeper is worker-0.
inline MemberKey keyOfServer(int server) {
  if (server == kWorkerKeeper) return {v1::ROLE_WORKER, 0};
  return {v1::ROLE_PS, static_cast<std::uint32_t>(server)};
}

struct Member {
  v1::MemberReport report;  // newest of its newest incarnation
  bool joined = false;
  bool in_epoch = false;  // of the epoch that runs
  bool wanted = true;     // by the membership; else it leaves with the epoch
  // Came after the first epoch: nobody waits for it. A server is none once an epoch with it has
  // begun, a worker once it is announced.
  bool newcomer = false;
  bool stays = false;    // was to leave when the epoch was announced, and takes part all the same
  bool source = false;   // not of the epoch that is being prepared, but others fetch from it
  v1::MemberTask place;  // where the newest membership that had it said it was
  TimePoint last_seen{};
  std::optional<std::uint64_t> ticket;  // of its call that waits for a view
  TimePoint parked_since{};
};

}  // namespace trainyard::runtime
