// What a worker computes: its data and a model of ours, and the step loop over them. The chief
// (index 0) also keeps the model's buffers beside the checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/core/status.h"
#include "runtime/catalog/catalog.h"
#include "runtime/compute/row_ids.h"
#include "runtime/compute/trainer.h"
#include "runtime/data/dataset.h"
#include "runtime/model/device.h"
#include "runtime/model/model.h"
#include "runtime/task/options.h"
#include "runtime/task/worker_member.h"

namespace trainyard::runtime {

class WorkerComputing final : TrainObserver {
 public:
  // Opens the data and builds the model. Errors: bad input names its field or file.
  static StatusOr<std::unique_ptr<WorkerComputing>> make(const TaskOptions& options);

  // For the member, once; its weights live as long as this.
  StatusOr<WorkerModel> model();
  // Whose synchronizer is asked. Outlives the calls of run(), not this.
  void computeFor(WorkerMember& member);
  // Until the job is over; errors as of Trainer::run().
  StatusOr<TrainEnd> run();
  // Thread-safe, once it is known whom for.
  TrainTotals totals() const { return trainer_->totals(); }

 private:
  explicit WorkerComputing(const TaskOptions& options) : options_(options) {}
  Status build();
  Status openTables();
  // training.device, on this machine.
  StatusOr<ComputeDevice> chooseDevice() const;
  void tellCompute() const;
  Status checkFit() const;
  Status restoreModelBuffers();
  std::function<bool(std::int64_t)> hasSaved() const;
  void saveModelBuffers(std::int64_t step);
  void saveLastBuffers(const TrainEnd& end);
  bool isChief() const { return options_.id.index() == 0; }
  Status onStep(const StepRecord& record) override;
  void onSpan(std::string_view name, std::int64_t step, TimePoint start, TimePoint end) override;

  const TaskOptions options_;
  ComputeDevice device_;
  DataSplits data_;
  InputShape input_;  // of the model
  std::vector<TableLookup> tables_;
  std::unique_ptr<StreamRowIds> row_ids_;  // null: no tables
  std::unique_ptr<Model> model_;
  WorkerMember* member_ = nullptr;
  std::unique_ptr<Trainer> trainer_;
  std::int64_t saved_buffers_ = -1;  // step of those written last by this process
};

}  // namespace trainyard::runtime
