// What the models over embedding tables have alike: the rows that come with a batch, what a sample
// makes of those of one feature, and a loss of one logit a sample. Only the .cc files of
// runtime/model include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/core/status.h"
#include "runtime/catalog/variable.h"
#include "runtime/data/table_lookup.h"
#include "runtime/model/internal/buffer.h"
#include "runtime/model/internal/layer.h"
#include "runtime/model/internal/parameter.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {

// A feature that is looked up in a table.
struct FeatureLookup {
  std::size_t table = 0;
  std::size_t feature = 0;  // of Columns::features
  std::size_t dim = 1;
  Combiner combiner = Combiner::kMean;
  std::size_t first = 0;  // in the batch at hand: its first occurrence in the table
};

class TabularModel : public Model {
 public:
  const std::vector<Variable>& variables() const override { return variables_; }
  std::span<float> weights(int variable) override;
  StatusOr<BatchLoss> forwardBackward(const Batch& batch, const GradientSink& sink) override;
  void deliverIn(std::shared_ptr<std::pmr::memory_resource> memory) override;
  std::vector<std::vector<float>> takeRowGradients() override;
  StatusOr<BatchScore> evaluate(const Batch& batch) override;

 protected:
  // Weights are zeros. `numbers`: columns of numbers of a sample.
  TabularModel(std::vector<Variable> variables, std::vector<TableLookup> tables,
               std::size_t numbers);

  // Returns the samples' logits, which are left alone until the next pass.
  virtual const float* forward(const Batch& batch, bool training) = 0;
  // `slopes`: the loss's by logit, in work(); may be overwritten. Emits the variables' gradients
  // and spreads the rows'.
  virtual void backward(const Batch& batch, float* slopes, const Emit& emit) = 0;

  // Dense layers by their specifications, as layersOf() has them; their dropout is numbered by
  // `specs` of the whole model.
  std::vector<std::unique_ptr<Layer>> makeLayers(std::span<const LayerSpec> specs, int first_number,
                                                 std::uint64_t seed);
  // In the order of tables and features, which is that of the occurrences of each table.
  const std::vector<FeatureLookup>& lookups() const { return lookups_; }
  std::size_t numbers() const { return numbers_; }
  Workspace& work() { return work_; }

  // combined[sample * stride ..): what the samples make of the lookup's rows.
  static void combine(const FeatureLookup& lookup, const Batch& batch, float* combined,
                      std::size_t stride);
  // The way back, to the rows' gradients.
  void spread(const FeatureLookup& lookup, const Batch& batch, const float* combined,
              std::size_t stride);

 private:
  Status accept(const Batch& batch);
  Status checkSamples(const Batch& batch) const;
  Status checkRows(const Batch& batch, const std::vector<std::size_t>& occurrences) const;

  std::vector<Variable> variables_;
  std::vector<TableLookup> tables_;
  std::vector<FeatureLookup> lookups_;
  std::size_t numbers_;
  std::vector<Parameter> parameters_;  // by variable
  Workspace work_;
  std::vector<std::vector<float>> row_gradients_;  // as Batch::rows, of the newest training pass
};

}  // namespace trainyard::runtime
