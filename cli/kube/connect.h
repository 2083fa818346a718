// The cluster that a user means.
#pragma once

#include <memory>
#include <string>

#include "base/core/status.h"
#include "cli/command.h"
#include "cli/jobs/flags.h"
#include "operator/kube/client.h"
#include "operator/kube/config.h"

namespace trainyard::cli {

// The flags, else $KUBECONFIG, else ~/.kube/config, else the pod that this runs in, as kubectl
// looks. INVALID_ARGUMENT or NOT_FOUND: there is none, or the file is not right.
StatusOr<control::KubeConfig> findCluster(const ClusterFlags& flags,
                                          const KubeEnvironment& environment);

// What a user can do with a failed call at `server`: the server where it cannot be reached or does
// not accept the user, what is missing where it knows no TrainingJobs. Code and payloads stay.
Status explain(const Status& status, const std::string& server);

// A client and what it needs. Thread-safe as the client is.
struct Connection {
  control::KubeConfig config;
  std::string ns;  // the one that is meant
  std::unique_ptr<control::HttpTransport> transport;
  std::unique_ptr<control::KubeClient> client;
};
StatusOr<std::unique_ptr<Connection>> connectCluster(const ClusterFlags& flags,
                                                     const Console& console);

}  // namespace trainyard::cli
