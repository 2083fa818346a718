// What the agent of a running task tells Prometheus.
#pragma once

#include <string>

#include "tests/multiproc/run_fixture.h"

namespace trainyard {

// "" while there is none.
std::string metricsPage(const JobRun& run, const std::string& task);
// Sum over those of a family's series that have `label` among their labels.
double metricOf(const std::string& page, const std::string& name, const std::string& label = "");

}  // namespace trainyard
