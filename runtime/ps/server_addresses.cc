#include "runtime/ps/server_addresses.h"

#include "fmt/format.h"
#include "runtime/placement/moves.h"

namespace trainyard::runtime::ps {

std::vector<ServerAddresses::Address> ServerAddresses::onMembership(
    const v1::Membership& membership) {
  own_ip_.clear();
  for (const v1::MemberTask& task : membership.tasks()) {
    const v1::TaskId& id = task.id();
    if (id.role() == v1::ROLE_WORKER && id.index() == worker_) own_ip_ = task.ip();
  }
  std::vector<Address> addresses;
  for (const v1::MemberTask& task : membership.tasks()) {
    const auto ps = static_cast<int>(task.id().index());
    const bool older = membership.revision() < revision_ && named_.contains(ps);
    if (task.id().role() != v1::ROLE_PS || older) continue;
    addresses.push_back({ps, fmt::format("{}:{}", task.ip(), task.port()),
                         !own_ip_.empty() && task.ip() == own_ip_});
  }
  return addresses;
}

std::vector<ServerAddresses::Address> ServerAddresses::onView(const v1::View& view) {
  const v1::EpochInfo& epoch = view.epoch();
  const bool begins = view.phase() == v1::PHASE_PREPARING || view.phase() == v1::PHASE_ACTIVE ||
                      view.phase() == v1::PHASE_STOPPING;
  if (!begins || view.left() || epoch.epoch() <= epoch_) return {};
  epoch_ = epoch.epoch();
  revision_ = epoch.revision();
  named_.clear();
  std::vector<Address> addresses;
  for (const v1::ChunkSource& source : epoch.sources()) {
    const auto ps = static_cast<int>(source.ps());
    if (ps == kWorkerKeeper) continue;
    const std::string& target = source.address();
    named_.insert(ps);
    addresses.push_back(
        {ps, target, !own_ip_.empty() && target.substr(0, target.rfind(':')) == own_ip_});
  }
  return addresses;
}

}  // namespace trainyard::runtime::ps
