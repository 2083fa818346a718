// Members that come and go with epochs.
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/membership.h"

namespace trainyard::runtime {

void Membership::admitLeaver(const v1::MemberReport& report, const MemberKey& key) {
  const bool may_hold =
      key.role == v1::ROLE_PS && !report.shard().empty() && report.highest_epoch() > 0;
  if (!may_hold || members_.contains(key)) return;
  if (report.job_uid() != job_uid_ || report.revision() == 0) return;
  if (report.revision() > document_.revision()) return;
  members_[key].wanted = false;
}

void Membership::placeLeavers(const v1::EpochInfo& epoch) {
  for (const v1::ChunkSource& source : epoch.sources()) {
    const auto member = members_.find(keyOfServer(static_cast<int>(source.ps())));
    if (member == members_.end() || member->second.wanted) continue;
    const std::string_view address = source.address();
    const std::size_t colon = std::min(address.rfind(':'), address.size());
    member->second.place.set_ip(std::string(address.substr(0, colon)));
    if (colon == address.size()) continue;
    const auto port = parseNumber<std::uint32_t>(address.substr(colon + 1));
    member->second.place.set_port(port.value_or(0));
  }
}

void Membership::markNewcomers(const v1::EpochInfo& epoch) {
  for (auto& [key, member] : members_) {
    member.newcomer = std::none_of(epoch.members().begin(), epoch.members().end(),
                                   [&key = key](const auto& m) { return key == keyOf(m.id()); });
  }
}

void Membership::enlist(const v1::EpochInfo& epoch) {
  enlisted_ = !epoch.members().empty();
  for (const v1::EpochMember& m : epoch.members()) {
    Member& member = members_.at(keyOf(m.id()));
    member.in_epoch = true;
    member.stays = !member.wanted;
    if (m.id().role() == v1::ROLE_WORKER) member.newcomer = false;
  }
}

void Membership::setSources(const v1::EpochInfo& epoch) {
  for (const v1::ChunkSource& source : epoch.sources()) {
    Member& member = members_.at(keyOfServer(static_cast<int>(source.ps())));
    member.source = !member.in_epoch;
  }
}

void Membership::releaseSources() {
  for (auto& [key, member] : members_) {
    member.source = false;
    if (key.role == v1::ROLE_PS && member.in_epoch) member.newcomer = false;
  }
}

void Membership::endEpoch() {
  enlisted_ = false;
  for (auto& [key, member] : members_) member.in_epoch = member.source = member.stays = false;
}

std::vector<Member> Membership::dismissUnwanted(
    const std::function<bool(const MemberKey&, const Member&)>& stays) {
  std::vector<Member> gone;
  for (auto it = members_.begin(); it != members_.end();) {
    if (it->second.wanted || stays(it->first, it->second)) {
      ++it;
      continue;
    }
    dismissed_.insert(it->first);
    gone.push_back(std::move(it->second));
    it = members_.erase(it);
  }
  return gone;
}

bool Membership::changeDue(TimePoint now, bool copying) const {
  bool due = false;
  for (const auto& [key, member] : members_) {
    due = due || (member.in_epoch != member.wanted && !(copying && member.stays));
    if (member.newcomer && !canJoin(key, member, now)) return false;
  }
  return due;
}

std::vector<std::string> Membership::changes() const {
  // Who is not here yet has held nobody up: then it is something else that changes.
  const bool all_here = std::none_of(members_.begin(), members_.end(), [](const auto& m) {
    return m.second.newcomer && !m.second.joined;
  });
  if (!all_here) return {};
  std::vector<std::string> changes;
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER}) {
    std::int64_t before = 0, after = 0;
    bool due = false;
    for (const auto& [key, member] : members_) {
      if (key.role != role) continue;
      before += member.in_epoch;
      after += member.wanted;
      due = due || member.in_epoch != member.wanted;
    }
    if (!due) continue;
    changes.push_back(fmt::format("the {} change from {} to {}",
                                  role == v1::ROLE_PS ? "parameter servers" : "workers", before,
                                  after));
  }
  return changes;
}

}  // namespace trainyard::runtime
