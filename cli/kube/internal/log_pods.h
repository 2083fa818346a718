// The pods whose logs are read, and their lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "cli/jobs/job_source.h"
#include "operator/kube/client.h"

namespace trainyard::cli::internal {

struct LogPod {
  std::string task;  // "worker-0"
  std::string name;
  std::string uid;
  std::string container;  // "": the only one
  bool started = false;   // its container runs or has ended
  bool ended = false;
};
// Of `job`, sorted by task; `task` "": all.
StatusOr<std::vector<LogPod>> listLogPods(control::KubeClient& client, const JobView& job,
                                          const std::string& task);

struct LogLine {
  std::int64_t time = 0;  // nanoseconds since 1970
  std::string task;
  std::string text;
};

// Prints and empties them.
inline void printByTime(std::vector<LogLine>* lines, const LogPrinter& print) {
  std::stable_sort(lines->begin(), lines->end(),
                   [](const LogLine& a, const LogLine& b) { return a.time < b.time; });
  for (const LogLine& line : *lines) print.line(line.task, line.text);
  lines->clear();
}

// The container has not started, or the pod is gone.
inline bool hasNoLog(const Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status);
}

}  // namespace trainyard::cli::internal
