#include "agent/supervisor/agent_file.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/process/files.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace trainyard::agent {
namespace {

constexpr std::size_t kMaxFailure = 2000;

}  // namespace

std::string formatAgentFile(const AgentAddress& address, const ChildView& view) {
  const nlohmann::ordered_json file = {
      {"pid", ::getpid()},
      {"agentPort", address.agent_port},
      {"metricsPort", address.metrics_port},
      {"taskPort", address.task_port},
      {"ip", address.ip},
      {"created", address.created},
      {"start", view.start},
      {"plannedStarts", view.planned_starts},
      {"childPid", view.pids.empty() ? 0 : view.pids.front()},
      {"childPids", view.pids},
      {"child", view.child},
      {"ready", address.ready},
      {"lastExitCode", view.last_exit_code},
      {"lastSignal", view.last_signal},
  };
  return file.dump() + "\n";
}

Status writeAgentFile(const std::filesystem::path& path, const AgentAddress& address,
                      const ChildView& view) {
  return replaceFile(path, formatAgentFile(address, view));
}

Status writeReportFile(const std::filesystem::path& path, const v1::RuntimeReport& report) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Cannot fail: the message holds no Any.
  (void)google::protobuf::util::MessageToJsonString(report, &text, options);
  return replaceFile(path, text);
}

std::string lastWords(const v1::RuntimeReport& report) {
  if (!report.has_job()) return "";
  v1::JobProgress job = report.job();
  if (job.failure().size() > kMaxFailure) job.mutable_failure()->resize(kMaxFailure);
  std::string text;
  // Fails for text that is not UTF-8: then the log has to do.
  if (!google::protobuf::util::MessageToJsonString(job, &text).ok()) return "";
  return "{\"jobProgress\":" + text + "}\n";
}

Status writeLastWords(const std::filesystem::path& path, const v1::RuntimeReport& report) {
  const std::string text = lastWords(report);
  if (text.empty()) return absl::OkStatus();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (out) return absl::OkStatus();
  return errnoStatus(errno, path.native());
}

}  // namespace trainyard::agent
