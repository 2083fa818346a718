// The way to the end of a job: its checkpoints, a stop, the last step, a failure.
#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/coordinator.h"

namespace trainyard::runtime {

void Coordinator::followCheckpoints(TimePoint now) {
  const auto failure =
      tickets_.pushes() != nullptr
          ? checkpoints_.followPushes(membership_, epochs_, steps_, tickets_, now, out_)
          : checkpoints_.followSteps(membership_, epochs_, steps_, progress_, rest_.asked(), now,
                                     out_);
  if (failure) fail(*failure, now);
}

void Coordinator::onCommitted(const Manifest& manifest, const Status& status, TimePoint now) {
  const auto failure = checkpoints_.onCommitted(manifest, status, epochs_, steps_, now, out_);
  if (failure) fail(*failure, now);
  evaluate(now);
}

void Coordinator::requestStop(TimePoint now, std::optional<Duration> within) {
  if (epochs_.over()) return;
  if (stop_.ask(now, within.value_or(config_.stop_limit))) evaluate(now);
}

void Coordinator::followStop(TimePoint now) {
  if (epochs_.phase() == v1::PHASE_ACTIVE) {
    checkpoints_.drop();
    tickets_.stop();
    epochs_.enter(v1::PHASE_STOPPING, now, out_);
    rest_.ask(out_.sequence());
  }
  if (epochs_.phase() == v1::PHASE_STOPPING) tryStopped(now);
  if (epochs_.over()) return;
  const std::int64_t kept = std::max<std::int64_t>(0, checkpoints_.newestStep());
  const bool computing = epochs_.computing();
  if (!computing && progress_.version() == kept) return epochs_.enter(v1::PHASE_STOPPED, now, out_);
  if (!stop_.late(now)) return;
  progress_.giveUpAfter(kept);
  out_.log(fmt::format("stopped without a new checkpoint: {} did not get ready in {:.0f} s",
                       waiting_.empty() ? "the servers" : waiting_, toSeconds(stop_.limit())),
           true);
  epochs_.enter(v1::PHASE_STOPPED, now, out_);
}

// One worker rests at v and all hold v: no step can pass v any more, nothing before it is missing.
void Coordinator::tryStopped(TimePoint now) {
  const std::optional<std::int64_t> resting = rest_.version(membership_, epochs_, steps_, tickets_);
  if (stop_.version() < 0 && resting) {
    stop_.setVersion(*resting);
    progress_.reach(*resting);
    out_.changed();
  }
  if (stop_.version() < 0) return;
  if (checkpoints_.newestStep() == stop_.version())
    return epochs_.enter(v1::PHASE_STOPPED, now, out_);
  const auto failure = checkpoints_.tryCommit(stop_.version(), membership_, epochs_, steps_,
                                              tickets_.pushes(), now, out_);
  if (failure) fail(*failure, now);
}

void Coordinator::tryDone(TimePoint now) {
  if (epochs_.over() || progress_.version() < steps_.count()) return;
  if (checkpoints_.newestStep() != steps_.count()) return;
  if (membership_.evaluates() && !evaluations_.has(steps_.count())) return;
  if (std::exchange(finishing_, true)) return;
  out_.add(FinishAction{steps_.count(), evaluations_.newest()});
}

void Coordinator::onFinishRecorded(const Status& status, TimePoint now) {
  if (!status.ok())
    out_.log(fmt::format("the end is not recorded: {}", fromAbsl(status.message())), true);
  if (!epochs_.over()) epochs_.enter(v1::PHASE_DONE, now, out_);
  evaluate(now);
}

void Coordinator::fail(const std::string& why, TimePoint now, std::string_view reason) {
  if (epochs_.over()) return;
  failure_ = why;
  failure_reason_ = reason;
  checkpoints_.drop();
  out_.log(fmt::format("the job fails: {}", why), true);
  epochs_.enter(v1::PHASE_FAILED, now, out_);
}

}  // namespace trainyard::runtime
