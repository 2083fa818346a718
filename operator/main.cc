// trainyard-operator: runs the TrainingJobs of a Kubernetes.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/commit.h"
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
#include "base/rpc/grpc_process.h"
#include "base/security/random.h"
#include "fmt/format.h"
#include "operator/controller.h"
#include "operator/kube/connection.h"
#include "operator/kube/kube_cluster.h"
#include "operator/kube/lease_store.h"
#include "operator/kube/release_pods.h"
#include "operator/lease/leader_elector.h"
#include "operator/operator_metrics.h"
#include "operator/progress/grpc_progress.h"

namespace trainyard::control {
namespace {

// What agents but the coordinator's have to say, restarts of their program, can wait for so many
// rounds.
constexpr int kOthersEvery = 5;
// Of one job. The connections to the apiserver bound those of all jobs.
constexpr int kWritesAtOnce = 16;
// How long calls that are under way at the end may take. A pod is killed 30 s after it was asked to
// end, and before that the lease is to be given back.
constexpr Duration kCallsAtEnd = std::chrono::seconds(10);
// For the first lists; then signals are looked at, and it waits again.
constexpr Duration kSyncTimeout = std::chrono::seconds(10);
// Between two looks at one job. What its pods do meanwhile is one change of its status.
constexpr Duration kPause = std::chrono::milliseconds(500);
constexpr std::size_t kMinRootSecret = 32;
constexpr std::size_t kMaxRootSecret = 4096;

struct Flags {
  std::string kubeconfig;
  std::string context;
  std::string ns;
  std::string agent_image;
  std::string runtime_image;
  std::string runtime_torch_image;
  std::string job_network_policy;
  std::vector<std::string> root_secrets;
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
  int threads = 8;
  std::string log_format = "json";
  std::string log_level = "info";
};

void addClusterFlags(CLI::App& app, Flags& flags) {
  app.add_option("--kubeconfig", flags.kubeconfig,
                 "File that says where the apiserver is; default: $KUBECONFIG, else the pod that "
                 "this runs in");
  app.add_option("--context", flags.context, "Context of the kubeconfig file");
  app.add_option("--namespace", flags.ns, "Whose jobs; default: those of all namespaces");
}

void addFlags(CLI::App& app, Flags& flags) {
  addClusterFlags(app, flags);
  app.add_option("--agent-image", flags.agent_image, "Image with the agent for other images")
      ->required();
  app.add_option("--runtime-image", flags.runtime_image, "Image of tasks that name none")
      ->required();
  app.add_option("--runtime-torch-image", flags.runtime_torch_image,
                 "The same for tasks that need LibTorch; without it such jobs are refused");
  app.add_option("--job-network-policy", flags.job_network_policy,
                 "Each job gets a NetworkPolicy: its tasks are reached by one another and, as this "
                 "JSON says, by {agentFrom: [peers], metricsFrom: [peers]}");
  app.add_option("--root-secret", flags.root_secrets,
                 "File of at least 32 random bytes, of which every job's keys are derived; given "
                 "again for former ones, whose jobs still run")
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
                 "In the lease, with random digits; default: the host name");
  app.add_option("--metrics-address", flags.metrics_address, "Address of /metrics and health")
      ->capture_default_str();
  app.add_option("--metrics-port", flags.metrics_port, "Port of /metrics and health; 0: any")
      ->check(wholeNumber(0, 65535))
      ->capture_default_str();
  app.add_option("--progress-interval", flags.progress_interval,
                 "Seconds between two questions to the agents")
      ->capture_default_str();
  app.add_option("--concurrent-reconciles", flags.threads, "Jobs that are looked at side by side")
      ->check(wholeNumber(1, 256))
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

std::string hostName() {
  char host[256] = {};
  return ::gethostname(host, sizeof(host) - 1) == 0 ? host : "";
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
  void makeElector();
  Status startServer();
  bool leads() const { return elector_ == nullptr || elector_->holds(); }
  // Ends the process, from any thread; the first reason counts.
  void giveUp(const std::string& why);
  std::optional<std::string> reasonToEnd();
  // Takes up all jobs; false when that is to be tried again.
  bool work();
  void stop();

  const Flags flags_;
  const WakeUp news_;
  std::mutex mutex_;
  std::optional<std::string> reason_;
  std::atomic<bool> elected_{false};
  bool working_ = false;

  MetricsPage page_;
  WorkMeter work_meter_{systemClock()};
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
  if (flags.leader_elect) made->makeElector();
  TY_RETURN_IF_ERROR(made->startServer());
  if (made->elector_) TY_RETURN_IF_ERROR(made->elector_->start());
  return made;
}

Status Operator::connect(const KubeConfig& config) {
  KubeClusterOptions options;
  for (const std::string& path : flags_.root_secrets) {
    TY_ASSIGN_OR_RETURN(std::string root, readRootSecret(path));
    options.root_secrets.push_back(std::move(root));
  }
  default_namespace_ = config.ns;
  ConnectionOptions connection;
  connection.registry = &page_.registry();
  TY_ASSIGN_OR_RETURN(transport_, connectTo(config, systemClock(), connection));
  // A connection of its own: a lease must not wait behind a thousand pods.
  TY_ASSIGN_OR_RETURN(lease_transport_, connectTo(config, systemClock(), {}));
  KubeClientOptions client;
  client.limits.stop = stop_calls_.get_token();
  client.user_agent = "trainyard-operator/" TRAINYARD_VERSION;
  client.may_write = [this] { return leads(); };
  client_ = std::make_unique<KubeClient>(*transport_, systemClock(), client);

  options.ns = flags_.ns;
  options.sync_timeout = kSyncTimeout;
  options.render.agent_image = flags_.agent_image;
  options.render.runtime_image = flags_.runtime_image;
  options.render.runtime_torch_image = flags_.runtime_torch_image;
  if (!flags_.job_network_policy.empty()) {
    StatusOr<PolicyOptions> policy = parsePolicyOptions(flags_.job_network_policy);
    TY_RETURN_IF_ERROR(annotate(policy.status(), "--job-network-policy"));
    options.render.policy = *std::move(policy);
  }
  options.may_write = [this] { return leads(); };
  options.refused = [this](const Status& status) {
    giveUp(fmt::format("the apiserver refuses us: {}", fromAbsl(status.message())));
  };
  options.reflector.seed = static_cast<std::uint64_t>(systemClock().unixMillis());
  cluster_ = std::make_unique<KubeCluster>(*client_, systemClock(), options);
  GrpcProgressOptions progress;
  progress.interval = fromSeconds(flags_.progress_interval);
  progress.others_every = kOthersEvery;
  progress.may_tell = [this] { return leads(); };
  progress_ = std::make_unique<GrpcProgress>(*cluster_, progress);
  ControllerOptions controller;
  controller.threads = flags_.threads;
  controller.writes_at_once = kWritesAtOnce;
  controller.queue.pause = kPause;
  controller.observer = &work_meter_;
  controller.queue.observer = &work_meter_;
  controller_ =
      std::make_unique<Controller>(*cluster_, *progress_, systemClock(), std::move(controller));
  return absl::OkStatus();
}

void Operator::makeElector() {
  const std::string ns =
      flags_.lease_namespace.empty() ? default_namespace_ : flags_.lease_namespace;
  lease_ = makeLeaseStore(*lease_transport_, systemClock(), ns, flags_.lease_name);
  LeaderOptions options;
  // Unlike that of a former life of the same pod.
  const std::string who = flags_.identity.empty() ? hostName() : flags_.identity;
  options.identity = fmt::format("{}_{}", who, randomHex(8));
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
}

Status Operator::startServer() {
  addBuildInfo(page_.registry(), TRAINYARD_VERSION, builtCommit());
  page_.add(makeProcessMetrics());
  page_.add(
      makeOperatorMetrics({.work = &work_meter_,
                           .workers = flags_.threads,
                           .jobs = [this] { return cluster_->cachedJobs(); },
                           .waiting = [this] { return controller_->queue().waiting(); },
                           .adds = [this] { return controller_->queue().adds(); },
                           .retries = [this] { return controller_->queue().retries(); },
                           .leads = [this] { return leads(); },
                           .slow_paths = [this] { return elector_ ? elector_->slowPaths() : 0; },
                           .cached_pods = [this] { return cluster_->cachedPods(); },
                           .unreachable_agents = [this] { return progress_->unreachable(); },
                           .reflectors = [this] { return cluster_->reflectorCounts(); }}));
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

bool Operator::work() {
  TY_INFO("looking after the jobs of {}", flags_.ns.empty() ? "all namespaces" : flags_.ns);
  if (const Status started = controller_->start(); !started.ok()) {
    const std::string why(started.message());
    if (failureClass(started) == FailureClass::kRetry) {
      TY_WARN("{}; waiting for it", why);
      return false;
    }
    giveUp(why);
    return true;
  }
  progress_->start();
  return true;
}

void Operator::stop() {
  // Gives up the calls that are still under way then, or when all others have ended.
  std::jthread bound([this](const std::stop_token& over) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_until(lock, over, systemClock().now() + kCallsAtEnd, [] { return false; });
    stop_calls_.request_stop();
  });
  controller_->stop();
  (void)cluster_->watch({});  // cannot fail: it only forgets the callback
  progress_->stop();
  bound.request_stop();
  bound.join();
  if (elector_) elector_->stop();  // nothing is written any more
}

int Operator::run(SignalWaiter& signals) {
  if (!flags_.leader_elect) elected_ = true;
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
    if (elected_ && !working_) {
      working_ = work();
      continue;
    }
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

// `trainyard-operator release-pods`: what is left to do when no operator is left (see
// helm/trainyard).
int runReleasePods(int argc, char** argv) {
  CLI::App app("Takes the operator's finalizer off the pods of all jobs.",
               "trainyard-operator release-pods");
  Flags flags;
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
    return releasePods(client, flags.ns);
  }();
  if (!released.ok()) return fail(released.status(), kExitFailure);
  std::cout << "released " << *released << " pods\n";
  return kExitOk;
}

// Before any thread exists. Memory in as few pieces as its use allows: most threads only wait for
// the apiserver. And where the configuration names the authority to trust, the system's bundle of
// them is not read for every connection (cpprestsdk does so, wanted or not: some 30 ms each).
void saveMemory(const Flags& flags) {
  ::mallopt(M_ARENA_MAX, 2);
  const StatusOr<KubeConfig> config = findCluster(flags);
  if (config.ok() && !config->ca.empty()) ::setenv("SSL_CERT_FILE", "/dev/null", 1);
}

int runMain(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "release-pods") {
    return runReleasePods(argc - 1, argv + 1);
  }
  CLI::App app("Runs the TrainingJobs of a Kubernetes.", "trainyard-operator");
  Flags flags;
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
  saveMemory(flags);
  // Before any thread exists.
  StatusOr<SignalWaiter> signals = SignalWaiter::create({SIGTERM, SIGINT});
  if (!signals.ok()) return fail(signals.status(), kExitFailure);
  ::signal(SIGPIPE, SIG_IGN);
  prepareGrpc();
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
