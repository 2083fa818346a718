#include "operator/local/run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/core/json_depth.h"
#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/unique_fd.h"
#include "fmt/format.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "nlohmann/json.hpp"
#include "operator/job/job.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::ordered_json;

// Far above anything that the schema admits.
constexpr std::size_t kMaxRecordBytes = 16 << 20;

StatusOr<Json> readJson(const std::filesystem::path& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, kMaxRecordBytes));
  if (jsonIsTooDeep(text)) return invalidInput(path.string(), "is nested too deeply");
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return invalidInput(path.string(), "is not a JSON object");
  }
  return json;
}

// An edit takes milliseconds.
constexpr Duration kEditBound = std::chrono::seconds(5);

struct StatusFile {
  std::int64_t version = 0;
  Json status;  // null where none was written yet
};

StatusOr<StatusFile> readStatusFile(const std::filesystem::path& path) {
  auto json = readJson(path);
  if (absl::IsNotFound(json.status())) return StatusFile{};
  TY_RETURN_IF_ERROR(json.status());
  const Json& version = json->contains("version") ? (*json)["version"] : Json();
  if (!version.is_number_integer()) {
    return invalidInput(path.string(), "has no integer field 'version'");
  }
  return StatusFile{version.get<std::int64_t>(), json->value("status", Json())};
}

std::string resourceVersion(const v1::TrainingJob& job, std::int64_t status_version) {
  return fmt::format("{}.{}", job.metadata().generation(), status_version);
}

template <typename T>
T numberOr(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_integer() ? found->get<T>() : T{};
}

std::string textOr(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

StatusOr<AgentFile> readAgentFile(const std::filesystem::path& path) {
  TY_ASSIGN_OR_RETURN(const Json json, readJson(path));
  AgentFile agent;
  agent.pid = numberOr<int>(json, "pid");
  agent.child_pid = numberOr<int>(json, "childPid");
  agent.created = numberOr<std::uint32_t>(json, "created");
  agent.start = numberOr<std::uint32_t>(json, "start");
  agent.planned_starts = numberOr<std::uint32_t>(json, "plannedStarts");
  agent.ip = textOr(json, "ip");
  agent.agent_port = numberOr<std::uint32_t>(json, "agentPort");
  agent.metrics_port = numberOr<std::uint32_t>(json, "metricsPort");
  agent.task_port = numberOr<std::uint32_t>(json, "taskPort");
  agent.child = textOr(json, "child");
  const auto ready = json.find("ready");
  agent.ready =
      ready != json.end() && ready->is_boolean() ? ready->get<bool>() : agent.child == "Running";
  agent.last_exit_code = numberOr<int>(json, "lastExitCode");
  agent.last_signal = numberOr<int>(json, "lastSignal");
  if (agent.pid <= 0) return invalidInput(path.string(), "has no process id in 'pid'");
  return agent;
}

StatusOr<v1::TrainingJob> RunRecord::read() const {
  TY_ASSIGN_OR_RETURN(const Json json, readJson(paths_.job()));
  v1::TrainingJob job;
  TY_RETURN_IF_ERROR(annotate(fromJson(json, &job), paths_.job().string()));
  if (job.metadata().name().empty() || job.metadata().uid().empty()) {
    return invalidInput(paths_.job().string(), "metadata: has no name or no uid");
  }
  TY_ASSIGN_OR_RETURN(const StatusFile file, readStatusFile(paths_.status()));
  job.clear_status();
  if (!file.status.is_null()) {
    TY_RETURN_IF_ERROR(
        annotate(fromJson(file.status, job.mutable_status()), paths_.status().string()));
  }
  job.mutable_metadata()->set_resource_version(resourceVersion(job, file.version));
  return job;
}

Status RunRecord::writeSpec(const v1::TrainingJob& job) {
  v1::TrainingJob stored = job;
  stored.clear_status();
  stored.mutable_metadata()->clear_resource_version();
  return writeFileAtomically(paths_.job(), toJson(stored).dump(2) + "\n");
}

Status RunRecord::edit(const Clock& clock, const std::function<bool(v1::TrainingJob*)>& change) {
  // The lock's file is not made where there is no record (any more).
  TY_RETURN_IF_ERROR(read().status());
  TY_ASSIGN_OR_RETURN(const FileLock lock,
                      FileLock::acquireBy(paths_.editLock(), clock, clock.now() + kEditBound));
  TY_ASSIGN_OR_RETURN(v1::TrainingJob job, read());
  if (!change(&job)) return absl::OkStatus();
  job.mutable_metadata()->set_generation(job.metadata().generation() + 1);
  return writeSpec(job);
}

Status RunRecord::writeStatus(const std::string& resource_version, const v1::JobStatus& status) {
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob current, read());
  if (current.metadata().resource_version() != resource_version) {
    return absl::FailedPreconditionError(
        fmt::format("{}: the record changed: it is at version {}, not {}", paths_.dir.string(),
                    current.metadata().resource_version(), resource_version));
  }
  TY_ASSIGN_OR_RETURN(const StatusFile file, readStatusFile(paths_.status()));
  Json json;
  json["version"] = file.version + 1;
  json["status"] = toJson(status);
  return writeFileAtomically(paths_.status(), json.dump(2) + "\n");
}

Status RunRecord::restStatus() {
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob job, read());
  TY_ASSIGN_OR_RETURN(const std::optional<v1::Membership> membership, readMembership());
  if (!job.has_status() && !membership) return absl::OkStatus();
  v1::JobStatus rest;
  for (const char* type : {"Created", "Suspended"}) {
    v1::Condition* condition = rest.add_conditions();
    condition->set_type(type);
    condition->set_status("True");
    condition->set_reason(condition->type() == "Created" ? "JobCreated" : "JobSuspended");
    condition->set_message("between two launches");
  }
  rest.set_state("Suspended");
  for (const v1::TaskRecord& task : job.status().tasks()) {
    v1::TaskRecord* record = rest.add_tasks();
    record->set_task(task.task());
    record->set_created(task.created());
  }
  return writeStatus(job.metadata().resource_version(), rest);
}

StatusOr<std::optional<v1::Membership>> RunRecord::readMembership() const {
  auto text = readFile(paths_.membership(), kMaxRecordBytes);
  if (absl::IsNotFound(text.status())) return std::optional<v1::Membership>();
  TY_RETURN_IF_ERROR(text.status());
  v1::Membership membership;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*text, &membership);
  if (!parsed.ok()) {
    return invalidInput(paths_.membership().string(),
                        std::string(splitFirst(parsed.message().ToString(), '\n').first));
  }
  return std::optional<v1::Membership>(std::move(membership));
}

Status RunRecord::writeMembership(const v1::Membership& membership) {
  TY_ASSIGN_OR_RETURN(const std::optional<v1::Membership> recorded, readMembership());
  const std::int64_t last = recorded ? recorded->revision() : 0;
  if (recorded && membership.revision() == last) {
    if (google::protobuf::util::MessageDifferencer::Equals(*recorded, membership)) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(fmt::format(
        "membership revision {} is recorded already with other content", membership.revision()));
  }
  if (membership.revision() != last + 1) {
    return absl::FailedPreconditionError(
        fmt::format("membership revision {} does not follow {}", membership.revision(), last));
  }
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(membership, &text, options);
  if (!printed.ok()) return absl::InternalError(printed.message().ToString());
  return writeFileAtomically(paths_.membership(), text);
}

Status RunRecord::appendEvent(UnixMillis at, std::string_view type, std::string_view reason,
                              std::string_view message) {
  Json json;
  json["time"] = formatRfc3339(at);
  json["type"] = type;
  json["reason"] = reason;
  json["message"] = message;
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const UniqueFd fd(
      ::open(paths_.events().c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  // One write of one line: readers that follow the file see whole lines.
  const ssize_t written = fd.valid() ? ::write(fd.get(), line.data(), line.size()) : -1;
  if (written == static_cast<ssize_t>(line.size())) return absl::OkStatus();
  return errnoStatus(errno, paths_.events().string());
}

}  // namespace trainyard::control
