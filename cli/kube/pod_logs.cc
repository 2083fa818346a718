#include "cli/kube/pod_logs.h"

#include <algorithm>
#include <vector>

#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "cli/kube/internal/log_follower.h"
#include "cli/kube/internal/log_pods.h"
#include "fmt/format.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"

namespace trainyard::cli {

using Json = nlohmann::json;

namespace {

// A log is at most some tens of megabytes: nodes cut them.
constexpr Duration kLogDeadline = std::chrono::minutes(10);

}  // namespace

std::pair<std::int64_t, std::string_view> splitStamp(std::string_view line) {
  const auto [stamp, text] = splitFirst(line, ' ');
  const std::int64_t nanos = parseRfc3339Nanos(stamp).value_or(0);
  return nanos > 0 ? std::pair(nanos, text) : std::pair(std::int64_t{0}, line);
}

namespace internal {

StatusOr<std::vector<LogPod>> listLogPods(control::KubeClient& client, const JobView& job,
                                          const std::string& task) {
  control::ListQuery query;
  query.ns = job.ns;
  query.label_selector = fmt::format("{}={}", control::kJobNameLabel, job.name);
  TY_ASSIGN_OR_RETURN(const control::ListPage page, client.list(control::kPods, query));
  const Json::json_pointer container("/metadata/annotations");
  std::vector<LogPod> pods;
  for (const Json& pod : page.items) {
    const auto seen = control::observePod(pod);
    if (!seen || control::controllerUid(pod) != job.job.metadata().uid()) continue;
    LogPod found;
    found.task = control::toString(seen->key);
    if (!task.empty() && found.task != task) continue;
    found.name = pod.at("metadata").value("name", "");
    found.uid = pod.at("metadata").value("uid", "");
    found.container = pod.value(container, Json::object())
                          .value(std::string(control::kTaskContainerAnnotation), "");
    found.started = seen->phase != control::TaskPhase::kPending;
    found.ended = seen->exit.has_value();
    pods.push_back(std::move(found));
  }
  std::sort(pods.begin(), pods.end(),
            [](const LogPod& a, const LogPod& b) { return a.task < b.task; });
  return pods;
}

}  // namespace internal

Status readPodLogs(control::KubeClient& client, const Clock& clock, const JobView& job,
                   const LogRequest& request, const LogPrinter& print) {
  if (request.follow) return internal::LogFollower(client, clock, job, request, print).run();
  TY_ASSIGN_OR_RETURN(const std::vector<internal::LogPod> pods,
                      internal::listLogPods(client, job, request.task));
  control::HttpLimits limits = client.options().limits;
  limits.deadline = limits.inactivity = kLogDeadline;
  control::KubeClient reader = client.with(limits);
  std::vector<internal::LogLine> lines;
  Status failure;
  for (const internal::LogPod& pod : pods) {
    if (!pod.started) continue;
    control::PodLogQuery query;
    query.container = pod.container;
    query.tail = request.tail;
    std::int64_t last = 0;
    const Status read = reader.podLog(job.ns, pod.name, query, [&](std::string_view line) {
      const auto [time, text] = splitStamp(line);
      last = std::max(last, time);  // a line without a time follows the one before it
      lines.push_back({last, pod.task, std::string(text)});
      return true;
    });
    if (!read.ok() && !internal::hasNoLog(read) && failure.ok()) failure = read;
  }
  internal::printByTime(&lines, print);
  print.flush();
  return failure;
}

}  // namespace trainyard::cli
