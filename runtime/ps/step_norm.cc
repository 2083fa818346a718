#include "runtime/ps/step_norm.h"

#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime::ps {

StepNorm::StepNorm(double clip_norm, std::size_t chunks, bool alone)
    : clip_norm_(clip_norm), chunks_(chunks), alone_(alone) {}

void StepNorm::setChunks(std::size_t chunks, bool alone) {
  std::lock_guard lock(mutex_);
  chunks_ = chunks;
  alone_ = alone;
  reset(-1);
}

void StepNorm::reset(std::int64_t step) {
  step_ = step;
  added_ = 0;
  sum_ = SquareSum();
  waiting_.clear();
  norm_.reset();
  urgent_ = false;
}

void StepNorm::add(std::size_t chunk, std::int64_t step, const SquareSum& squares) {
  std::lock_guard lock(mutex_);
  if (step != step_) reset(step);
  TY_CHECK(added_ < chunks_, "a chunk is added once in a step");
  sum_.add(squares);
  waiting_.push_back(chunk);
  if (told_.step == step_) norm_ = told_.norm;
  if (++added_ < chunks_) return;
  if (alone_) {
    norm_ = sum_.norm();
  } else {
    urgent_ = true;
  }
}

bool StepNorm::takeUrgent() {
  std::lock_guard lock(mutex_);
  return std::exchange(urgent_, false);
}

std::optional<v1::SquareSum> StepNorm::part() const {
  std::lock_guard lock(mutex_);
  if (alone_ || chunks_ == 0 || added_ < chunks_) return std::nullopt;
  v1::SquareSum part;
  part.set_step(step_);
  part.mutable_limbs()->Add(sum_.limbs().begin(), sum_.limbs().end());
  return part;
}

void StepNorm::setNorm(std::int64_t step, double norm) {
  std::lock_guard lock(mutex_);
  told_ = {step, norm};
  if (step == step_) norm_ = norm;
}

std::optional<StepNorm::Update> StepNorm::next() {
  std::lock_guard lock(mutex_);
  if (!norm_ || waiting_.empty()) return std::nullopt;
  Update update;
  update.chunk = waiting_.back();
  waiting_.pop_back();
  update.norm = *norm_;
  if (*norm_ > clip_norm_) update.scale = static_cast<float>(clip_norm_ / *norm_);
  return update;
}

void StepNorm::drop() {
  std::lock_guard lock(mutex_);
  told_ = {};
  const bool updated = added_ == chunks_ && waiting_.empty();
  if (!updated) reset(-1);
}

void StepNorm::clear() {
  std::lock_guard lock(mutex_);
  told_ = {};
  reset(-1);
}

}  // namespace trainyard::runtime::ps
