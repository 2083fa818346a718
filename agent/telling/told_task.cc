#include "agent/telling/told_task.h"

#include <algorithm>

namespace trainyard::agent {
namespace {

template <typename T>
void take(std::optional<T>* held, const std::optional<T>& said) {
  if (said) *held = said;
}

}  // namespace

// `first`: how much the first value counts for.
void ToldTask::Count::add(std::uint64_t value, std::uint64_t first) {
  sum += !last ? first : value >= *last ? value - *last : value;
  last = value;
}

void ToldTask::restart() {
  processes_.assign(processes_.size(), {});
  any_ = false;
}

void ToldTask::take(std::uint32_t process, const Telling& said, TimePoint now) {
  any_ = true;
  Process& to = processes_[process];
  agent::take(&to.newest.step, said.step);
  agent::take(&to.newest.steps, said.steps);
  agent::take(&to.newest.loss, said.loss);
  agent::take(&to.newest.accuracy, said.accuracy);
  agent::take(&to.newest.epoch, said.epoch);
  if (said.accuracy) to.accuracy_step = to.newest.step.value_or(0);
  // A program that goes on from step 5000 of a checkpoint has not taken 5000 steps.
  if (said.step) to.steps.add(static_cast<std::uint64_t>(*said.step), 0);
  if (!said.examples) return;
  to.examples.add(*said.examples, *said.examples);
  to.rate.add(now, to.examples.sum);
}

void ToldTask::fill(TimePoint now, v1::RuntimeReport* report) const {
  if (!any_) return;
  v1::Told& told = *report->mutable_told();
  std::uint64_t examples = 0, steps = 0;
  for (const Process& process : processes_) {
    const Telling& said = process.newest;
    examples += process.examples.sum;
    steps += process.steps.sum;
    if (said.step) told.set_step(told.has_step() ? std::min(told.step(), *said.step) : *said.step);
    if (said.steps && !told.has_steps()) told.set_steps(*said.steps);
    if (said.loss && !told.has_loss()) told.set_loss(*said.loss);
    if (said.epoch && !told.has_epoch()) told.set_epoch(*said.epoch);
    if (said.accuracy && !told.has_accuracy()) {
      told.set_accuracy(*said.accuracy);
      told.set_accuracy_step(process.accuracy_step);
    }
    if (const auto rate = process.rate.perSecond(now)) {
      told.set_examples_per_second(told.examples_per_second() + *rate);
    }
  }
  report->set_examples(examples);
  report->set_completed_steps(steps);
}

}  // namespace trainyard::agent
