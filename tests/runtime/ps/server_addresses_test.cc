#include "runtime/ps/server_addresses.h"

#include "gmock/gmock.h"
#include "runtime/placement/moves.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Address = ServerAddresses::Address;

struct Place {
  std::uint32_t ps;
  std::string ip;
  std::uint32_t port;
};

// Worker-0 is at 10.0.0.9.
v1::Membership membershipOf(std::int64_t revision, const std::vector<Place>& servers) {
  v1::Membership membership;
  membership.set_revision(revision);
  v1::MemberTask* worker = membership.add_tasks();
  worker->mutable_id()->set_role(v1::ROLE_WORKER);
  worker->set_ip("10.0.0.9");
  for (const Place& server : servers) {
    v1::MemberTask* task = membership.add_tasks();
    task->mutable_id()->set_role(v1::ROLE_PS);
    task->mutable_id()->set_index(server.ps);
    task->set_ip(server.ip);
    task->set_port(server.port);
  }
  return membership;
}

v1::View viewOf(std::int64_t epoch, std::int64_t revision, const std::vector<Place>& servers) {
  v1::View view;
  view.set_phase(v1::PHASE_PREPARING);
  view.mutable_epoch()->set_epoch(epoch);
  view.mutable_epoch()->set_revision(revision);
  for (const Place& server : servers) {
    v1::ChunkSource* source = view.mutable_epoch()->add_sources();
    source->set_ps(server.ps);
    source->set_address(server.ip + ":" + std::to_string(server.port));
  }
  return view;
}

TEST(ServerAddresses, AMembershipNamesServersAndWhoIsNear) {
  ServerAddresses addresses(0);
  EXPECT_THAT(addresses.onMembership(membershipOf(1, {{0, "10.0.0.9", 80}, {1, "10.0.0.2", 81}})),
              ElementsAre(Address{0, "10.0.0.9:80", true}, Address{1, "10.0.0.2:81", false}));
}

TEST(ServerAddresses, AnEpochNamesItsOwnOnceAndOlderMembershipsAreSilentAboutThem) {
  ServerAddresses addresses(0);
  (void)addresses.onMembership(membershipOf(1, {{0, "10.0.0.9", 80}, {1, "10.0.0.2", 81}}));
  const v1::View view = viewOf(2, 4, {{1, "10.0.0.9", 91}});
  EXPECT_THAT(addresses.onView(view), ElementsAre(Address{1, "10.0.0.9:91", true}));
  EXPECT_THAT(addresses.onView(view), IsEmpty());
  EXPECT_THAT(addresses.onMembership(membershipOf(3, {{0, "10.0.0.9", 82}, {1, "10.0.0.2", 83}})),
              ElementsAre(Address{0, "10.0.0.9:82", true}));
  EXPECT_THAT(addresses.onMembership(membershipOf(5, {{1, "10.0.0.2", 84}})),
              ElementsAre(Address{1, "10.0.0.2:84", false}));
}

TEST(ServerAddresses, WhoKeepsReplicasAsAWorkerIsNoServer) {
  ServerAddresses addresses(0);
  EXPECT_THAT(
      addresses.onView(viewOf(1, 1, {{static_cast<std::uint32_t>(kWorkerKeeper), "10.0.0.9", 1}})),
      IsEmpty());
}

TEST(ServerAddresses, AnEpochThatIsNotPlannedYetSaysNothing) {
  ServerAddresses addresses(0);
  v1::View view = viewOf(1, 1, {{0, "10.0.0.9", 80}});
  view.set_phase(v1::PHASE_SEALING);
  EXPECT_THAT(addresses.onView(view), IsEmpty());
  view.set_phase(v1::PHASE_ACTIVE);
  EXPECT_THAT(addresses.onView(view), ElementsAre(Address{0, "10.0.0.9:80", false}));
}

}  // namespace
}  // namespace trainyard::runtime::ps
