#include "agent/service/task_hub.h"

#include "base/core/log.h"
#include "base/core/strings.h"

namespace trainyard::agent {

TaskHub::TaskHub(TaskIdentity self, MembershipStore& store, TaskMetrics& metrics,
                 std::function<void()> on_membership)
    : self_(std::move(self)),
      store_(store),
      metrics_(metrics),
      on_membership_(std::move(on_membership)) {}

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

StatusOr<v1::RuntimeDirective> TaskHub::report(const v1::RuntimeReport& report) {
  v1::RuntimeDirective directive;
  {
    std::lock_guard lock(mutex_);
    const bool ours = report.job_uid() == self_.job.uid && sameTask(report.id(), self_.id) &&
                      report.incarnation().created() == self_.created;
    if (!ours || report.incarnation().start() != view_.start) {
      return absl::FailedPreconditionError(fmt::format(
          "report of {} created {} start {} of job uid '{}': the agent's program is {} created {} "
          "start {}",
          taskName(report.id()), report.incarnation().created(), report.incarnation().start(),
          report.job_uid(), taskName(self_.id), self_.created, view_.start));
    }
    newest_ = report;
    has_report_ = true;
    ++reports_;
    directive.set_stop_job(stop_job_);
  }
  metrics_.onReport(report);
  const auto membership = store_.newest();
  if (membership != nullptr && membership->revision() > report.revision()) {
    *directive.mutable_membership() = *membership;
  }
  return directive;
}

void TaskHub::setChild(const ChildView& view) {
  {
    std::lock_guard lock(mutex_);
    if (view.start != view_.start || view.child != "Running") reports_ = 0;
    if (view.start != view_.start) {
      has_report_ = false;
      newest_.Clear();
    }
    view_ = view;
  }
  metrics_.onChild(view.start, view.child == "Running");
  metrics_.onMembership(store_.revision());
}

void TaskHub::stopJob(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!stop_job_) TY_INFO("agent: asked to checkpoint and stop the job: {}", reason);
  stop_job_ = true;
}

v1::TaskState TaskHub::state() const {
  v1::TaskState state;
  const std::optional<WireBytes> wire = metrics_.wire();
  std::lock_guard lock(mutex_);
  *state.mutable_id() = self_.id;
  state.set_created(self_.created);
  state.set_start(view_.start);
  state.set_child(view_.child);
  state.set_last_exit_code(view_.last_exit_code);
  state.set_last_signal(view_.last_signal);
  if (self_.foreign) *state.mutable_report() = ownReport();
  if (has_report_) *state.mutable_report() = newest_;
  if (state.has_report()) {
    if (wire) {
      state.mutable_report()->mutable_wire()->set_received_bytes(wire->received);
      state.mutable_report()->mutable_wire()->set_transmitted_bytes(wire->transmitted);
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
  report.set_pid(static_cast<std::uint32_t>(view_.pid));
  report.set_phase(view_.child);
  report.set_ready(view_.child == "Running");
  return report;
}

bool TaskHub::ready() const {
  std::lock_guard lock(mutex_);
  if (view_.child != "Running") return false;
  return self_.foreign || (has_report_ && newest_.ready());
}

std::uint64_t TaskHub::reports() const {
  std::lock_guard lock(mutex_);
  return reports_;
}

}  // namespace trainyard::agent
