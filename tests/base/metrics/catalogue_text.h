// The catalogue of metrics for people (docs/metrics.md) and for checks in Python (JSON).
#pragma once

#include <string>

namespace trainyard {

std::string metricsMarkdown();
// [{"name","type","unit","labels":[..],"exporters":[..],"help","when","buckets":[..]}]; exporters:
// operator, ps, worker, foreign; labels without a task's own.
std::string metricsJson();

}  // namespace trainyard
