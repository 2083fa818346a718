// The groups of clusterFindings(). Pure.
#pragma once

#include <vector>

#include "cli/doctor/cluster_findings.h"

namespace trainyard::cli {

void findOperator(const ClusterFacts& facts, const Release& release,
                  std::vector<Finding>& findings);
void findNamespace(const ClusterFacts& facts, std::vector<Finding>& findings);
void findNodes(const ClusterFacts& facts, std::vector<Finding>& findings);
void findStorage(const ClusterFacts& facts, std::vector<Finding>& findings);
void findJobs(const ClusterFacts& facts, UnixMillis now, std::vector<Finding>& findings);

// "create pods, patch trainingjobs/status": those that are allowed, or not.
std::string rightsText(const std::vector<Right>& rights, bool allowed);

}  // namespace trainyard::cli
