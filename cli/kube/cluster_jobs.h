// The TrainingJobs of a cluster, as jobs that the verbs look after.
#pragma once

#include <memory>
#include <string>

#include "cli/jobs/job_source.h"
#include "operator/kube/client.h"

namespace trainyard::cli {

struct ClusterJobsOptions {
  std::string ns;
  bool all_namespaces = false;  // for list()
  std::string server;           // for messages
};

// `clock` outlives the source. logs() with `follow` uses threads of its own, which end with the
// call.
std::unique_ptr<JobSource> makeClusterJobs(std::shared_ptr<control::KubeClient> client,
                                           const Clock& clock, const ClusterJobsOptions& options);

}  // namespace trainyard::cli
