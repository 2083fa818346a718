#include "runtime/coordinator/member_processes.h"

#include "gtest/gtest.h"
#include "runtime/coordinator/names.h"

namespace trainyard::runtime {
namespace {

v1::Membership sample() {
  v1::Membership membership;
  membership.set_revision(4);
  membership.set_steps(90);
  for (const auto& [role, index] :
       {std::pair(v1::ROLE_PS, 1), std::pair(v1::ROLE_WORKER, 0), std::pair(v1::ROLE_WORKER, 2)}) {
    v1::MemberTask* task = membership.add_tasks();
    task->mutable_id()->set_role(role);
    task->mutable_id()->set_index(static_cast<std::uint32_t>(index));
    task->set_created(static_cast<std::uint32_t>(10 + index));
    task->set_ip("10.0.0." + std::to_string(index));
    task->set_port(2230);
  }
  return membership;
}

TEST(MemberProcesses, AreNumberedThroughTheWorkers) {
  const v1::Membership members = memberProcesses(sample(), 3);
  EXPECT_EQ(members.revision(), 4);
  EXPECT_EQ(members.steps(), 90);
  std::string text;
  for (const v1::MemberTask& member : members.tasks()) {
    text += memberName(member.id().role(), member.id().index(), 3) + "=" +
            std::to_string(member.id().index()) + "," + std::to_string(member.created()) + "," +
            member.ip() + "," + std::to_string(member.port()) + " ";
  }
  EXPECT_EQ(text,
            "ps-1=1,11,10.0.0.1,2230 "
            "worker-0.0=0,10,10.0.0.0,2230 worker-0.1=1,10,10.0.0.0,2230 "
            "worker-0.2=2,10,10.0.0.0,2230 "
            "worker-2.0=6,12,10.0.0.2,2230 worker-2.1=7,12,10.0.0.2,2230 "
            "worker-2.2=8,12,10.0.0.2,2230 ");
}

TEST(MemberProcesses, OneIsTheWorkerItself) {
  EXPECT_EQ(memberProcesses(sample(), 1).SerializeAsString(), sample().SerializeAsString());
  EXPECT_EQ(memberName(v1::ROLE_WORKER, 2, 1), "worker-2");
}

}  // namespace
}  // namespace trainyard::runtime
