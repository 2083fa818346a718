// `trainyard-runtime evaluate`: a checkpoint's accuracy and loss over the whole evaluation set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

struct EvaluationResult {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  double accuracy = 0;
  double loss = 0;
  // Of models that tell clicks.
  std::optional<double> auc = {};
  std::optional<double> calibration = {};
};

// `manifest_name` empty: the newest that verifies. Errors name file and what is wrong.
StatusOr<EvaluationResult> evaluateCheckpoint(const v1::TrainingJob& job,
                                              const std::string& checkpoint_dir,
                                              const std::string& manifest_name, int threads);

}  // namespace trainyard::runtime
