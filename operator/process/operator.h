// The operator's process, put together.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "base/http/http_server.h"
#include "base/http/metrics.h"
#include "base/process/pipe.h"
#include "base/process/signals.h"
#include "operator/controller.h"
#include "operator/kube/config.h"
#include "operator/kube/http_transport.h"
#include "operator/kube/kube_clusters.h"
#include "operator/lease/leader_elector.h"
#include "operator/process/operator_flags.h"
#include "operator/progress/grpc_progress.h"
#include "operator/work_meter.h"

namespace trainyard::control {

// The parts of the operator, from the bottom up; destroyed in reverse.
class Operator {
 public:
  // Connects to the cluster and serves its pages. INVALID_ARGUMENT and others of class kPermanent:
  // what it was given is wrong.
  static StatusOr<std::unique_ptr<Operator>> create(const OperatorFlags& flags,
                                                    const KubeConfig& cluster,
                                                    HttpLibrary& library);
  // Only create() makes one.
  Operator(const OperatorFlags& flags, WakeUp news) : flags_(flags), news_(std::move(news)) {}

  // Until a signal (SIGTERM, SIGINT) comes, and then within some 15 s: kExitOk; or it may not or
  // cannot go on. Gives back the lease, if it has it. Blocks.
  int run(SignalWaiter& signals);

 private:
  Status connect(const KubeConfig& config, HttpLibrary& library);
  // Those of the files, the newest first; where its file is not there, that of the named Secret.
  StatusOr<std::vector<std::string>> readRootSecrets();
  std::string leaseNamespace() const;
  void makeElector();
  Status startServer();
  bool leads() const { return elector_ == nullptr || elector_->holds(); }
  // Ends the process, from any thread; the first reason counts.
  void giveUp(const std::string& why);
  std::optional<std::string> reasonToEnd();
  // Takes up all jobs; false when that is to be tried again.
  bool work();
  void stop();

  const OperatorFlags flags_;
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
  std::unique_ptr<KubeClusters> cluster_;
  std::unique_ptr<GrpcProgress> progress_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace trainyard::control
