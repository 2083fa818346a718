#include "runtime/task/worker_member.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/metrics/bucket_message.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/coordinator/member_processes.h"
#include "runtime/files/remote_files.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kFinishCheck = std::chrono::milliseconds(50);

}  // namespace

WorkerMember::~WorkerMember() {
  if (link_ != nullptr) link_->stop();
  agent_.reset();
  if (coordinator_ != nullptr) coordinator_->stop();
  server_.reset();
  // The link asks synchronizer and keeper for reports, and they poke the link.
  if (link_ != nullptr) link_->close();
  keeper_.reset();
  synchronizer_.reset();
}

v1::MemberReport WorkerMember::report() {
  v1::MemberReport report = identifiedMemberReport(options_, digest_);
  report.mutable_data()->set_samples(model_.samples);
  report.mutable_data()->set_eval_samples(model_.evaluation_samples);
  report.mutable_data()->set_sha256(model_.data_sha256);
  {
    std::lock_guard lock(mutex_);
    report.set_revision(membership_.revision());
  }
  synchronizer_->fillReport(report);
  // Whoever waits for this worker has the disk for what it keeps last.
  if (options_.files != nullptr && !leaves_) report.set_leaving(false);
  if (keeper_ != nullptr) keeper_->fillReport(report);
  return report;
}

void WorkerMember::onView(const v1::View& view) {
  {
    std::lock_guard lock(mutex_);
    view_ = view;
  }
  for (const v1::Evaluation& earlier : view.earlier_evaluations()) log_->onEvaluation(earlier);
  log_->onEvaluation(view.evaluation());
  synchronizer_->onView(view);
  if (keeper_ != nullptr) keeper_->onView(view);
}

WorkerMember::Versions WorkerMember::versions() const {
  std::lock_guard lock(mutex_);
  return {view_.checkpoint_at(), view_.last_checkpoint(), view_.steps()};
}

// Where every version passes through the chief, the one that is to be kept. Otherwise others may
// have made one before: of that, too, what the chief has after its next step.
std::vector<std::int64_t> WorkerMember::keepDue(
    std::int64_t version, std::int64_t kept, const std::function<bool(std::int64_t)>& has) const {
  const Versions job = versions();
  std::set<std::int64_t> due = missed({job.checkpoint_at, job.last_checkpoint}, kept, version, has);
  if (version == job.checkpoint_at || version == job.steps) due.insert(version);
  return {due.begin(), due.end()};
}

std::vector<std::int64_t> WorkerMember::keepMissed(
    std::int64_t end, std::int64_t kept, const std::function<bool(std::int64_t)>& has) const {
  if (!mayMissVersions()) return {};
  const Versions job = versions();
  std::set<std::int64_t> steps = {job.checkpoint_at, job.last_checkpoint};
  for (const Manifest& manifest : listManifests(options_.checkpointDir(), nullptr))
    steps.insert(manifest.step);
  const std::set<std::int64_t> due = missed(std::move(steps), kept, end - 1, has);
  return {due.begin(), due.end()};
}

// Those of `steps` up to `last` that nothing was kept of, here since `kept` or by an earlier
// process.
std::set<std::int64_t> WorkerMember::missed(std::set<std::int64_t> steps, std::int64_t kept,
                                            std::int64_t last,
                                            const std::function<bool(std::int64_t)>& has) const {
  if (!mayMissVersions()) return {};
  std::erase_if(steps, [&](std::int64_t step) {
    return step <= std::max<std::int64_t>(kept, 0) || step > last || has(step);
  });
  return steps;
}

bool WorkerMember::mayMissVersions() const {
  const v1::UpdateSpec& update = options_.job.spec().training().update();
  return !isRing(options_.job) && (isAsynchronous(update) || update.backup_workers() > 0);
}

void WorkerMember::onDirective(const v1::RuntimeDirective& directive) {
  if (coordinator_ != nullptr) coordinator_->follow(directive);
  if (!directive.has_membership()) return;
  const v1::Membership members =
      memberProcesses(directive.membership(), processesPerPod(options_.job));
  {
    std::lock_guard lock(mutex_);
    if (members.revision() <= membership_.revision()) return;
    membership_ = members;
  }
  synchronizer_->setMembership(members);
  const std::string address = coordinatorAddress(options_.job, members);
  link_->setAddress(address);
  if (options_.files != nullptr) options_.files->setAddress(address);
  if (coordinator_ != nullptr) coordinator_->setMembership(members);
}

v1::Measurements WorkerMember::measurements() const {
  v1::Measurements measured = identifiedMeasurements(options_);
  const TrainTotals totals = totals_();
  setBuckets(*measured.mutable_step_times(), totals.step_times);
  setBuckets(*measured.mutable_staleness(), totals.staleness);
  measured.set_discarded(totals.too_late);
  synchronizer_->measure(measured);
  if (coordinator_ != nullptr) coordinator_->measure(measured);
  return measured;
}

v1::RuntimeReport WorkerMember::runtimeReport() {
  v1::RuntimeReport report = identifiedRuntimeReport(options_);
  const TrainTotals totals = totals_();
  report.set_phase(totals.phase);
  {
    std::lock_guard lock(mutex_);
    report.set_revision(membership_.revision());
    report.set_epoch(view_.epoch().epoch());
    report.set_message(view_.waiting_for());
    report.set_steps(view_.steps());
  }
  report.set_ready(totals.steps > 0 || std::string_view(totals.phase) != "Joining");
  report.set_step(totals.step);
  report.set_examples(totals.examples);
  report.set_completed_steps(totals.steps);
  report.set_step_seconds(totals.last_step_seconds);
  report.mutable_seconds()->set_data(totals.data_seconds);
  report.mutable_seconds()->set_compute(totals.compute_seconds);
  report.mutable_seconds()->set_push_pull(totals.wait_seconds);
  report.mutable_seconds()->set_evaluate(totals.evaluate_seconds);
  synchronizer_->fillTraffic(report);
  if (coordinator_ != nullptr) coordinator_->fill(report);
  return report;
}

void WorkerMember::onSpan(std::string_view name, std::int64_t step, TimePoint start,
                          TimePoint end) {
  if (timeline_ != nullptr) timeline_->add({Lane::kTrainer, name, step, start, end});
}

// The coordinator's process stays until all have heard how the job ended. When this worker fails of
// itself, its successor goes on.
void WorkerMember::awaitOthers(const Status& end) {
  if (coordinator_ == nullptr) return;
  const bool over = end.ok() || coordinator_->phase() == v1::PHASE_FAILED;
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  while (over && !coordinator_->finished()) never.wait_for(lock, kFinishCheck);
}

void WorkerMember::join(std::function<TrainTotals()> totals) {
  totals_ = std::move(totals);
  agent_ = std::make_unique<AgentLink>(
      options_.agent_target, options_.token, [this] { return runtimeReport(); },
      [this](const v1::RuntimeDirective& d) { onDirective(d); }, [this] { return measurements(); },
      options_.local_agent);
  link_ = std::make_unique<MemberLink>(
      MemberLink::Options{.identity = options_.keys.control}, *options_.clock,
      [this] { return report(); }, [this](const v1::View& v) { onView(v); });
  startKeeper();
  synchronizer_->setMembership(membership_);
  link_->setAddress(coordinatorAddress(options_.job, membership_));
  hitFailpoint("worker.start");
  agent_->start();
  link_->start();
}

Status WorkerMember::leave(const Status& end) {
  const TrainTotals totals = totals_();
  if (options_.job.spec().training().update().backup_workers() > 0)
    TY_INFO("{} gradients were taken, {} came too late", totals.steps, totals.too_late);
  hitFailpoint("worker.finished", totals.step);
  if (kept_ != nullptr) kept_->finish();
  leaves_ = true;
  // "leaving", so that the coordinator need not wait for this worker.
  link_->flush(std::chrono::seconds(2));
  awaitOthers(end);
  link_->stop();
  agent_->stop();
  hitFailpoint("worker.left", totals.step);
  if (finished_ && absl::IsDeadlineExceeded(end)) {
    // It was killed when it had said that it leaves, and the others have left since.
    log_->onEvaluation(*finished_);
    return absl::OkStatus();
  }
  return end;
}

}  // namespace trainyard::runtime
