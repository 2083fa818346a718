// A job with embedding tables.
#pragma once

#include <string>

#include "fmt/format.h"

namespace trainyard {

// Two columns of ids, one of them looked up in two tables, and numbers.
inline constexpr const char* kForgets =
    ", admit: {occurrences: 2}, evict: {afterSteps: 40, everySteps: 16}";
inline std::string tablesJob(int ps, int workers, int steps, int users = 3000,
                             const std::string& policy = kForgets) {
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: tables}}
spec:
  ps: {{replicas: {}}}
  worker: {{replicas: {}}}
  training:
    model: {{name: wide_and_deep, hidden: [16, 8]}}
    data:
      format: synthetic_ctr
      columns:
      - {{name: user, kind: Id, ids: {}}}
      - {{name: item, kind: Id, ids: 500}}
      - {{name: age, kind: Number}}
      - {{name: click, kind: Label}}
      samples: 20000
      evalSamples: 1000
    tables:
    - {{name: user, features: [user], dim: 4, rows: {{max: 10000}}, initial: {{distribution: TruncatedNormal, scale: 0.01}}{}}}
    - {{name: item, features: [item], dim: 8, rows: {{max: 10000}}, initial: {{distribution: Uniform, scale: 0.01}}, optimizer: {{name: Adam, learningRate: 0.01}}}}
    - {{name: wide, features: [user, item], dim: 1, rows: {{max: 10000}}, optimizer: {{name: Ftrl, learningRate: 0.1}}}}
    batchSize: 32
    steps: {}
    seed: 3
    deterministic: true
    optimizer: {{name: Adagrad, learningRate: 0.05}}
)",
                     ps, workers, users, policy, steps);
}

}  // namespace trainyard
