#include "agent/membership/identity.h"

#include "base/json/members.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::agent {
namespace {

constexpr std::size_t kMaxJobBytes = 4 << 20;

}  // namespace

StatusOr<JobIdentity> readJobIdentity(const std::filesystem::path& job_file) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(job_file, kMaxJobBytes));
  const nlohmann::json job = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!job.is_object()) return invalidInput(job_file.native(), "expected a JSON object");
  const auto metadata = job.find("metadata");
  if (metadata == job.end() || !metadata->is_object()) {
    return invalidInput(job_file.native(), "metadata: expected an object");
  }
  JobIdentity identity{.name = textAt(*metadata, "name"),
                       .ns = textAt(*metadata, "namespace"),
                       .uid = textAt(*metadata, "uid")};
  if (identity.name.empty()) return invalidInput(job_file.native(), "metadata.name: missing");
  if (identity.uid.empty()) return invalidInput(job_file.native(), "metadata.uid: missing");
  return identity;
}

std::string roleName(v1::Role role) {
  return role == v1::ROLE_PS ? "ps" : "worker";
}

std::string taskName(const v1::TaskId& id) {
  return fmt::format("{}-{}", roleName(id.role()), id.index());
}

bool sameTask(const v1::TaskId& a, const v1::TaskId& b) {
  return a.role() == b.role() && a.index() == b.index();
}

v1::TaskId processId(const TaskIdentity& self, std::uint32_t process) {
  v1::TaskId id = self.id;
  id.set_index(self.id.index() * self.processes + process);
  return id;
}

std::optional<std::uint32_t> processOf(const TaskIdentity& self, const v1::TaskId& id) {
  const bool ours = id.role() == self.id.role() && id.index() / self.processes == self.id.index();
  return ours ? std::optional(id.index() % self.processes) : std::nullopt;
}

std::string processName(const TaskIdentity& self, std::uint32_t process) {
  const std::string task = taskName(self.id);
  return self.processes == 1 ? task : fmt::format("{}.{}", task, process);
}

}  // namespace trainyard::agent
