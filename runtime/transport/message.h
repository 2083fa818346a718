// What messages between ranks are part of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/tensor/reduce.h"

namespace trainyard::runtime::transport {

inline constexpr int kMaxRanks = 256;
// Headers are this much more for each message on TCP.
inline constexpr std::size_t kFrameBytes = 56;

// The numbers are sent between processes.
enum class Kind : std::uint8_t {
  kMessage = 0,  // no collective operation: set-up, tests
  kAllReduce = 1,
  kReduceScatter = 2,
  kAllGather = 3,
  kBroadcast = 4,
  kAllToAll = 5,
  kBarrier = 6,
};
inline constexpr int kKinds = 7;
enum class Algorithm : std::uint8_t {
  kRing = 0,
  kHalvingDoubling = 1,
  kDirect = 2,
  kHierarchical = 3,  // in each host's shared memory, and between hosts
  kDoubling = 4,
};
inline constexpr int kAlgorithms = 5;
std::string_view nameOf(Kind kind);            // "all_reduce"
std::string_view nameOf(Algorithm algorithm);  // "ring"

// One operation of a group. Two ranks that are not in the same one find out by it.
struct Operation {
  std::uint64_t number = 0;  // operations of the group before it
  Kind kind = Kind::kMessage;
  Algorithm algorithm = Algorithm::kRing;
  ElementType type = ElementType::kFloat32;
  ElementType wire = ElementType::kFloat32;  // what travels, where that differs
  ReduceOp op = ReduceOp::kSum;
  std::uint64_t elements = 0;  // of the whole operation, the same on all ranks
  bool operator==(const Operation&) const = default;
};
// "all_reduce sum of 1000 float32 (ring, operation 12)"
std::string toString(const Operation& operation);

struct MessageId {
  Operation operation;
  std::uint32_t part = 0;  // numbers the messages of an operation between two ranks
  bool operator==(const MessageId&) const = default;
};

// Where a message goes: stored at `into`, or put together with what is there as it arrives.
struct Landing {
  struct Combine {
    ElementType type = ElementType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
  };
  std::byte* into = nullptr;
  std::size_t bytes = 0;  // of the message; with `combine` whole elements
  std::optional<Combine> combine = {};
};

}  // namespace trainyard::runtime::transport
