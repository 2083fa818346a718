// trainyard-operator: runs the TrainingJobs of a Kubernetes.
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "base/core/commit.h"
#include "base/core/exit_code.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "base/process/open_files.h"
#include "base/process/signals.h"
#include "base/rpc/grpc_process.h"
#include "fmt/format.h"
#include "operator/kube/connection.h"
#include "operator/kube/release_pods.h"
#include "operator/process/linked_http.h"
#include "operator/process/operator.h"
#include "operator/process/operator_flags.h"

namespace trainyard::control {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

StatusOr<KubeConfig> findCluster(const OperatorFlags& flags) {
  if (!flags.kubeconfig.empty()) return loadKubeconfig(flags.kubeconfig, flags.context);
  if (const std::string path = variable("KUBECONFIG"); !path.empty()) {
    return loadKubeconfig(path, flags.context);
  }
  return inClusterConfig(kInClusterDirectory, variable("KUBERNETES_SERVICE_HOST"),
                         variable("KUBERNETES_SERVICE_PORT"));
}

int fail(const Status& status, int code) {
  TY_ERROR("{}", fromAbsl(status.message()));
  return code;
}

int failToStart(const Status& status) {
  const bool permanent = failureClass(status) == FailureClass::kPermanent;
  return fail(status, permanent ? kExitUsage : kExitFailure);
}

LogLevel levelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

// `trainyard-operator release-pods`: what is left to do when no operator is left (see
// helm/trainyard).
int runReleasePods(int argc, char** argv) {
  CLI::App app("Takes the operator's finalizer off the pods of all jobs.",
               "trainyard-operator release-pods");
  OperatorFlags flags;
  addClusterFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return answerParseError(app, error, std::cout, std::cerr);
  }
  const auto released = [&]() -> StatusOr<int> {
    TY_ASSIGN_OR_RETURN(const KubeConfig config, findCluster(flags));
    TY_ASSIGN_OR_RETURN(const auto transport, connectTo(config, systemClock(), {}));
    KubeClient client(*transport, systemClock());
    return releasePods(client, flags.namespaces);
  }();
  if (!released.ok()) return fail(released.status(), kExitFailure);
  std::cout << "released " << *released << " pods\n";
  return kExitOk;
}

// Becomes the program beside this one that has the wanted HTTP library; returns why it could not.
Status becomeProgramOf(const std::string& library, char** argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return errnoStatus(error.value(), "/proc/self/exe");
  const char* const name =
      library == "beast" ? "trainyard-operator" : "trainyard-operator-cpprestsdk";
  const std::filesystem::path other = self.parent_path() / name;
  ::execv(other.c_str(), argv);
  return errnoStatus(errno, other.string());
}

// Before any thread exists. Memory in as few pieces as its use allows: most threads only wait for
// the apiserver. And where the configuration names the authority to trust, the system's bundle of
// them is not read for every connection (cpprestsdk does so, wanted or not: some 30 ms each).
void saveMemory(const KubeConfig& cluster) {
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);  // glibc would raise it with each large block
  if (!cluster.ca.empty()) ::setenv("SSL_CERT_FILE", "/dev/null", 1);
}

int runMain(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "release-pods") {
    return runReleasePods(argc - 1, argv + 1);
  }
  CLI::App app("Runs the TrainingJobs of a Kubernetes.", "trainyard-operator");
  OperatorFlags flags;
  addFlags(app, flags);
  app.set_version_flag("--version",
                       fmt::format("trainyard-operator {} {}", TRAINYARD_VERSION, builtCommit()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return answerParseError(app, error, std::cout, std::cerr);
  }
  configureLog({.format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
                .level = levelOf(flags.log_level),
                .task = ""});
  if (flags.http_library != kLinkedHttp.name) {
    return fail(becomeProgramOf(flags.http_library, argv), kExitUsage);
  }
  const StatusOr<KubeConfig> cluster = findCluster(flags);
  if (!cluster.ok()) return failToStart(cluster.status());
  saveMemory(*cluster);
  // A connection to an agent of each job, which the usual 1,024 of a container would not hold.
  const std::uint64_t open_files = raiseOpenFilesLimit();
  TY_DEBUG("up to {} open files and connections", open_files);
  // Before any thread exists.
  StatusOr<SignalWaiter> signals = SignalWaiter::create({SIGTERM, SIGINT});
  if (!signals.ok()) return fail(signals.status(), kExitFailure);
  ::signal(SIGPIPE, SIG_IGN);
  prepareGrpc();
  StatusOr<std::unique_ptr<Operator>> made =
      Operator::create(flags, *cluster, *kLinkedHttp.library);
  if (!made.ok()) return failToStart(made.status());
  return (*made)->run(*signals);
}

}  // namespace
}  // namespace trainyard::control

int main(int argc, char** argv) {
  return trainyard::control::runMain(argc, argv);
}
