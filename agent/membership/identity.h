// Whose agent this is.
#pragma once

#include <cstdint>
#include <filesystem>
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
  std::uint32_t created = 0;  // the operator's part of the incarnation
  bool foreign = false;       // its program is the user's own, which reports nothing
};

std::string roleName(v1::Role role);         // "ps", "worker"
std::string taskName(const v1::TaskId& id);  // "ps-0"
bool sameTask(const v1::TaskId& a, const v1::TaskId& b);

}  // namespace trainyard::agent
