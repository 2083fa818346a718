// Groups of ranks for tests: threads of this process over each transport. (Real processes are in
// fault_test.cc.)
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/collective/group.h"

namespace trainyard::runtime::collective::testing {

enum class Over { kInProcess, kTcp, kTls, kShared, kHosts };
struct Group {
  Over over;
  int ranks;
  std::vector<int> hosts = {};  // of kHosts: that of each rank
};
Group onHosts(const std::vector<int>& hosts);
std::string nameOf(const Group& group);
// Every transport with numbers of ranks below, at and above powers of two.
std::vector<Group> groups();

// One thread for each rank; returns what `act` returned, by rank. A group that cannot be formed is
// its ranks' result.
std::vector<Status> runRanks(const Group& group, const CollectiveOptions& options,
                             const std::function<Status(Collective&)>& act);

// The same by the factory, over one address of this machine for each host.
std::vector<Status> runHosts(const std::vector<int>& hosts, const GroupOptions& options,
                             const std::function<Status(collective::Group&, int rank)>& act);

}  // namespace trainyard::runtime::collective::testing
