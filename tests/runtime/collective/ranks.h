// Groups of ranks for tests: threads of this process over each transport. (Real processes are in
// fault_test.cc.)
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/collective/collective.h"
#include "runtime/collective/message_collective.h"

namespace trainyard::runtime::collective::testing {

enum class Over { kInProcess, kTcp, kShared };
struct Group {
  Over over;
  int ranks;
};
std::string nameOf(const Group& group);
// Every transport with numbers of ranks below, at and above powers of two.
std::vector<Group> groups();

// One thread for each rank; returns what `act` returned, by rank. A group that cannot be formed is
// its ranks' result.
std::vector<Status> runRanks(const Group& group, const CollectiveOptions& options,
                             const std::function<Status(Collective&)>& act);

}  // namespace trainyard::runtime::collective::testing
