#include "runtime/task/hand_watch.h"

#include "base/core/log.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kTellEvery = std::chrono::seconds(10);

// Of the job as its coordinator knows it, else of this task alone.
std::string progressOf(const v1::RuntimeReport& report) {
  if (!report.has_job()) {
    return report.steps() > 0 ? fmt::format("step {} of {}", report.step(), report.steps()) : "";
  }
  const v1::JobProgress& job = report.job();
  if (job.steps() == 0) return "";
  std::string text = fmt::format("step {} of {}", job.step(), job.steps());
  if (job.examples_per_second() > 0) {
    text += fmt::format(", {:.0f} examples/s", job.examples_per_second());
  }
  if (job.has_loss()) text += fmt::format(", loss {:.4f}", job.loss());
  if (job.evaluated()) text += fmt::format(", accuracy {:.4f}", job.accuracy());
  if (job.has_checkpoint()) text += fmt::format(", checkpoint {}", job.checkpoint_step());
  return text;
}

}  // namespace

v1::RuntimeDirective HandWatch::onReport(const v1::RuntimeReport& report) {
  while (signals_.next()) takeSignal();
  tell(report);
  v1::RuntimeDirective directive;
  const bool coordinates = id_.role() == v1::ROLE_PS && id_.index() == 0;
  directive.set_stop_job(coordinates && asked_ > 0);
  return directive;
}

void HandWatch::takeSignal() {
  ++asked_;
  if (asked_ > 1 || id_.role() == v1::ROLE_WORKER) {
    TY_WARN("ends now{}", asked_ > 1 ? "" : ": the others wait until it is started again");
    leaves_ = true;
  } else if (id_.index() == 0) {
    TY_INFO("stops the job with a checkpoint; Ctrl-C again ends this task at once");
  } else {
    TY_INFO(
        "Ctrl-C at ps-0 stops the job with a checkpoint; again here ends this task, and the job "
        "returns to its newest checkpoint when it is started again");
  }
}

void HandWatch::tell(const v1::RuntimeReport& report) {
  const std::string& waits = report.has_job() ? report.job().waiting_for() : report.message();
  const std::string state =
      report.phase() + (waits.empty() ? std::string() : ", waits for " + waits);
  const TimePoint now = clock_.now();
  if (state == state_ && now < next_) return;
  state_ = state;
  next_ = now + kTellEvery;
  const std::string progress = progressOf(report);
  TY_INFO("{}{}{}", state, progress.empty() ? "" : ": ", progress);
}

}  // namespace trainyard::runtime
