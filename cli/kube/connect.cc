#include "cli/kube/connect.h"

#include <filesystem>
#include <system_error>

#include "cli/version.h"
#include "fmt/format.h"
#include "operator/kube/connection.h"

namespace trainyard::cli {

namespace fs = std::filesystem;

StatusOr<control::KubeConfig> findCluster(const ClusterFlags& flags,
                                          const KubeEnvironment& environment) {
  if (!flags.kubeconfig.empty()) return control::loadKubeconfig(flags.kubeconfig, flags.context);
  if (!environment.kubeconfig.empty()) {
    auto config = control::loadKubeconfig(environment.kubeconfig, flags.context);
    if (!config.ok()) return annotate(config.status(), "KUBECONFIG");
    return config;
  }
  const fs::path usual = fs::path(environment.home) / ".kube" / "config";
  std::error_code error;
  if (!environment.home.empty() && fs::exists(usual, error)) {
    return control::loadKubeconfig(usual.native(), flags.context);
  }
  if (environment.service_host.empty()) {
    return absl::InvalidArgumentError(
        "no cluster is known: there is no ~/.kube/config, KUBECONFIG is not set, and this is no "
        "pod; give --kubeconfig FILE");
  }
  if (!flags.context.empty()) {
    return absl::InvalidArgumentError("--context: there is no kubeconfig file that has contexts");
  }
  return control::inClusterConfig(control::kInClusterDirectory, environment.service_host,
                                  environment.service_port);
}

Status explain(const Status& status, const std::string& server) {
  if (status.ok()) return status;
  const std::string reason = control::kubeReason(status);
  // Without a word of the server it is the user's own program that failed, which is named.
  if (absl::IsUnauthenticated(status) && !reason.empty()) {
    return annotate(status, server + " does not accept this user's certificate or token");
  }
  if (reason.empty() && (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))) {
    return annotate(status, "cannot reach " + server);
  }
  // The path as such is not known there; for an object that is missing the server has a word.
  if (reason.empty() && absl::IsNotFound(status)) {
    return annotate(status, server + " knows no TrainingJobs: is Trainyard's chart installed?");
  }
  return status;
}

StatusOr<std::unique_ptr<Connection>> connectCluster(const ClusterFlags& flags,
                                                     const Console& console) {
  auto made = std::make_unique<Connection>();
  TY_ASSIGN_OR_RETURN(made->config, findCluster(flags, console.kube));
  made->ns = flags.ns.empty() ? made->config.ns : flags.ns;
  TY_ASSIGN_OR_RETURN(made->transport, control::connectTo(made->config, *console.clock));
  control::KubeClientOptions options;
  options.user_agent = "trainyard/" + versionText();
  made->client =
      std::make_unique<control::KubeClient>(*made->transport, *console.clock, std::move(options));
  return made;
}

}  // namespace trainyard::cli
