// The logs of a job's pods, put together by the time at which their nodes read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/core/clock.h"
#include "cli/jobs/job_source.h"
#include "operator/kube/client.h"

namespace trainyard::cli {

// A line of KubeClient::podLog(): nanoseconds since 1970 and the text behind the time. A line that
// begins with none has the time 0 and is text altogether. Pure.
std::pair<std::int64_t, std::string_view> splitStamp(std::string_view line);

// Prints what the pods of `job` logged. With request.follow: goes on until the job is over,
// suspended or gone, over losses of the connection and of pods, on threads of its own; `print` is
// called on the caller's. A pod whose container has not started has no log yet; one that is gone
// has none any more. Errors are those of the client; those that pass are waited out for a minute
// where the log is followed.
Status readPodLogs(control::KubeClient& client, const Clock& clock, const JobView& job,
                   const LogRequest& request, const LogPrinter& print);

}  // namespace trainyard::cli
