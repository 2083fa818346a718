#include "runtime/data/step_plan.h"

#include <algorithm>

namespace trainyard::runtime {

std::int64_t StepPlan::positionOf(std::int64_t step) const {
  std::int64_t position = first_position + (step - first_step) * step_samples;
  if (first_samples > 0 && step > first_step) position += first_samples - step_samples;
  return end_position > 0 ? std::min(position, end_position) : position;
}

std::int64_t StepPlan::samplesOf(std::int64_t step) const {
  if (step < first_step || step >= steps) return 0;
  return positionOf(step + 1) - positionOf(step);
}

int StepPlan::takers(std::int64_t step) const {
  const std::int64_t samples = samplesOf(step);
  if (inBatches(samples)) return static_cast<int>((samples + rank_samples - 1) / rank_samples);
  return static_cast<int>(std::min<std::int64_t>(ranks, samples));
}

int StepPlan::quorum(std::int64_t step) const {
  return std::min(takers(step), ranks - backup_workers);
}

StepPlan::Share StepPlan::shareOf(std::int64_t step, int rank) const {
  const std::int64_t samples = samplesOf(step);
  if (rank < 0 || rank >= ranks || samples == 0) return {};
  if (inBatches(samples)) {
    const std::int64_t offset = std::min(rank * rank_samples, samples);
    return {positionOf(step) + offset, static_cast<int>(std::min(rank_samples, samples - offset))};
  }
  const std::int64_t each = samples / ranks;
  const std::int64_t larger = samples % ranks;
  const std::int64_t offset = rank * each + std::min<std::int64_t>(rank, larger);
  return {positionOf(step) + offset, static_cast<int>(each + (rank < larger ? 1 : 0))};
}

std::int64_t stepsToReach(std::int64_t end_position, std::int64_t first_step,
                          std::int64_t first_position, std::int64_t step_samples) {
  const std::int64_t left = std::max<std::int64_t>(0, end_position - first_position);
  return first_step + (left + step_samples - 1) / step_samples;
}

}  // namespace trainyard::runtime
