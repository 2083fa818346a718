// A table of one number in each row, and what is asked of its row 7.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/rows/row_part.h"

namespace trainyard::runtime::rows {

inline std::unique_ptr<Optimizer> ruleNamed(const std::string& name) {
  v1::OptimizerSpec spec;
  spec.set_name(name);
  spec.set_learning_rate(0.3);
  return *makeOptimizer(spec);
}

inline LearningRate constantRate(double rate) {
  v1::OptimizerSpec spec;
  spec.set_learning_rate(rate);
  return LearningRate(spec);
}

// A table of one number in each row, plain descent with rate 1: a row says what was brought.
inline std::vector<RowTableConfig> oneTable() {
  static const std::unique_ptr<Optimizer> optimizer = ruleNamed("SGD");
  return {{{.name = "user", .dim = 1, .max_rows = 1000, .initial = {}},
           optimizer.get(),
           constantRate(1)}};
}

inline RowRequest readOfRow(std::int64_t epoch, int rank, std::int64_t version) {
  RowRequest request;
  request.epoch = epoch;
  request.rank = rank;
  request.version = version;
  request.ids = {{7}};
  return request;
}

// Mode Sync: a rank brings `gradient`, the sum of `samples`, and wants the row at the next version.
inline RowRequest stepOfRow(std::int64_t epoch, int rank, std::int64_t step, std::int64_t samples,
                            float gradient) {
  RowRequest request = readOfRow(epoch, rank, step + 1);
  request.step = step;
  request.push.samples = samples;
  request.gradients = {{RowGradients{{7}, {1}, {gradient}}}};
  return request;
}

// Without common steps: a worker's push of that number, of the two samples of its ticket.
inline RowRequest pushOfRow(std::int64_t epoch, std::uint32_t worker, std::int64_t number,
                            std::int64_t ticket, float gradient) {
  RowRequest request = readOfRow(epoch, 0, kNewestRows);
  request.push = {.worker = worker,
                  .created = 1,
                  .start = 1,
                  .number = number,
                  .ticket = ticket,
                  .first = 2 * ticket,
                  .samples = 2};
  request.gradients = {{RowGradients{{7}, {1}, {gradient}}}};
  return request;
}

}  // namespace trainyard::runtime::rows
