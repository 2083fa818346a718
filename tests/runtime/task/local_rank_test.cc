#include <gtest/gtest.h>

#include <string>

#include "runtime/coordinator/member_processes.h"
#include "runtime/task/options.h"

namespace trainyard::runtime {
namespace {

void add(v1::Membership& membership, v1::Role role, std::uint32_t index, const std::string& ip) {
  v1::MemberTask* task = membership.add_tasks();
  task->mutable_id()->set_role(role);
  task->mutable_id()->set_index(index);
  task->set_ip(ip);
}

int rankOf(const v1::Membership& membership, std::uint32_t index) {
  TaskOptions options;
  options.membership = membership;
  options.id.set_role(v1::ROLE_WORKER);
  options.id.set_index(index);
  return localRank(options);
}

TEST(LocalRank, CountsTheWorkersOfOneAddress) {
  v1::Membership membership;
  for (std::uint32_t i = 0; i < 2; ++i) add(membership, v1::ROLE_PS, i, "10.0.0.1");
  add(membership, v1::ROLE_WORKER, 0, "10.0.0.1");
  add(membership, v1::ROLE_WORKER, 1, "10.0.0.2");
  add(membership, v1::ROLE_WORKER, 4, "10.0.0.1");
  EXPECT_EQ(rankOf(membership, 0), 0);
  EXPECT_EQ(rankOf(membership, 1), 0);
  EXPECT_EQ(rankOf(membership, 4), 1);
  EXPECT_EQ(rankOf(membership, 7), 0) << "who is not in it";
}

TEST(LocalRank, CountsTheProcessesOfAPod) {
  v1::Membership pods;
  add(pods, v1::ROLE_WORKER, 0, "10.0.0.1");
  add(pods, v1::ROLE_WORKER, 1, "10.0.0.2");
  const v1::Membership processes = memberProcesses(pods, 3);
  for (std::uint32_t p = 0; p < 6; ++p) EXPECT_EQ(rankOf(processes, p), static_cast<int>(p % 3));
}

}  // namespace
}  // namespace trainyard::runtime
