// Where a worker reaches the parameter servers: as the membership says, and as the epoch does.
//
// Of several memberships in a row a worker may see only some, and the one that an epoch began with
// may be among the others: a server that was added and is to leave again stands in that one alone.
// So an epoch names its servers, and a membership older than the epoch's says nothing about them.
// No sockets; not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime::ps {

class ServerAddresses {
 public:
  struct Address {
    int ps = 0;
    std::string target;  // "ip:port"
    bool near = false;   // the worker's own address
    bool operator==(const Address&) const = default;
  };

  explicit ServerAddresses(std::uint32_t worker) : worker_(worker) {}

  // What holds from now on for the servers named in the answer; the others stay where they were.
  std::vector<Address> onMembership(const v1::Membership& membership);
  std::vector<Address> onView(const v1::View& view);

 private:
  const std::uint32_t worker_;
  std::string own_ip_;         // of the newest membership; empty: it does not say
  std::int64_t epoch_ = 0;     // the newest whose servers are known,
  std::int64_t revision_ = 0;  // the membership that it was planned from,
  std::set<int> named_;        // and its servers
};

}  // namespace trainyard::runtime::ps
