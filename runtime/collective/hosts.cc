#include "runtime/collective/hosts.h"

#include <algorithm>
#include <map>

namespace trainyard::runtime::collective {

int Hosts::lanes() const {
  std::size_t fewest = local().size();
  for (const std::vector<int>& members : ranks) fewest = std::min(fewest, members.size());
  return static_cast<int>(fewest);
}

std::vector<int> Hosts::lane() const {
  std::vector<int> lane;
  for (const std::vector<int>& members : ranks) {
    lane.push_back(members[static_cast<std::size_t>(place)]);
  }
  return lane;
}

bool Hosts::worthwhile() const {
  return ranks.size() > 1 && std::any_of(ranks.begin(), ranks.end(),
                                         [](const auto& members) { return members.size() > 1; });
}

Hosts hostsOf(const std::vector<transport::TcpAddress>& addresses, int rank) {
  Hosts hosts;
  std::map<std::string, std::size_t> numbers;
  for (int r = 0; r < static_cast<int>(addresses.size()); ++r) {
    const std::string& address = addresses[static_cast<std::size_t>(r)].host;
    const auto [number, is_new] = numbers.try_emplace(address, hosts.ranks.size());
    if (is_new) hosts.ranks.emplace_back();
    std::vector<int>& members = hosts.ranks[number->second];
    if (r == rank) {
      hosts.host = static_cast<int>(number->second);
      hosts.place = static_cast<int>(members.size());
    }
    members.push_back(r);
  }
  return hosts;
}

}  // namespace trainyard::runtime::collective
