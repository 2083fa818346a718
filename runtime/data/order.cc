#include "runtime/data/internal/order.h"

#include <string>

#include "fmt/format.h"
#include "runtime/data/internal/field_range.h"

namespace trainyard::runtime::internal {

StatusOr<SampleOrder> readOrder(const v1::DataSpec& spec) {
  const std::string& name = spec.order();
  if (name != "Blocks" && spec.has_block_samples())
    return invalidInput("training.data.blockSamples", "only with order Blocks");
  if (name.empty() || name == "Shuffled") return SampleOrder{};
  if (name == "Sequential")
    return SampleOrder{.kind = SampleOrder::Kind::kSequential, .block_samples = 0};
  if (name != "Blocks") {
    return invalidInput("training.data.order",
                        fmt::format("\"{}\", expected Shuffled, Blocks or Sequential", name));
  }
  TY_RETURN_IF_ERROR(
      checkRange("training.data.blockSamples", spec.block_samples(), 1, kMaxBlockSamples));
  return SampleOrder{.kind = SampleOrder::Kind::kBlocks, .block_samples = spec.block_samples()};
}

Status checkSamples(const v1::DataSpec& spec) {
  TY_ASSIGN_OR_RETURN(const SampleOrder order, readOrder(spec));
  if (order.kind == SampleOrder::Kind::kShuffled && spec.samples() > kMaxSamples) {
    return invalidInput("training.data.samples",
                        fmt::format("{}, expected at most {} in order Shuffled; Blocks and "
                                    "Sequential take more",
                                    spec.samples(), kMaxSamples));
  }
  return checkRange("training.data.samples", spec.samples(), 1, order.maxSamples());
}

}  // namespace trainyard::runtime::internal
