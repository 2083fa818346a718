#include <unistd.h>

#include <thread>

#include "agent/membership/identity.h"
#include "agent/membership/membership_file.h"
#include "agent/membership/membership_store.h"
#include "base/process/files.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

using testing::HasSubstr;

void addTask(v1::Membership& membership, v1::Role role, std::uint32_t index, std::uint32_t created,
             std::uint32_t port) {
  v1::MemberTask* task = membership.add_tasks();
  task->mutable_id()->set_role(role);
  task->mutable_id()->set_index(index);
  task->set_created(created);
  task->set_ip("127.0.0.1");
  task->set_port(port);
}

v1::Membership makeMembership(std::int64_t revision) {
  v1::Membership membership;
  membership.set_job("demo");
  membership.set_uid("uid-1");
  membership.set_revision(revision);
  addTask(membership, v1::ROLE_PS, 0, 1, 5000);
  addTask(membership, v1::ROLE_PS, 1, 1, 5001);
  addTask(membership, v1::ROLE_WORKER, 0, 2, 0);
  return membership;
}

TaskIdentity worker(std::uint32_t created) {
  TaskIdentity self{
      .job = {.name = "demo", .ns = "", .uid = "uid-1"}, .id = {}, .created = created};
  self.id.set_role(v1::ROLE_WORKER);
  return self;
}

TEST(MissingFor, NeedsThisLifeAndEveryPsPort) {
  v1::Membership membership = makeMembership(1);
  EXPECT_EQ(missingFor(membership, worker(2)), "");
  EXPECT_THAT(missingFor(membership, worker(3)), HasSubstr("worker-0 created 3"));
  membership.mutable_tasks(1)->set_port(0);
  EXPECT_EQ(missingFor(membership, worker(2)), "waits for the port of ps-1");
  v1::Membership alone;
  addTask(alone, v1::ROLE_WORKER, 0, 2, 1);
  EXPECT_THAT(missingFor(alone, worker(2)), HasSubstr("a ps"));
}

TEST(MissingFor, AWorkerOfAnAllReduceNeedsTheCoordinatorsPort) {
  v1::Membership membership;
  membership.set_strategy("AllReduce");
  TaskIdentity self = worker(2);
  self.id.set_index(1);
  EXPECT_THAT(missingFor(membership, self), HasSubstr("worker-1 created 2"));
  addTask(membership, v1::ROLE_WORKER, 1, 2, 0);
  EXPECT_EQ(missingFor(membership, self), "waits for a membership that holds worker-0");
  addTask(membership, v1::ROLE_WORKER, 0, 2, 0);
  EXPECT_EQ(missingFor(membership, self), "waits for the port of worker-0");
  membership.mutable_tasks(1)->set_port(1);
  EXPECT_EQ(missingFor(membership, self), "") << "its own is nobody's to know";
}

TEST(MissingFor, AProgramOfTheUsersOwnNeedsTheAddressesOfAll) {
  v1::Membership membership;
  for (const std::uint32_t index : {0u, 1u}) {
    v1::MemberTask* task = membership.add_tasks();
    task->mutable_id()->set_role(v1::ROLE_WORKER);
    task->mutable_id()->set_index(index);
    task->set_created(2);
  }
  membership.mutable_tasks(0)->set_port(1);
  TaskIdentity self = worker(2);
  self.id.set_index(0);
  self.foreign = true;
  EXPECT_EQ(missingFor(membership, self), "waits for the port of worker-1");
  membership.mutable_tasks(1)->set_port(2);
  EXPECT_EQ(missingFor(membership, self), "") << "also without a ps";
}

TEST(MembershipStore, TakesTheHighestRevision) {
  MembershipStore store("uid-1");
  EXPECT_EQ(store.newest(), nullptr);
  EXPECT_EQ(store.revision(), 0);
  EXPECT_TRUE(store.adopt(makeMembership(3)).value());
  EXPECT_FALSE(store.adopt(makeMembership(2)).value()) << "older: fine, but not taken";
  EXPECT_FALSE(store.adopt(makeMembership(3)).value()) << "the same again";
  EXPECT_EQ(store.revision(), 3);
  EXPECT_TRUE(store.adopt(makeMembership(4)).value());
  EXPECT_EQ(store.newest()->revision(), 4);
}

TEST(MembershipStore, RefusesOtherContentUnderOneRevision) {
  MembershipStore store("uid-1");
  ASSERT_TRUE(store.adopt(makeMembership(3)).ok());
  v1::Membership other = makeMembership(3);
  other.mutable_tasks(0)->set_port(6000);
  const Status refused = store.adopt(other).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("revision 3"));
  EXPECT_EQ(store.newest()->tasks(0).port(), 5000u);
}

TEST(MembershipStore, RefusesOtherJobsAndNoRevision) {
  MembershipStore store("uid-2");
  EXPECT_EQ(store.adopt(makeMembership(3)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.adopt(makeMembership(0)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store.newest(), nullptr);
}

TEST(MembershipFile, ReportsEachContentOnce) {
  const TempDir dir;
  const auto path = dir.path() / "membership.json";
  MembershipFile file(path);
  EXPECT_FALSE(file.poll().has_value()) << "not there yet";
  ASSERT_TRUE(writeFileAtomically(path, formatMembership(makeMembership(1))).ok());
  const auto first = file.poll();
  ASSERT_TRUE(first.has_value() && first->ok());
  EXPECT_EQ(membershipHash(**first), membershipHash(makeMembership(1)));
  EXPECT_FALSE(file.poll().has_value());
  ASSERT_TRUE(writeFileAtomically(path, "{\"revision\": ").ok());
  const auto broken = file.poll();
  ASSERT_TRUE(broken.has_value());
  EXPECT_THAT(std::string(broken->status().message()), HasSubstr(path.native()));
  EXPECT_FALSE(file.poll().has_value()) << "an error is told once";
  ASSERT_TRUE(writeFileAtomically(path, formatMembership(makeMembership(2))).ok());
  EXPECT_EQ((**file.poll()).revision(), 2);
}

TEST(ParseMembership, TakesNumbersAndUnknownFields) {
  const auto parsed = parseMembership(
      R"({"uid": "u", "revision": 7, "later": 1,
          "tasks": [{"id": {"role": "ROLE_WORKER", "index": 1}, "created": 2, "port": 9}]})",
      "m.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->revision(), 7);
  EXPECT_EQ(taskName(parsed->tasks(0).id()), "worker-1");
}

TEST(ReadJobIdentity, NamesWhatIsMissing) {
  const TempDir dir;
  const auto path = dir.path() / "job.json";
  const auto read = [&](const std::string& text) {
    EXPECT_TRUE(writeFileAtomically(path, text).ok());
    return readJobIdentity(path);
  };
  EXPECT_EQ(read(R"({"metadata": {"name": "a", "uid": "b"}, "spec": {}})")->uid, "b");
  const auto messageOf = [&](const std::string& text) {
    return std::string(read(text).status().message());
  };
  EXPECT_THAT(messageOf(R"({"metadata": {"name": "a"}})"), HasSubstr("metadata.uid"));
  EXPECT_THAT(messageOf(R"({"metadata": {"uid": 3}})"), HasSubstr("metadata.name"));
  EXPECT_THAT(messageOf(R"({"spec": {}})"), HasSubstr("metadata"));
  EXPECT_THAT(messageOf("no json"), HasSubstr("JSON"));
}

}  // namespace
}  // namespace trainyard::agent
