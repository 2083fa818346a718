// trainyard-operator: runs the TrainingJobs of a Kubernetes.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "base/http/http_server.h"
#include "base/http/metrics.h"
#include "base/process/files.h"
#include "base/process/pipe.h"
#include "base/process/poll.h"
#include "base/process/signals.h"
#include "base/rpc/grpc_log.h"
#include "base/security/random.h"
#include "fmt/format.h"
#include "operator/controller.h"
#include "operator/kube/connection.h"
#include "operator/kube/kube_cluster.h"
#include "operator/kube/lease_store.h"
#include "operator/lease/leader_elector.h"
#include "operator/operator_metrics.h"
#include "operator/progress/grpc_progress.h"

namespace trainyard::control {
namespace {

constexpr std::size_t kMinRootSecret = 32;
constexpr std::size_t kMaxRootSecret = 4096;

struct Flags {
  std::string kubeconfig;
  std::string context;
  std::string ns;
  std::string agent_image;
  std::string runtime_image;
  std::string root_secret;
  bool leader_elect = false;
  std::string lease_namespace;
  std::string lease_name = "trainyard-operator";
  double lease_duration = 15;
  double renew_deadline = 10;
  double retry_period = 2;
  std::string identity;
  std::string metrics_address = "0.0.0.0";
  int metrics_port = 8080;
  double progress_interval = 1;
  std::string log_format = "json";
  std::string log_level = "info";
};

void addFlags(CLI::App& app, Flags& flags) {
  app.add_option("--kubeconfig", flags.kubeconfig,
                 "File that says where the apiserver is; default: $KUBECONFIG, else the pod that "
                 "this runs in");
  app.add_option("--context", flags.context, "Context of the kubeconfig file");
  app.add_option("--namespace", flags.ns, "Whose jobs; default: those of all namespaces");
  app.add_option("--agent-image", flags.agent_image, "Image with the agent for other images")
      ->required();
  app.add_option("--runtime-image", flags.runtime_image, "Image of tasks that name none")
      ->required();
  app.add_option("--root-secret", flags.root_secret,
                 "File of at least 32 random bytes, of which every job's keys are derived")
      ->required();
  app.add_flag("--leader-elect", flags.leader_elect, "Work only while holding a lease");
  app.add_option("--lease-namespace", flags.lease_namespace,
                 "Namespace of the lease; default: that of this pod or of the context");
  app.add_option("--lease-name", flags.lease_name, "Name of the lease")->capture_default_str();
  app.add_option("--lease-duration", flags.lease_duration, "Seconds until others take it over")
      ->capture_default_str();
  app.add_option("--renew-deadline", flags.renew_deadline, "Seconds until a leader gives up")
      ->capture_default_str();
  app.add_option("--retry-period", flags.retry_period, "Seconds between two attempts")
      ->capture_default_str();
  app.add_option("--identity", flags.identity,
                 "In the lease; default: host name and random digits");
  app.add_option("--metrics-address", flags.metrics_address, "Address of /metrics and health")
      ->capture_default_str();
  app.add_option("--metrics-port", flags.metrics_port, "Port of /metrics and health; 0: any")
      ->check(wholeNumber(0, 65535))
      ->capture_default_str();
  app.add_option("--progress-interval", flags.progress_interval,
                 "Seconds between two questions to the agents")
      ->capture_default_str();
  app.add_option("--log-format", flags.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

StatusOr<KubeConfig> findCluster(const Flags& flags) {
  if (!flags.kubeconfig.empty()) return loadKubeconfig(flags.kubeconfig, flags.context);
  if (const std::string path = variable("KUBECONFIG"); !path.empty()) {
    return loadKubeconfig(path, flags.context);
  }
  return inClusterConfig(kInClusterDirectory, variable("KUBERNETES_SERVICE_HOST"),
                         variable("KUBERNETES_SERVICE_PORT"));
}

StatusOr<std::string> readRootSecret(const std::string& path) {
  TY_ASSIGN_OR_RETURN(std::string secret, readFile(path, kMaxRootSecret));
  if (secret.size() >= kMinRootSecret) return secret;
  return invalidInput(path, fmt::format("expected at least {} bytes", kMinRootSecret));
}

std::string makeIdentity() {
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return fmt::format("{}_{}", host, randomHex(8));
}

// The parts of the operator, from the bottom up; destroyed in reverse.
class Operator {
 public:
  static StatusOr<std::unique_ptr<Operator>> create(const Flags& flags);
  // Only create() makes one.
  Operator(const Flags& flags, WakeUp news) : flags_(flags), news_(std::move(news)) {}

  // Until a signal comes (kExitOk) or it may not or cannot go on.
  int run(SignalWaiter& signals);

 private:
  Status connect(const KubeConfig& config);
  Status startElection();
  Status startServer();
  bool leads() const { return elector_ == nullptr || elector_->holds(); }
  // Ends the process, from any thread; the first reason counts.
  void giveUp(const std::string& why);
  std::optional<std::string> reasonToEnd();
  void work();
  void stop();

  const Flags flags_;
  const WakeUp news_;
  std::mutex mutex_;
  std::optional<std::string> reason_;
  std::atomic<bool> elected_{false};
  bool working_ = false;

  MetricsPage page_;
  std::stop_source stop_calls_;
  std::string default_namespace_;
  std::unique_ptr<HttpTransport> transport_;
  std::unique_ptr<HttpTransport> lease_transport_;
  std::unique_ptr<KubeClient> client_;
  std::unique_ptr<LeaseStore> lease_;
  std::unique_ptr<LeaderElector> elector_;
  std::unique_ptr<KubeCluster> cluster_;
  std::unique_ptr<GrpcProgress> progress_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<HttpServer> http_;
};

StatusOr<std::unique_ptr<Operator>> Operator::create(const Flags& flags) {
  TY_ASSIGN_OR_RETURN(WakeUp news, WakeUp::create());
  auto made = std::make_unique<Operator>(flags, std::move(news));
  TY_ASSIGN_OR_RETURN(const KubeConfig config, findCluster(flags));
  TY_RETURN_IF_ERROR(made->connect(config));
  TY_RETURN_IF_ERROR(made->startServer());
  if (flags.leader_elect) TY_RETURN_IF_ERROR(made->startElection());
  return made;
}

Status Operator::connect(const KubeConfig& config) {
  TY_ASSIGN_OR_RETURN(const std::string root, readRootSecret(flags_.root_secret));
  default_namespace_ = config.ns;
  ConnectionOptions connection;
  connection.registry = &page_.registry();
  TY_ASSIGN_OR_RETURN(transport_, connectTo(config, systemClock(), connection));
  // A connection of its own: a lease must not wait behind a thousand pods.
  TY_ASSIGN_OR_RETURN(lease_transport_, connectTo(config, systemClock(), {}));
  KubeClientOptions client;
  client.limits.stop = stop_calls_.get_token();
  client.user_agent = "trainyard-operator/" TRAINYARD_VERSION;
  client_ = std::make_unique<KubeClient>(*transport_, systemClock(), client);

  KubeClusterOptions options;
  options.ns = flags_.ns;
  options.render.agent_image = flags_.agent_image;
  options.render.runtime_image = flags_.runtime_image;
  options.root_secret = root;
  options.may_write = [this] { return leads(); };
  options.refused = [this](const Status& status) {
    giveUp(fmt::format("the apiserver refuses us: {}", fromAbsl(status.message())));
  };
  options.reflector.seed = static_cast<std::uint64_t>(systemClock().unixMillis());
  cluster_ = std::make_unique<KubeCluster>(*client_, systemClock(), options);
  GrpcProgressOptions progress;
  progress.interval = fromSeconds(flags_.progress_interval);
  progress_ = std::make_unique<GrpcProgress>(*cluster_, progress);
  controller_ =
      std::make_unique<Controller>(*cluster_, *progress_, systemClock(), ControllerOptions());
  return absl::OkStatus();
}

Status Operator::startElection() {
  const std::string ns =
      flags_.lease_namespace.empty() ? default_namespace_ : flags_.lease_namespace;
  lease_ = makeLeaseStore(*lease_transport_, systemClock(), ns, flags_.lease_name);
  LeaderOptions options;
  options.identity = flags_.identity.empty() ? makeIdentity() : flags_.identity;
  options.lease_duration = fromSeconds(flags_.lease_duration);
  options.renew_deadline = fromSeconds(flags_.renew_deadline);
  options.retry_period = fromSeconds(flags_.retry_period);
  LeaderCallbacks callbacks;
  callbacks.started = [this] {
    elected_ = true;
    news_.wake();
  };
  callbacks.lost = [this](const std::string& why) { giveUp("no longer the leader: " + why); };
  callbacks.new_leader = [](const std::string& leader) { TY_INFO("{} is the leader", leader); };
  elector_ = std::make_unique<LeaderElector>(options, *lease_, systemClock(), callbacks);
  return elector_->start();
}

Status Operator::startServer() {
  addBuildInfo(page_.registry(), TRAINYARD_VERSION, TRAINYARD_COMMIT);
  page_.add(makeProcessMetrics());
  page_.add(makeOperatorMetrics({.counts = [this] { return controller_->counts(); },
                                 .waiting = [this] { return controller_->queue().waiting(); },
                                 .adds = [this] { return controller_->queue().adds(); },
                                 .retries = [this] { return controller_->queue().retries(); },
                                 .leads = [this] { return leads(); },
                                 .cached_pods = [this] { return cluster_->cachedPods(); }}));
  const auto ok = [] { return HttpReply{.body = "ok\n"}; };
  // One that waits to be elected is as ready as it can be.
  const auto ready = [this] {
    return !leads() || cluster_->hasSynced()
               ? HttpReply{.body = "ok\n"}
               : HttpReply{.code = 503, .body = "the caches are not filled\n"};
  };
  auto http = HttpServer::start(
      flags_.metrics_address, flags_.metrics_port,
      {{"/metrics", [this] { return page_.render(); }}, {"/healthz", ok}, {"/readyz", ready}});
  if (!http.ok()) return annotate(http.status(), "metrics");
  http_ = *std::move(http);
  TY_INFO("metrics and health at {}:{}", flags_.metrics_address, http_->port());
  return absl::OkStatus();
}

void Operator::giveUp(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!reason_) reason_ = why;
  news_.wake();
}

std::optional<std::string> Operator::reasonToEnd() {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void Operator::work() {
  working_ = true;
  TY_INFO("looking after the jobs of {}", flags_.ns.empty() ? "all namespaces" : flags_.ns);
  if (const Status started = controller_->start(); !started.ok()) {
    return giveUp(std::string(started.message()));
  }
  progress_->start();
}

void Operator::stop() {
  controller_->stop();
  (void)cluster_->watch({});  // cannot fail: it only forgets the callback
  progress_->stop();
  stop_calls_.request_stop();
  if (elector_) elector_->stop();  // nothing is written any more
}

int Operator::run(SignalWaiter& signals) {
  if (!flags_.leader_elect) work();
  for (;;) {
    if (const auto why = reasonToEnd()) {
      TY_ERROR("{}", *why);
      stop();
      return kExitFailure;
    }
    if (signals.next()) {
      TY_INFO("stopping");
      stop();
      return kExitOk;
    }
    if (elected_ && !working_) work();
    pollfd fds[] = {{signals.fd(), POLLIN, 0}, {news_.fd(), POLLIN, 0}};
    pollUntil(fds, systemClock().now() + std::chrono::seconds(60));
    news_.clear();
  }
}

int fail(const Status& status, int code) {
  TY_ERROR("{}", fromAbsl(status.message()));
  return code;
}

LogLevel levelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

int runMain(int argc, char** argv) {
  CLI::App app("Runs the TrainingJobs of a Kubernetes.", "trainyard-operator");
  Flags flags;
  addFlags(app, flags);
  app.set_version_flag("--version", "trainyard-operator " TRAINYARD_VERSION " " TRAINYARD_COMMIT);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return answerParseError(app, error, std::cout, std::cerr);
  }
  configureLog({.format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
                .level = levelOf(flags.log_level),
                .task = ""});
  // Before any thread exists.
  StatusOr<SignalWaiter> signals = SignalWaiter::create({SIGTERM, SIGINT});
  if (!signals.ok()) return fail(signals.status(), kExitFailure);
  ::signal(SIGPIPE, SIG_IGN);
  quietGrpc();
  StatusOr<std::unique_ptr<Operator>> made = Operator::create(flags);
  if (!made.ok()) {
    const bool permanent = failureClass(made.status()) == FailureClass::kPermanent;
    return fail(made.status(), permanent ? kExitUsage : kExitFailure);
  }
  return (*made)->run(*signals);
}

}  // namespace
}  // namespace trainyard::control

int main(int argc, char** argv) {
  return trainyard::control::runMain(argc, argv);
}
