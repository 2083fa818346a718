// Which ranks are on one host, and share its memory. Pure.
#pragma once

#include <vector>

#include "runtime/transport/tcp_mesh.h"

namespace trainyard::runtime::collective {

struct Hosts {
  std::vector<std::vector<int>>
      ranks;      // by host, ascending; hosts in the order of their first rank
  int host = 0;   // of this rank
  int place = 0;  // of this rank among those of its host

  const std::vector<int>& local() const { return ranks[static_cast<std::size_t>(host)]; }
  int count() const { return static_cast<int>(ranks.size()); }
  // Ranks of the smallest host: so many of each host have a counterpart on every other.
  int lanes() const;
  // The ranks with this rank's place, by host. Precondition: place < lanes().
  std::vector<int> lane() const;
  // More than one host, and not each of one rank.
  bool worthwhile() const;
};

// Ranks with one address are on one host.
Hosts hostsOf(const std::vector<transport::TcpAddress>& addresses, int rank);

}  // namespace trainyard::runtime::collective
