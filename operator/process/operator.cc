#include "operator/process/operator.h"

#include <malloc.h>
#include <unistd.h>

#include <condition_variable>
#include <thread>

#include "base/core/commit.h"
#include "base/core/exit_code.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/poll.h"
#include "base/security/random.h"
#include "fmt/format.h"
#include "operator/kube/connection.h"
#include "operator/kube/lease_store.h"
#include "operator/kube/root_secret.h"
#include "operator/operator_metrics.h"

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
// A burst of jobs leaves a heap of which little is in use.
constexpr Duration kTrimEvery = std::chrono::seconds(60);

void giveBackMemory() {
  const TimePoint began = systemClock().now();
  const bool any = ::malloc_trim(0) != 0;
  TY_DEBUG("memory: {} given back in {:.3f} s", any ? "some" : "none",
           toSeconds(systemClock().now() - began));
}

// Longer than any job takes, of which each call has a limit: a thread that does not come back from
// it is worth another process.
constexpr Duration kStuck = std::chrono::minutes(10);
constexpr std::size_t kMaxRootSecret = 4096;

StatusOr<std::string> readRootSecret(const std::string& path) {
  TY_ASSIGN_OR_RETURN(std::string secret, readFile(path, kMaxRootSecret));
  if (secret.size() >= kMinRootSecret) return secret;
  return invalidInput(path, fmt::format("expected at least {} bytes", kMinRootSecret));
}

std::string hostName() {
  char host[256] = {};
  return ::gethostname(host, sizeof(host) - 1) == 0 ? host : "";
}

}  // namespace

StatusOr<std::unique_ptr<Operator>> Operator::create(const OperatorFlags& flags,
                                                     const KubeConfig& cluster,
                                                     HttpLibrary& library) {
  TY_ASSIGN_OR_RETURN(WakeUp news, WakeUp::create());
  auto made = std::make_unique<Operator>(flags, std::move(news));
  TY_RETURN_IF_ERROR(made->connect(cluster, library));
  if (flags.leader_elect) made->makeElector();
  TY_RETURN_IF_ERROR(made->startServer());
  if (made->elector_) TY_RETURN_IF_ERROR(made->elector_->start());
  return made;
}

Status Operator::connect(const KubeConfig& config, HttpLibrary& library) {
  default_namespace_ = config.ns;
  ConnectionOptions connection;
  connection.registry = &page_.registry();
  connection.http.library = &library;
  TY_ASSIGN_OR_RETURN(transport_, connectTo(config, systemClock(), connection));
  // A connection of its own: a lease must not wait behind a thousand pods.
  ConnectionOptions leases;
  leases.http.library = connection.http.library;
  TY_ASSIGN_OR_RETURN(lease_transport_, connectTo(config, systemClock(), leases));
  KubeClientOptions client;
  client.limits.stop = stop_calls_.get_token();
  client.user_agent = "trainyard-operator/" TRAINYARD_VERSION;
  client.may_write = [this] { return leads(); };
  client_ = std::make_unique<KubeClient>(*transport_, systemClock(), client);

  KubeClusterOptions options;
  TY_ASSIGN_OR_RETURN(options.root_secrets, readRootSecrets());
  options.sync_timeout = kSyncTimeout;
  options.shared_every = fromSeconds(flags_.shared_objects_interval);
  options.render.agent_image = flags_.agent_image;
  options.render.runtime_image = flags_.runtime_image;
  options.render.runtime_torch_image = flags_.runtime_torch_image;
  options.render.image_pull_secrets = flags_.image_pull_secrets;
  if (!flags_.gang_scheduler.empty()) {
    const bool volcano = flags_.gang_scheduler == "Volcano";
    GangOptions& gang = options.render.gang.emplace();
    gang.kind = volcano ? GangScheduler::kVolcano : GangScheduler::kCoscheduling;
    gang.scheduler_name = !flags_.gang_scheduler_name.empty() ? flags_.gang_scheduler_name
                          : volcano                           ? "volcano"
                                                              : "scheduler-plugins-scheduler";
  }
  options.kueue = flags_.kueue;
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
  cluster_ = std::make_unique<KubeClusters>(*client_, systemClock(), options, flags_.namespaces);
  GrpcProgressOptions progress;
  progress.interval = fromSeconds(flags_.progress_interval);
  progress.unreachable_after = fromSeconds(flags_.unreachable_after);
  progress.others_every = kOthersEvery;
  progress.ask_coordinator_only = true;
  progress.may_tell = [this] { return leads(); };
  progress_ = std::make_unique<GrpcProgress>(*cluster_, progress);
  ControllerOptions controller;
  controller.threads = flags_.threads;
  controller.writes_at_once = kWritesAtOnce;
  controller.turns = std::chrono::seconds(1);
  controller.queue.pause = kPause;
  controller.observer = &work_meter_;
  controller.queue.observer = &work_meter_;
  controller_ =
      std::make_unique<Controller>(*cluster_, *progress_, systemClock(), std::move(controller));
  return absl::OkStatus();
}

StatusOr<std::vector<std::string>> Operator::readRootSecrets() {
  std::vector<std::string> roots;
  for (const std::string& path : flags_.root_secrets) {
    StatusOr<std::string> root = readRootSecret(path);
    // A Secret that was made after this pod appears in the pod's folder minutes later.
    if (roots.empty() && absl::IsNotFound(root.status()) && !flags_.root_secret_name.empty()) {
      KubeClient client(*lease_transport_, systemClock());  // whoever leads
      root = findOrMakeRootSecret(client, leaseNamespace(), flags_.root_secret_name);
    }
    TY_RETURN_IF_ERROR(root.status());
    roots.push_back(*std::move(root));
  }
  return roots;
}

std::string Operator::leaseNamespace() const {
  return flags_.lease_namespace.empty() ? default_namespace_ : flags_.lease_namespace;
}

void Operator::makeElector() {
  lease_ = makeLeaseStore(*lease_transport_, systemClock(), leaseNamespace(), flags_.lease_name);
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
  const auto alive = [this] {
    const auto stuck = work_meter_.stuckAt(kStuck);
    if (!stuck) return HttpReply{.body = "ok\n"};
    return HttpReply{.code = 503, .body = fmt::format("stuck at {}\n", *stuck)};
  };
  // One that waits to be elected is as ready as it can be.
  const auto ready = [this] {
    return !leads() || cluster_->hasSynced()
               ? HttpReply{.body = "ok\n"}
               : HttpReply{.code = 503, .body = "the caches are not filled\n"};
  };
  auto http = HttpServer::start(
      flags_.metrics_address, flags_.metrics_port,
      {{"/metrics", [this] { return page_.render(); }}, {"/healthz", alive}, {"/readyz", ready}});
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
  TY_INFO("looking after the jobs of {}",
          flags_.namespaces.empty() ? "all namespaces" : join(flags_.namespaces, ", "));
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
    const TimePoint next = systemClock().now() + kTrimEvery;
    pollUntil(fds, next);
    news_.clear();
    if (systemClock().now() >= next) giveBackMemory();
  }
}

}  // namespace trainyard::control
