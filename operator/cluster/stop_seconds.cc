#include "operator/cluster/stop_seconds.h"

namespace trainyard::control {

std::chrono::seconds stopSeconds(const v1::RunPolicy& policy) {
  return std::chrono::seconds(policy.has_stop_seconds() ? policy.stop_seconds() : 60);
}

}  // namespace trainyard::control
