// Lives of one task: started later is newer.
#pragma once

#include <utility>

#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime {

// To be compared with another life of the same task.
inline auto order(const v1::Incarnation& i) {
  return std::pair(i.created(), i.start());
}

inline bool same(const v1::Incarnation& a, const v1::Incarnation& b) {
  return order(a) == order(b);
}

}  // namespace trainyard::runtime
