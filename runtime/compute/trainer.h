// The step loop of our own models: data + model, driven by a TrainingSession. Knows nothing of
// sockets, files or parameter servers.
#pragma once

#include <cstdint>
#include <optional>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/compute/read_ahead.h"
#include "runtime/data/dataset.h"
#include "runtime/data/table_lookup.h"
#include "runtime/model/model.h"
#include "runtime/train/row_exchange.h"
#include "runtime/train/step_record.h"
#include "runtime/train/synchronizer.h"
#include "runtime/train/training_session.h"

namespace trainyard::runtime {

struct TrainEnd {
  bool stopped = false;  // on request, before the last step
  std::int64_t step = 0;
  bool left = false;  // the job goes on without this worker
};

class Trainer {
 public:
  // All must outlive the trainer.
  Trainer(const DataSplits& data, Model& model, Synchronizer& synchronizer, TrainObserver& observer,
          std::uint64_t seed, const Clock& clock, std::vector<TableLookup> tables = {});

  // Until the job is over. Errors: INVALID_ARGUMENT (refused), failureOf() the job
  // (FAILED_PRECONDITION, OUT_OF_RANGE), or the model's own.
  StatusOr<TrainEnd> run();
  // Thread-safe.
  TrainTotals totals() const { return session_.totals(); }

 private:
  Status trainStep(const Turn& turn);
  void readSamples(const Turn& turn);
  RowValues rowGradients(std::int64_t step);
  Status readEvaluationRows();
  Status evaluateSlice();

  const DataSplits& data_;
  Model& model_;
  const std::vector<TableLookup> tables_;
  TrainingSession session_;
  std::optional<ReadAhead> ahead_;
  std::vector<std::int64_t> samples_;  // that are evaluated
  Batch batch_;
};

}  // namespace trainyard::runtime
