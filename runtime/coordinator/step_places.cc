#include "runtime/coordinator/step_places.h"

namespace trainyard::runtime {

void StepPlaces::startEpoch(const StepPlan& plan) {
  plan_ = plan;
  step_ = plan.first_step;
  given_ = 0;
  frozen_ = false;
}

StepPlaces::Answer StepPlaces::ask(std::int64_t step, bool with_gradient) {
  Answer answer;
  if (step < step_ || !with_gradient) {
    skipped_ += with_gradient;
    answer.kind = Answer::Kind::kSkip;
    answer.newest = step_;
    return answer;
  }
  // Ahead of all others: this coordinator does not know yet what the worker knows.
  if (step > step_ || frozen_) return answer;
  answer.kind = Answer::Kind::kPlace;
  answer.place = given_++;
  if (given_ >= plan_.quorum(step_)) {
    ++step_;
    given_ = 0;
  }
  return answer;
}

}  // namespace trainyard::runtime
