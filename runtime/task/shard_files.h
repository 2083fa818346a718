// Chunks of the placement from and to checkpoint files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/task/options.h"
#include "runtime/train/model_layout.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Fills every chunk of `ps` with initial values at version 0: those of `values` (by variable),
// where that is empty a function of the seed.
void loadFresh(const Placement& placement, const Optimizer& optimizer, int ps, std::uint64_t seed,
               const std::vector<std::vector<float>>& values, const LoadChunk& load);
// The manifest that `path` (training.initFrom) means, of a checkpoint of the same model, with all
// its files whole. Errors are permanent and name the field, the file and what is wrong: a variable
// with both shapes.
StatusOr<std::string> chooseInitManifest(const std::string& path, const Placement& placement,
                                         const std::vector<ManifestTable>& tables);
// What an epoch starts from that takes nothing of what its members hold: the seed or a checkpoint.
struct EpochStart {
  std::optional<CheckpointReader> checkpoint;  // nothing: the seed
  bool initial = false;  // another run's: from version 0, and optimizers' slots begin anew
  std::int64_t version() const { return checkpoint && !initial ? checkpoint->manifest().step : 0; }
};
// Opened and verified once, for chunks and rows. Errors name the file and what is wrong: another
// model, other tables; of another run's they are permanent and name the field.
StatusOr<EpochStart> openStart(const TaskOptions& options, const Placement& placement,
                               const Optimizer& optimizer, const std::vector<ManifestTable>& tables,
                               const v1::EpochInfo& epoch);
// Fills every chunk of `ps`; `model` is this job's. Errors name file or variable.
Status loadStart(const TaskOptions& options, const EpochStart& start, const ModelLayout& model,
                 const Placement& placement, const Optimizer& optimizer, int ps,
                 const LoadChunk& load);
// Writes a snapshot as "ps-1.step-1200.e5.i2-3.safetensors", `task` in front; file.error is set on
// failure.
v1::ShardFile writeSnapshot(const std::string& dir, const Placement& placement,
                            const Optimizer& optimizer, const std::vector<ManifestTable>& tables,
                            const v1::TaskId& task, const v1::Incarnation& self,
                            const Snapshot& snapshot);
// The part of a manifest that follows from model and optimizer.
void describeModel(const Placement& placement, const Optimizer& optimizer,
                   const std::string& optimizer_name, std::vector<ManifestTable> tables,
                   Manifest& manifest);
// Hex SHA-256 over names, shapes, dtypes and slots, tables' as well.
std::string modelDigest(const Placement& placement, const Optimizer& optimizer,
                        const std::vector<ManifestTable>& tables);

}  // namespace trainyard::runtime
