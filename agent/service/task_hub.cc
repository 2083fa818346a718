#include "agent/service/task_hub.h"

#include <algorithm>
#include <utility>

#include "agent/traffic/merged_report.h"
#include "base/core/log.h"
#include "base/core/log_context.h"
#include "base/core/strings.h"

namespace trainyard::agent {

TaskHub::TaskHub(TaskIdentity self, MembershipStore& store, TaskMetrics& metrics,
                 std::function<void()> on_membership)
    : self_(std::move(self)),
      store_(store),
      metrics_(metrics),
      on_membership_(std::move(on_membership)),
      reports_(self_.processes),
      newest_(self_.processes),
      told_(self_.processes) {}

StatusOr<std::int64_t> TaskHub::push(const v1::Membership& membership, const std::string& sha256) {
  if (!sha256.empty() && sha256 != membershipHash(membership)) {
    return absl::InvalidArgumentError(
        fmt::format("membership revision {}: its content does not have the sha256 sent with it",
                    membership.revision()));
  }
  const StatusOr<bool> adopted = store_.adopt(membership);
  if (!adopted.ok()) {
    TY_ERROR("agent: pushed membership refused: {}", fromAbsl(adopted.status().message()));
    return adopted.status();
  }
  if (*adopted) {
    metrics_.onMembership(membership.revision());
    on_membership_();
  }
  return store_.revision();
}

StatusOr<std::uint32_t> TaskHub::sender(const char* what, const std::string& job_uid,
                                        const v1::TaskId& id,
                                        const v1::Incarnation& incarnation) const {
  const std::optional<std::uint32_t> process = processOf(self_, id);
  const bool ours = job_uid == self_.job.uid && process && incarnation.created() == self_.created &&
                    incarnation.start() == view_.start;
  if (ours) return *process;
  return absl::FailedPreconditionError(fmt::format(
      "{} of {} created {} start {} of job uid '{}': the agent's program is {} created {} start {}",
      what, taskName(id), incarnation.created(), incarnation.start(), job_uid, taskName(self_.id),
      self_.created, view_.start));
}

Status TaskHub::record(const v1::Measurements& measured) {
  {
    std::lock_guard lock(mutex_);
    TY_RETURN_IF_ERROR(
        sender("measurements", measured.job_uid(), measured.id(), measured.incarnation()).status());
  }
  metrics_.onMeasurements(measured);
  return absl::OkStatus();
}

StatusOr<v1::RuntimeDirective> TaskHub::report(const v1::RuntimeReport& report) {
  v1::RuntimeDirective directive;
  {
    std::lock_guard lock(mutex_);
    TY_ASSIGN_OR_RETURN(const std::uint32_t process,
                        sender("report", report.job_uid(), report.id(), report.incarnation()));
    newest_[process] = report;
    has_report_ = true;
    ++reports_[process];
    changedLocked();
    directive.set_stop_job(stop_job_);
    if (stop_by_)
      directive.set_stop_seconds(std::max(toSeconds(*stop_by_ - systemClock().now()), 0.0));
  }
  setLogProgress(report.epoch(), report.step());
  metrics_.onReport(report);
  const auto membership = store_.newest();
  if (membership != nullptr && membership->revision() > report.revision()) {
    *directive.mutable_membership() = *membership;
  }
  return directive;
}

void TaskHub::tell(std::uint32_t process, std::string_view datagram) {
  const StatusOr<Telling> said = parseTelling(datagram);
  if (!said.ok()) {
    metrics_.onRefusedTelling();
    std::lock_guard lock(mutex_);
    if (!std::exchange(refused_, true)) {
      TY_WARN("agent: {} told what is left out, as others like it will be: {}",
              processName(self_, process), fromAbsl(said.status().message()));
    }
    return;
  }
  v1::RuntimeReport report;
  {
    std::lock_guard lock(mutex_);
    told_.take(process, *said, systemClock().now());
    report = ownReport();
  }
  metrics_.onReport(report);
}

void TaskHub::setChild(const ChildView& view) {
  {
    std::lock_guard lock(mutex_);
    if (view.start != view_.start || view.child != "Running") reports_.assign(self_.processes, 0);
    if (view.start != view_.start) {
      has_report_ = false;
      newest_.assign(self_.processes, {});
      told_.restart();
      refused_ = false;
    }
    view_ = view;
    changedLocked();
  }
  metrics_.onChild(view.start, view.child == "Running");
  metrics_.onMembership(store_.revision());
}

void TaskHub::stopJob(const std::string& reason, std::optional<Duration> within) {
  std::lock_guard lock(mutex_);
  if (!stop_job_) TY_INFO("agent: asked to checkpoint and stop the job: {}", reason);
  stop_job_ = true;
  if (within) stop_by_ = systemClock().now() + *within;
}

v1::TaskState TaskHub::state() const {
  v1::TaskState state;
  const std::optional<WireReading> wire = metrics_.wire();
  std::lock_guard lock(mutex_);
  *state.mutable_id() = self_.id;
  state.set_created(self_.created);
  state.set_start(view_.start);
  state.set_planned_starts(view_.planned_starts);
  state.set_child(view_.child);
  state.set_last_exit_code(view_.last_exit_code);
  state.set_last_signal(view_.last_signal);
  if (self_.foreign) *state.mutable_report() = ownReport();
  if (has_report_) *state.mutable_report() = mergedReport(self_, newest_);
  if (state.has_report()) {
    if (wire) {
      state.mutable_report()->mutable_wire()->set_received_bytes(wire->total.received);
      state.mutable_report()->mutable_wire()->set_transmitted_bytes(wire->total.transmitted);
    }
  }
  state.set_revision(store_.revision());
  return state;
}

v1::RuntimeReport TaskHub::ownReport() const {
  v1::RuntimeReport report;
  report.set_job_uid(self_.job.uid);
  *report.mutable_id() = self_.id;
  report.mutable_incarnation()->set_created(self_.created);
  report.mutable_incarnation()->set_start(view_.start);
  report.set_pid(static_cast<std::uint32_t>(view_.pids.empty() ? 0 : view_.pids.front()));
  report.set_phase(view_.child);
  report.set_ready(view_.child == "Running");
  told_.fill(systemClock().now(), &report);
  // Whoever has ended does nothing any more.
  if (report.has_told() && !report.ready()) report.mutable_told()->clear_examples_per_second();
  return report;
}

bool TaskHub::readyLocked() const {
  if (view_.child != "Running") return false;
  return self_.foreign || (has_report_ && mergedReport(self_, newest_).ready());
}

void TaskHub::changedLocked() {
  was_ready_ = was_ready_ || readyLocked();
  changed_.notify_all();
}

bool TaskHub::ready() const {
  std::lock_guard lock(mutex_);
  return readyLocked();
}

bool TaskHub::awaitReady(Duration most) const {
  const TimePoint until = systemClock().now() + most;
  std::unique_lock lock(mutex_);
  const auto well = [this] {
    const bool ended =
        view_.child == "Exited" && view_.last_exit_code == 0 && view_.last_signal == 0;
    return ending_ || ended || readyLocked();
  };
  changed_.wait_until(lock, until, [&] { return was_ready_ || well(); });
  return well();
}

void TaskHub::endWaits() {
  std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

std::vector<std::uint64_t> TaskHub::reports() const {
  std::lock_guard lock(mutex_);
  return reports_;
}

}  // namespace trainyard::agent
