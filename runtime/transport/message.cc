#include "runtime/transport/message.h"

#include "base/core/check.h"
#include "fmt/format.h"

namespace trainyard::runtime::transport {

std::string_view nameOf(Kind kind) {
  switch (kind) {
    case Kind::kMessage:
      return "message";
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kBarrier:
      return "barrier";
  }
  TY_CHECK(false, "the kinds above are all there are");
}

std::string_view nameOf(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kHalvingDoubling:
      return "halving-doubling";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kHierarchical:
      return "hierarchical";
    case Algorithm::kDoubling:
      return "doubling";
  }
  TY_CHECK(false, "the algorithms above are all there are");
}

std::string toString(const Operation& o) {
  // What another process left in shared memory may be anything.
  if (static_cast<int>(o.kind) >= kKinds || static_cast<int>(o.algorithm) >= kAlgorithms ||
      static_cast<int>(o.type) >= kElementTypes || static_cast<int>(o.wire) >= kElementTypes ||
      static_cast<int>(o.op) >= kReduceOps) {
    return "an operation that does not exist";
  }
  const bool reduces = o.kind == Kind::kAllReduce || o.kind == Kind::kReduceScatter;
  std::string text(nameOf(o.kind));
  if (reduces) text += fmt::format(" {}", nameOf(o.op));
  if (o.kind != Kind::kBarrier && o.kind != Kind::kMessage) {
    text += fmt::format(" of {} {}", o.elements, nameOf(o.type));
    if (o.wire != o.type) text += fmt::format(" as {}", nameOf(o.wire));
  }
  return text + fmt::format(" ({}, operation {})", nameOf(o.algorithm), o.number);
}

}  // namespace trainyard::runtime::transport
