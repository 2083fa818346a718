#include "operator/progress/told_progress.h"

#include <algorithm>

namespace trainyard::control {

std::optional<v1::JobProgress> toldProgress(const std::vector<ToldBy>& tasks) {
  std::optional<v1::JobProgress> progress;
  for (const ToldBy& task : tasks) {
    if (!task.state->report().has_told() || task.state->id().role() != v1::ROLE_WORKER) continue;
    if (!progress) progress.emplace();
    const v1::Told& told = task.state->report().told();
    progress->set_step(std::max(progress->step(), told.step()));
    if (progress->steps() == 0) progress->set_steps(told.steps());
    if (!task.ended && task.state->child() == "Running") {
      progress->set_examples_per_second(progress->examples_per_second() +
                                        told.examples_per_second());
    }
    if (told.has_loss() && !progress->has_loss()) {
      progress->set_has_loss(true);
      progress->set_loss(told.loss());
    }
    if (told.has_accuracy() && !progress->evaluated()) {
      progress->set_evaluated(true);
      progress->set_accuracy(told.accuracy());
      progress->set_accuracy_step(told.accuracy_step());
    }
  }
  return progress;
}

}  // namespace trainyard::control
