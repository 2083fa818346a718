// Chunks of the placement from and to checkpoint files.
#pragma once

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
// Fills every chunk of `ps` with another run's weights at version 0; slots begin anew.
Status loadInitial(const std::string& manifest_path, const Placement& placement,
                   const Optimizer& optimizer, int ps, const LoadChunk& load);
// Fills every chunk of `ps` from a checkpoint, at the manifest's step. Errors name file or
// variable.
Status loadCheckpoint(const std::string& dir, const std::string& manifest_name,
                      const Placement& placement, const Optimizer& optimizer,
                      const std::vector<ManifestTable>& tables, int ps, const LoadChunk& load);
// Any of these, as the epoch says; `model` and `tables` of this job, whose rows are loadTables()'s.
// Precondition: the epoch starts from none of
// what its members hold.
Status loadStart(const TaskOptions& options, const ModelLayout& model, const Placement& placement,
                 const Optimizer& optimizer, const std::vector<ManifestTable>& tables, int ps,
                 const v1::EpochInfo& epoch, const LoadChunk& load);
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
