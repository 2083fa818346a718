#include "operator/local/last_report.h"

#include <string>

#include "base/process/files.h"
#include "google/protobuf/util/json_util.h"

namespace trainyard::control {
namespace {

constexpr std::size_t kMaxReportBytes = 16 << 20;

}  // namespace

StatusOr<v1::RuntimeReport> readLastReport(const std::filesystem::path& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, kMaxReportBytes));
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::RuntimeReport report;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &report, options);
  if (!parsed.ok()) return invalidInput(path.native(), parsed.ToString());
  return report;
}

std::optional<v1::JobProgress> lastWordOf(const std::filesystem::path& path,
                                          const AgentFile& agent) {
  const auto report = readLastReport(path);
  if (!report.ok() || !report->has_job()) return std::nullopt;
  const v1::Incarnation& life = report->incarnation();
  if (life.created() != agent.created || life.start() != agent.start) return std::nullopt;
  return report->job();
}

}  // namespace trainyard::control
