#include "runtime/coordinator/member_processes.h"

namespace trainyard::runtime {

v1::Membership memberProcesses(const v1::Membership& membership, int processes) {
  if (processes == 1) return membership;
  v1::Membership members = membership;
  members.clear_tasks();
  for (const v1::MemberTask& task : membership.tasks()) {
    const int count = task.id().role() == v1::ROLE_WORKER ? processes : 1;
    for (int process = 0; process < count; ++process) {
      v1::MemberTask* member = members.add_tasks();
      *member = task;
      member->mutable_id()->set_index(task.id().index() * static_cast<std::uint32_t>(count) +
                                      static_cast<std::uint32_t>(process));
    }
  }
  return members;
}

}  // namespace trainyard::runtime
