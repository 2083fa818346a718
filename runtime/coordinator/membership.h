// Who belongs to a job, who of them is here, and what each has said last. Who of them computes
// together is told to it by announcements of epochs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/member.h"
#include "runtime/coordinator/outbox.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime {

// Not thread-safe. Pointers to members live until the next call that is not const.
class Membership {
 public:
  using Members = std::map<MemberKey, Member>;

  Membership(const CoordinatorConfig& config, const v1::Membership& document, TimePoint now);

  // The newest document.
  const v1::Membership& document() const { return document_; }
  // Whether a document is newer than the one here.
  bool isNews(const v1::Membership& document) const;
  // `started`: an epoch has begun, so that nobody waits for who is new.
  void setDocument(const v1::Membership& document, bool started, TimePoint now);
  // Those of the document, while an epoch runs also its workers that are to leave, and servers
  // that are to leave and hold chunks.
  const Members& members() const { return members_; }
  // Null: there is no such member.
  const Member* find(const MemberKey& key) const;
  std::string nameOf(const MemberKey& key) const;

  // Has reported lately.
  bool present(const Member& member, TimePoint now) const;
  // It is here, and the others can be told where.
  bool canJoin(const MemberKey& key, const Member& member, TimePoint now) const;
  // AllReduce: where its machine is; null while that is not known of the life that has reported.
  const v1::MemberTask* placeOf(const MemberKey& key, const Member& member) const;
  bool placeKnown(const MemberKey& key, const Member& member) const;
  // Of the epoch that is announced; before that, of the document.
  int workers() const;
  // What the workers train on; all agree. Empty before the first has joined.
  v1::DataFingerprint data() const;
  // A job without evaluation data ends without a score.
  bool evaluates() const;
  // Everybody has taken note that the job is over. A job that is done waits for each.
  bool allLeave(bool done, TimePoint now) const;
  // The newest epoch that anybody has seen compute; number 0: nobody has seen any.
  v1::EpochInfo newestBegun() const;

  // Why it may not take part; "": it may.
  std::string refusalOf(const v1::MemberReport& report, const MemberKey& key) const;
  // A task that was removed is told so when it asks; a stranger is refused.
  bool dismissed(const v1::MemberReport& report, const MemberKey& key) const;
  // Of somebody whom refusalOf() does not refuse. True: a process that is new here.
  bool accept(const MemberKey& key, const v1::MemberReport& report, TimePoint now);

  // The member's call waits for a view.
  void park(const MemberKey& key, std::uint64_t ticket, TimePoint now);
  // It is answered; nothing: none waits.
  std::optional<std::uint64_t> unpark(const MemberKey& key);
  // Unparks all whose view is old, and who has waited for a heartbeat.
  std::vector<std::uint64_t> unparkDue(const Outbox& news, TimePoint now);

  // Before the first epoch of this process: a server that the document has left out may hold what
  // others need, as the former coordinator knew.
  void admitLeaver(const v1::MemberReport& report, const MemberKey& key);
  // No document here says where such a one is; the epoch that ran does.
  void placeLeavers(const v1::EpochInfo& epoch);
  // Who did not take part in the epoch is new, as it would have been to the former coordinator.
  void markNewcomers(const v1::EpochInfo& epoch);

  // The epoch's members, and its sources, compute together from now on.
  void enlist(const v1::EpochInfo& epoch);
  void setSources(const v1::EpochInfo& epoch);
  // All servers of the epoch have what it starts from: who only gave may go.
  void releaseSources();
  void endEpoch();
  // Erases those whom the document does not have and for whom there is no other reason to stay.
  // Returns them: their calls wait.
  std::vector<Member> dismissUnwanted(
      const std::function<bool(const MemberKey&, const Member&)>& stays);

  // Somebody is to leave or to join, and all who are to join are here. `copying`: who was to leave
  // when the epoch began is not due, since it has what others copy.
  bool changeDue(TimePoint now, bool copying = false) const;
  // "the workers change from 2 to 3", by role.
  std::vector<std::string> changes() const;

 private:
  std::string otherData(const v1::MemberReport& report, const MemberKey& key) const;

  const std::string job_uid_;
  const std::string job_digest_;
  const v1::Incarnation self_;
  const bool ring_;
  const int processes_per_pod_;
  const bool elastic_;
  const Duration heartbeat_;
  const Duration dead_after_;
  v1::Membership document_;
  Members members_;
  std::set<MemberKey> dismissed_;  // have belonged to the job once
  bool enlisted_ = false;          // the epoch has members
};

}  // namespace trainyard::runtime
