#include "runtime/coordinator/membership.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/coordinator/incarnation.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {

Membership::Membership(const CoordinatorConfig& config, const v1::Membership& document,
                       TimePoint now)
    : job_uid_(config.job_uid),
      job_digest_(config.job_digest),
      self_(config.self),
      ring_(config.ring),
      processes_per_pod_(config.processes_per_pod),
      elastic_(!config.chunks.empty()),
      heartbeat_(config.heartbeat),
      dead_after_(config.dead_after) {
  setDocument(document, false, now);
}

bool Membership::isNews(const v1::Membership& document) const {
  return document.revision() > document_.revision() || members_.empty();
}

void Membership::setDocument(const v1::Membership& document, bool started, TimePoint now) {
  document_ = document;
  for (auto& [key, member] : members_) member.wanted = false;
  for (const v1::MemberTask& task : document_.tasks()) {
    const MemberKey key = keyOf(task.id());
    const auto [it, fresh] = members_.try_emplace(key);
    it->second.wanted = true;
    it->second.place = task;
    dismissed_.erase(key);
    if (!fresh) continue;
    it->second.last_seen = now;
    it->second.newcomer = started && (key.role == v1::ROLE_WORKER || elastic_);
  }
}

const Member* Membership::find(const MemberKey& key) const {
  const auto it = members_.find(key);
  return it == members_.end() ? nullptr : &it->second;
}

std::string Membership::nameOf(const MemberKey& key) const {
  return memberName(key.role, key.index, processes_per_pod_);
}

bool Membership::present(const Member& member, TimePoint now) const {
  return member.joined && now - member.last_seen <= dead_after_;
}

bool Membership::canJoin(const MemberKey& key, const Member& member, TimePoint now) const {
  return present(member, now) && (!ring_ || placeKnown(key, member));
}

const v1::MemberTask* Membership::placeOf(const MemberKey& key, const Member& member) const {
  for (const v1::MemberTask& task : document_.tasks()) {
    const bool same =
        keyOf(task.id()) == key && task.created() == member.report.incarnation().created();
    if (same && !task.ip().empty()) return &task;
  }
  return nullptr;
}

bool Membership::placeKnown(const MemberKey& key, const Member& member) const {
  return member.report.ring_port() != 0 && placeOf(key, member) != nullptr;
}

int Membership::workers() const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [this](const auto& m) {
    return m.first.role == v1::ROLE_WORKER && (m.second.in_epoch || !enlisted_);
  }));
}

v1::DataFingerprint Membership::data() const {
  for (const auto& [key, member] : members_) {
    if (key.role == v1::ROLE_WORKER && member.joined) return member.report.data();
  }
  return {};
}

bool Membership::evaluates() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& m) {
    return m.first.role == v1::ROLE_WORKER && m.second.report.data().eval_samples() > 0;
  });
}

bool Membership::allLeave(bool done, TimePoint now) const {
  return std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
    return m.second.report.leaving() || (!present(m.second, now) && !done) ||
           (m.second.newcomer && !m.second.joined);
  });
}

v1::EpochInfo Membership::newestBegun() const {
  v1::EpochInfo epoch;
  for (const auto& [key, member] : members_) {
    if (member.joined && member.report.begun().epoch() > epoch.epoch())
      epoch = member.report.begun();
  }
  return epoch;
}

std::string Membership::refusalOf(const v1::MemberReport& report, const MemberKey& key) const {
  const std::string name = nameOf(key);
  if (report.job_uid() != job_uid_) return fmt::format("{} belongs to another job", name);
  if (report.protocol_min() > kProtocol || report.protocol_max() < kProtocol) {
    return fmt::format("{} speaks protocol {} to {}, this job speaks {}", name,
                       report.protocol_min(), report.protocol_max(), kProtocol);
  }
  const Member* member = find(key);
  if (member == nullptr)
    return fmt::format("{} is not in membership revision {}", name, document_.revision());
  if (member->joined && order(report.incarnation()) < order(member->report.incarnation()))
    return fmt::format("{} was replaced by a newer process", name);
  if (report.job_digest() != job_digest_) {
    return fmt::format("{} was started with other training settings than {}", name,
                       ring_ ? "worker-0" : "ps-0");
  }
  return key.role == v1::ROLE_WORKER ? otherData(report, key) : "";
}

std::string Membership::otherData(const v1::MemberReport& report, const MemberKey& key) const {
  for (const auto& [other_key, other] : members_) {
    if (other_key.role != v1::ROLE_WORKER || other_key == key || !other.joined) continue;
    const v1::DataFingerprint& a = report.data();
    const v1::DataFingerprint& b = other.report.data();
    if (a.samples() == b.samples() && a.eval_samples() == b.eval_samples() &&
        a.sha256() == b.sha256())
      return "";
    return fmt::format(
        "{} has other data than {}: {} training and {} evaluation samples, sha256 {} against {} "
        "and {}, {}",
        nameOf(key), nameOf(other_key), a.samples(), a.eval_samples(), a.sha256().substr(0, 12),
        b.samples(), b.eval_samples(), b.sha256().substr(0, 12));
  }
  return "";
}

bool Membership::dismissed(const v1::MemberReport& report, const MemberKey& key) const {
  if (report.job_uid() != job_uid_ || members_.contains(key)) return false;
  const std::int64_t newest = document_.revision();
  if (report.revision() == 0 || report.revision() > newest) return false;
  return report.revision() < newest || dismissed_.contains(key) || report.highest_epoch() > 0;
}

bool Membership::accept(const MemberKey& key, const v1::MemberReport& report, TimePoint now) {
  Member& member = members_.at(key);
  const bool fresh =
      !member.joined || order(report.incarnation()) > order(member.report.incarnation());
  member.report = report;
  member.joined = true;
  member.last_seen = now;
  return fresh;
}

void Membership::park(const MemberKey& key, std::uint64_t ticket, TimePoint now) {
  Member& member = members_.at(key);
  member.ticket = ticket;
  member.parked_since = now;
}

std::optional<std::uint64_t> Membership::unpark(const MemberKey& key) {
  const auto it = members_.find(key);
  if (it == members_.end()) return std::nullopt;
  return std::exchange(it->second.ticket, std::nullopt);
}

std::vector<std::uint64_t> Membership::unparkDue(const Outbox& news, TimePoint now) {
  std::vector<std::uint64_t> tickets;
  for (auto& [key, member] : members_) {
    if (!member.ticket) continue;
    const v1::MemberReport& report = member.report;
    const bool stale = report.seen_view() < news.newsFor(key.role) ||
                       order(report.seen_coordinator()) != order(self_);
    // Who leaves waits only for this.
    if (stale || report.leaving() || now - member.parked_since >= heartbeat_)
      tickets.push_back(*std::exchange(member.ticket, std::nullopt));
  }
  return tickets;
}

}  // namespace trainyard::runtime
