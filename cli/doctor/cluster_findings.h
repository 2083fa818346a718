// What is to be said of a cluster, for jobs in one of its namespaces. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/cluster_facts.h"
#include "cli/doctor/finding.h"

namespace trainyard::cli {

// What this command line is, and needs.
struct Release {
  std::string version;  // "0.1.0"
  int kube_major = 1;   // the oldest Kubernetes that the chart takes
  int kube_minor = 0;
};
// That of this build.
Release thisRelease();

// `now`: for how long a job has waited.
std::vector<Finding> clusterFindings(const ClusterFacts& facts, const Release& release,
                                     UnixMillis now);
// Of a cluster that cannot even be looked for, as findCluster() says it.
std::vector<Finding> noClusterFindings(const Status& why);

}  // namespace trainyard::cli
