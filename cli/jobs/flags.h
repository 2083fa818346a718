// What the verbs on jobs have in common.
#pragma once

#include <filesystem>
#include <string>

#include "base/core/status.h"
#include "cli/command.h"

namespace trainyard::cli {

// Which cluster, and whose jobs there. The verbs mean it where one of these is given.
struct ClusterFlags {
  bool cluster = false;    // the one of the current context
  std::string kubeconfig;  // "": as the Console says
  std::string context;     // "": the current one
  std::string ns;          // "": the context's
  bool all_namespaces = false;

  bool given() const {
    return cluster || all_namespaces || !kubeconfig.empty() || !context.empty() || !ns.empty();
  }
  // The flags as the user would give them again, for the job of namespace `job_ns`:
  // " -n lab --context east".
  std::string again(const std::string& job_ns) const;
};

struct JobFlags {
  std::string job;   // name or directory
  std::string runs;  // "": as the Console says
  ClusterFlags cluster;
};

// --runs, and JOB where a job must be named.
void addRunsFlag(CLI::App& verb, JobFlags& flags);
void addJobFlags(CLI::App& verb, JobFlags& flags);
// --context, --kubeconfig, -n; `optional`: also --cluster, for verbs that may mean local jobs.
void addClusterFlags(CLI::App& verb, ClusterFlags& flags, bool optional);
std::string runsDir(const JobFlags& flags, const Console& console);

// One line on standard error, "trainyard <verb>: ...". Returns the exit code: 2 for what the user
// gave, 1 for what went wrong.
int failVerb(const Console& console, const std::string& verb, const Status& status);

}  // namespace trainyard::cli
