// The object that tells the tasks of each other fits what the apiserver takes, for as many tasks as
// a job may have.
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "operator/kube/render/names.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

// Of all data of a ConfigMap; beside the membership it holds the job.
constexpr std::size_t kMostBytes = 1 << 20;
constexpr std::size_t kLeftForTheJob = 128 << 10;

// The longest that there are, but for what is named.
std::size_t bytesOf(int ps, int workers, bool with_names) {
  v1::TrainingJob job;
  job.mutable_metadata()->set_name(std::string(48, 'n'));
  job.mutable_metadata()->set_namespace_(std::string(63, 's'));
  v1::Membership membership;
  membership.set_job(job.metadata().name());
  membership.set_namespace_(job.metadata().namespace_());
  const auto add = [&](v1::Role role, int count) {
    for (int i = 0; i < count; ++i) {
      v1::MemberTask* task = membership.add_tasks();
      task->mutable_id()->set_role(role);
      task->mutable_id()->set_index(static_cast<std::uint32_t>(i));
      task->set_created(999);
      if (with_names) task->set_host(podHost(job, {role, static_cast<std::uint32_t>(i)}));
      task->set_ip("fd00:1234:5678:9abc:def0:1234:5678:9abc");
      task->set_port(65535);
    }
  };
  add(v1::ROLE_PS, ps);
  add(v1::ROLE_WORKER, workers);
  return membershipText(membership).size();
}

TEST(MembershipSizeTest, WithNamesItFitsFor3000Tasks) {
  EXPECT_LE(bytesOf(1, 2999, true), kMostBytes - kLeftForTheJob);
  EXPECT_GT(bytesOf(1, 3799, true), kMostBytes) << "the bound is needed";
}

TEST(MembershipSizeTest, WithoutNamesItFitsForAllTasksThereCanBe) {
  EXPECT_LE(bytesOf(4096, 4096, false), kMostBytes);
}

}  // namespace
}  // namespace trainyard::control
