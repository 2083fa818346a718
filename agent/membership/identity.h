// Whose agent this is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::agent {

struct JobIdentity {
  std::string name;
  std::string ns;
  std::string uid;
};

// From the metadata of a resolved job in JSON. INVALID_ARGUMENT naming file and field when name or
// uid is missing.
StatusOr<JobIdentity> readJobIdentity(const std::filesystem::path& job_file);

struct TaskIdentity {
  JobIdentity job;
  v1::TaskId id;
  std::uint32_t created = 0;    // the operator's part of the incarnation
  bool foreign = false;         // its program is the user's own: see agent/telling
  std::uint32_t processes = 1;  // of its program; for others each is a member of its own
};

std::string roleName(v1::Role role);         // "ps", "worker"
std::string taskName(const v1::TaskId& id);  // "ps-0"
bool sameTask(const v1::TaskId& a, const v1::TaskId& b);

// What a process of the task goes by among all of its role: they are numbered through the tasks.
v1::TaskId processId(const TaskIdentity& self, std::uint32_t process);
// Which of the task's processes goes by `id`; nothing: none of them.
std::optional<std::uint32_t> processOf(const TaskIdentity& self, const v1::TaskId& id);
// "worker-1.0" for people; "worker-1" where there is only one.
std::string processName(const TaskIdentity& self, std::uint32_t process);

}  // namespace trainyard::agent
