#include "cli/jobs/choose_source.h"

#include <utility>

#include "cli/jobs/local_jobs.h"
#include "cli/kube/cluster_jobs.h"
#include "cli/kube/connect.h"

namespace trainyard::cli {

StatusOr<std::unique_ptr<JobSource>> chooseSource(const JobFlags& flags, const Console& console,
                                                  const LauncherOptions& launcher) {
  if (!flags.cluster.given()) {
    return makeLocalJobs(runsDir(flags, console), !flags.runs.empty(), launcher, console);
  }
  TY_ASSIGN_OR_RETURN(std::shared_ptr<Connection> connection,
                      connectCluster(flags.cluster, console));
  const ClusterJobsOptions options{connection->ns, flags.cluster.all_namespaces,
                                   connection->config.server};
  // The client lives as long as its connection, which the jobs keep by it.
  std::shared_ptr<control::KubeClient> client(connection, connection->client.get());
  return makeClusterJobs(std::move(client), *console.clock, options);
}

}  // namespace trainyard::cli
