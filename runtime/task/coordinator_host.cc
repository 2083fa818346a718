#include "runtime/task/coordinator_host.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/core/log.h"
#include "base/core/sleep.h"
#include "base/core/strings.h"
#include "runtime/catalog/catalog.h"
#include "runtime/checkpoint/claim.h"
#include "runtime/placement/moves.h"
#include "runtime/program/initial_values.h"
#include "runtime/storage/storage.h"
#include "runtime/task/finish_record.h"
#include "runtime/task/job_tables.h"
#include "runtime/task/shard_files.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kStoreLook = std::chrono::seconds(1);

const Status& statusOf(const Status& status) {
  return status;
}
template <typename T>
const Status& statusOf(const StatusOr<T>& result) {
  return result.status();
}

CoordinatorConfig coordinatorConfig(const TaskOptions& options, const std::string& digest,
                                    const Placement& placement) {
  const v1::Training& training = options.job.spec().training();
  CoordinatorConfig config;
  config.job_uid = options.job.metadata().uid();
  config.job_digest = digest;
  config.self = options.self;
  config.ring = isRing(options.job);
  config.processes_per_pod = processesPerPod(options.job);
  if (!config.ring) {
    config.chunks = chunkLoads(placement, training.tables_size() > 0);
    config.grid_ps = placement.num_ps;
  }
  config.steps = training.steps();
  config.passes = training.passes();
  config.batch_size = training.batch_size();
  config.global_batch_size = training.global_batch_size();
  config.replicate = training.chunk_replicas() != "Never";
  config.replicate_pushes = training.chunk_replicas() == "Always";
  const v1::UpdateSpec& update = training.update();
  config.backup_workers = update.backup_workers();
  if (isAsynchronous(update)) {
    config.tickets.emplace();
    config.tickets->aggregate = std::max(1, update.aggregate());
    if (update.has_max_delay()) config.tickets->max_delay = update.max_delay();
    config.tickets->stop_all = update.stop() == "All";
  }
  config.evaluate_every = training.evaluate_every_steps();
  const v1::RunPolicy& policy = options.job.spec().run_policy();
  if (policy.has_stop_seconds()) config.stop_limit = std::chrono::seconds(policy.stop_seconds());
  config.checkpoint_every = std::chrono::seconds(training.checkpoint().every_seconds());
  if (training.checkpoint().has_full())
    config.full_every = std::chrono::seconds(training.checkpoint().full().every_seconds());
  return config;
}

// What an object store has of a job is its state: as long as nobody knows that, nothing begins.
template <typename Attempt>
auto onceReachable(const std::string& dir, const Attempt& attempt) {
  for (bool said = false;; said = true) {
    auto result = attempt();
    if (!mayPass(dir, statusOf(result))) return result;
    if (!said) TY_WARN("waits for the checkpoints: {}", fromAbsl(statusOf(result).message()));
    sleepUntil(systemClock().now() + kStoreLook);
  }
}

// A corrupt file is named and the one before it taken. Fails only where a file may turn out to be
// whole later.
StatusOr<std::optional<Manifest>> newestWhole(const TaskOptions& options) {
  const std::string dir = options.checkpointDir();
  std::vector<std::string> problems;
  std::optional<Manifest> newest;
  TY_ASSIGN_OR_RETURN(const std::vector<Manifest> manifests, readManifests(dir, &problems));
  for (const Manifest& manifest : manifests) {
    const Status verified = verifyFiles(dir, manifest);
    if (mayPass(dir, verified)) return verified;
    if (verified.ok() && manifest.job_uid == options.job.metadata().uid()) {
      newest = manifest;
      break;
    }
    TY_WARN("checkpoint {} is left out: {}", manifest.fileName(),
            verified.ok() ? "of another job" : std::string(fromAbsl(verified.message())));
  }
  for (const std::string& problem : problems) TY_WARN("{}", problem);
  return newest;
}

// Before anything is read: what a former coordinator commits from now on does not count. A disk
// that cannot be written to does not keep the job from training.
StatusOr<std::shared_ptr<Claim>> claimDirectory(const TaskOptions& task) {
  auto claim =
      std::make_shared<Claim>(task.checkpointDir(), Writer{task.job.metadata().uid(),
                                                           isRing(task.job) ? "worker-0" : "ps-0",
                                                           task.self.created(), task.self.start()});
  const Status held = onceReachable(task.checkpointDir(), [&] { return claim->hold(); });
  if (absl::IsAborted(held)) return held;
  if (!held.ok() && isRemote(task.checkpointDir())) return held;
  if (!held.ok()) TY_WARN("checkpoints cannot be written: {}", fromAbsl(held.message()));
  return claim;
}

}  // namespace

StatusOr<std::unique_ptr<CoordinatorService>> startCoordinator(const TaskOptions& task,
                                                               const std::string& job_digest,
                                                               const Placement& placement,
                                                               const Optimizer& optimizer,
                                                               std::string optimizer_name) {
  TY_ASSIGN_OR_RETURN(const JobTables job_tables, jobTables(task.job.spec().training()));
  CoordinatorService::Options options;
  TY_ASSIGN_OR_RETURN(options.claim, claimDirectory(task));
  options.displaced = task.end_at_once;
  options.checkpoint_dir = task.checkpointDir();
  options.keep = task.job.spec().training().checkpoint().keep();
  options.complete = [&, name = std::move(optimizer_name), tables = job_tables.described()](
                         Manifest& manifest, const v1::DataFingerprint& data) {
    describeModel(placement, optimizer, name, tables, manifest);
    manifest.data_sha256 = data.sha256();
    manifest.data_samples = data.samples();
    manifest.max_ps = std::max(placement.num_ps, task.job.spec().ps().max_replicas());
  };
  options.evaluated = [](const v1::Evaluation& e) {
    TY_INFO("step {}: accuracy {:.4f}{} on {} samples", e.version(),
            static_cast<double>(e.hits()) / static_cast<double>(e.samples()),
            e.has_auc() ? fmt::format(", AUC {:.4f}", e.auc()) : "", e.samples());
  };
  options.finish = [&](const FinishAction& end) {
    return recordFinish(task.checkpointDir(), task.job, task.self.created(), end.steps,
                        end.evaluation);
  };
  CoordinatorConfig config = coordinatorConfig(task, job_digest, placement);
  const StatusOr<std::int64_t> used_epoch =
      onceReachable(task.checkpointDir(), [&] { return highestEpochNamed(task.checkpointDir()); });
  config.used_epoch = used_epoch.value_or(0);  // of a disk that cannot be read
  config.finished =
      readFinish(task.checkpointDir(), task.job, task.self.created(),
                 task.membership.steps() > 0 ? task.membership.steps() : config.steps);
  TY_ASSIGN_OR_RETURN(std::optional<Manifest> newest,
                      onceReachable(task.checkpointDir(), [&] { return newestWhole(task); }));
  const std::string& init_from = task.job.spec().training().init_from();
  // Arrays of a file have come with what the program has declared.
  const bool declared = isProgram(task.job.spec().training().model()) && isArrayFile(init_from);
  if (!newest && !init_from.empty() && !declared) {
    TY_ASSIGN_OR_RETURN(config.init_manifest,
                        chooseInitManifest(init_from, placement, job_tables.described()));
    TY_INFO("the weights start from {}", config.init_manifest);
  }
  return std::make_unique<CoordinatorService>(
      std::move(options),
      Coordinator(config, task.membership, std::move(newest), task.clock->now()), *task.clock);
}

}  // namespace trainyard::runtime
