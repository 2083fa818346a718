// Gauges of jobs, as their statuses have them.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control {

// trainyard_jobs, trainyard_job_*; a job that is gone has no series. Pure.
std::vector<prometheus::MetricFamily> jobFamilies(const std::vector<v1::TrainingJob>& jobs);

}  // namespace trainyard::control
