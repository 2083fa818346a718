#include "runtime/task/shard_files.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>

#include "base/core/failpoint.h"
#include "base/core/strings.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/coordinator/names.h"
#include "runtime/task/job_tables.h"

namespace trainyard::runtime {
namespace {

const char* dtypeName(DType dtype) {
  return dtype == DType::kInt32 ? "I32" : "F32";
}

std::vector<std::vector<float>> freshSlots(const Optimizer& optimizer, std::int64_t elements) {
  std::vector<std::vector<float>> slots;
  for (std::size_t s = 0; s < optimizer.slots().size(); ++s) {
    slots.emplace_back(static_cast<std::size_t>(elements), optimizer.initialSlot(s));
  }
  return slots;
}

const std::string& nameOf(const Placement& placement, const Segment& segment) {
  return placement.variables[static_cast<std::size_t>(segment.variable)].name;
}

// Reads all segments of a chunk of one array ("" for weights) into `out`.
Status readChunk(const CheckpointReader& reader, const Placement& placement, const Chunk& chunk,
                 const std::string& slot, std::span<float> out) {
  std::size_t at = 0;
  for (const Segment& segment : chunk.segments) {
    const auto length = static_cast<std::size_t>(segment.end - segment.begin);
    TY_RETURN_IF_ERROR(
        reader.read(nameOf(placement, segment), slot, segment.begin, out.subspan(at, length)));
    at += length;
  }
  return absl::OkStatus();
}

std::string directoryOf(const std::string& file) {
  const std::string dir = std::filesystem::path(file).parent_path().string();
  return dir.empty() ? "." : dir;
}

std::string shapeText(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// The checkpoint has the model's variables and no others.
Status checkSameModel(const Manifest& manifest, const Placement& placement) {
  std::map<std::string, const ManifestVariable*> theirs;
  for (const ManifestVariable& variable : manifest.variables) {
    if (variable.name != kGlobalStep) theirs[variable.name] = &variable;
  }
  for (const Variable& variable : placement.variables) {
    if (variable.name == kGlobalStep) continue;
    const auto found = theirs.find(variable.name);
    if (found == theirs.end()) {
      return absl::InvalidArgumentError(fmt::format("has no variable {}, the model's is {}",
                                                    variable.name, shapeText(variable.shape)));
    }
    const ManifestVariable& other = *found->second;
    if (other.shape != variable.shape || other.dtype != dtypeName(variable.dtype)) {
      return absl::InvalidArgumentError(fmt::format(
          "variable {} is {} {}, the model's is {} {}", variable.name, other.dtype,
          shapeText(other.shape), dtypeName(variable.dtype), shapeText(variable.shape)));
    }
    theirs.erase(found);
  }
  if (theirs.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("variable {} {} is none of the model's",
                                                theirs.begin()->first,
                                                shapeText(theirs.begin()->second->shape)));
}

// Trying again would find the same.
Status initFromError(const Status& status) {
  return withClass(annotate(status, "training.initFrom"), FailureClass::kPermanent);
}

void addTensors(const Placement& placement, const Chunk& chunk, const std::string& slot,
                std::span<const float> values, std::vector<ShardTensor>& tensors) {
  std::size_t at = 0;
  for (const Segment& segment : chunk.segments) {
    const auto length = static_cast<std::size_t>(segment.end - segment.begin);
    tensors.push_back({nameOf(placement, segment), slot, segment.begin, segment.end, false,
                       std::as_bytes(values.subspan(at, length))});
    at += length;
  }
}

// Every chunk of `ps` from a checkpoint.
Status loadChunks(const EpochStart& start, const Placement& placement, const Optimizer& optimizer,
                  int ps, const LoadChunk& load) {
  const CheckpointReader& reader = *start.checkpoint;
  for (const Chunk& chunk : placement.chunks) {
    if (chunk.ps != ps) continue;
    std::vector<float> weights(static_cast<std::size_t>(chunk.elements));
    TY_RETURN_IF_ERROR(readChunk(reader, placement, chunk, "", weights));
    std::vector<std::vector<float>> slots = freshSlots(optimizer, chunk.elements);
    for (std::size_t s = 0; s < slots.size() && !start.initial; ++s)
      TY_RETURN_IF_ERROR(readChunk(reader, placement, chunk, optimizer.slots()[s], slots[s]));
    load(chunk.id, start.version(), std::move(weights), std::move(slots));
  }
  return absl::OkStatus();
}

}  // namespace

void loadFresh(const Placement& placement, const Optimizer& optimizer, int ps, std::uint64_t seed,
               const std::vector<std::vector<float>>& values, const LoadChunk& load) {
  for (const Chunk& chunk : placement.chunks) {
    if (chunk.ps != ps) continue;
    std::vector<float> weights(static_cast<std::size_t>(chunk.elements));
    std::size_t at = 0;
    for (const Segment& segment : chunk.segments) {
      const auto length = static_cast<std::size_t>(segment.end - segment.begin);
      const auto variable = static_cast<std::size_t>(segment.variable);
      const auto part = std::span<float>(weights).subspan(at, length);
      if (values[variable].empty()) {
        initialise(placement.variables[variable], seed, segment.begin, part);
      } else {
        std::copy_n(values[variable].begin() + segment.begin, length, part.begin());
      }
      at += length;
    }
    load(chunk.id, 0, std::move(weights), freshSlots(optimizer, chunk.elements));
  }
}

StatusOr<std::string> chooseInitManifest(const std::string& path, const Placement& placement,
                                         const std::vector<ManifestTable>& tables) {
  const auto choose = [&]() -> StatusOr<std::string> {
    TY_ASSIGN_OR_RETURN(std::string file, findManifest(path));
    TY_ASSIGN_OR_RETURN(const Manifest manifest, readManifest(file));
    TY_RETURN_IF_ERROR(annotate(checkSameModel(manifest, placement), file));
    TY_RETURN_IF_ERROR(annotate(checkSameTables(manifest, tables), file));
    TY_RETURN_IF_ERROR(verifyFiles(directoryOf(file), manifest));
    return file;
  };
  StatusOr<std::string> chosen = choose();
  if (chosen.ok()) return chosen;
  return initFromError(chosen.status());
}

StatusOr<EpochStart> openStart(const TaskOptions& options, const Placement& placement,
                               const Optimizer& optimizer, const std::vector<ManifestTable>& tables,
                               const v1::EpochInfo& epoch) {
  EpochStart start;
  start.initial = !epoch.init_manifest().empty();
  if (epoch.fresh() && !start.initial) return start;
  const auto open = [&]() -> Status {
    const std::string path =
        start.initial ? epoch.init_manifest()
                      : fmt::format("{}/{}", options.checkpointDir(), epoch.restore_manifest());
    TY_ASSIGN_OR_RETURN(const Manifest manifest, readManifest(path));
    if (start.initial) {
      TY_RETURN_IF_ERROR(annotate(checkSameModel(manifest, placement), path));
      TY_RETURN_IF_ERROR(annotate(checkSameTables(manifest, tables), path));
    } else if (manifest.model_digest != modelDigest(placement, optimizer, tables)) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: checkpoint of another model or optimizer ({})", path, manifest.optimizer));
    }
    TY_ASSIGN_OR_RETURN(
        start.checkpoint,
        CheckpointReader::open(directoryOf(path), manifest, CheckpointReader::Verify::kWhatIsRead));
    return absl::OkStatus();
  };
  const Status status = open();
  if (status.ok()) return start;
  return start.initial ? initFromError(status) : status;
}

Status loadStart(const TaskOptions& options, const EpochStart& start, const ModelLayout& model,
                 const Placement& placement, const Optimizer& optimizer, int ps,
                 const LoadChunk& load) {
  if (!start.checkpoint) {
    const auto seed = static_cast<std::uint64_t>(options.job.spec().training().seed());
    loadFresh(placement, optimizer, ps, seed, model.values, load);
    return absl::OkStatus();
  }
  const Status status = loadChunks(start, placement, optimizer, ps, load);
  return status.ok() || !start.initial ? status : initFromError(status);
}

v1::ShardFile writeSnapshot(const std::string& dir, const Placement& placement,
                            const Optimizer& optimizer, const std::vector<ManifestTable>& tables,
                            const v1::TaskId& task, const v1::Incarnation& self,
                            const Snapshot& snapshot) {
  // A worker of an all-reduce holds what one server would.
  const int ps = task.role() == v1::ROLE_PS ? static_cast<int>(task.index()) : 0;
  std::vector<ShardTensor> tensors;
  for (const Snapshot::ChunkCopy& copy : snapshot.chunks) {
    const Chunk& chunk = placement.chunks[copy.chunk];
    addTensors(placement, chunk, "", *copy.weights, tensors);
    for (std::size_t s = 0; s < copy.slots.size(); ++s) {
      addTensors(placement, chunk, optimizer.slots()[s], copy.slots[s], tensors);
    }
  }
  const auto global_step = static_cast<std::int32_t>(snapshot.version);
  if (placement.globalStepPs() == ps) {
    tensors.push_back(
        {std::string(kGlobalStep), "", 0, 1, true, std::as_bytes(std::span(&global_step, 1))});
  }
  std::vector<TableRows> changed;  // of a delta
  std::vector<ShardArray> arrays;
  std::vector<LateTable> late;
  changed.reserve(snapshot.tables.size());
  for (const LateRows& rows : snapshot.tables) {
    const ManifestTable& table = tables[rows.table];
    if (!snapshot.base.any()) {
      late.push_back({&table, &rows});
    } else {
      changed.push_back(rows.read());
      addTableArrays(table, changed.back(), arrays);
    }
  }
  v1::ShardFile file;
  file.set_epoch(snapshot.epoch);
  file.set_version(snapshot.version);
  file.set_base(snapshot.base.manifest);
  const std::string name =
      fmt::format("{}.step-{}.e{}.i{}-{}.safetensors", taskName(task.role(), task.index()),
                  snapshot.version, snapshot.epoch, self.created(), self.start());
  hitFailpoint("ps.snapshot", snapshot.version);
  const StatusOr<ShardFileInfo> written = writeShard(dir, name, tensors, arrays, late);
  if (written.ok()) {
    file.set_name(written->name);
    file.set_size(written->size);
    file.set_sha256(written->sha256);
  } else {
    file.set_error(std::string(fromAbsl(written.status().message())));
  }
  return file;
}

std::string modelDigest(const Placement& placement, const Optimizer& optimizer,
                        const std::vector<ManifestTable>& tables) {
  std::string text;
  for (const Variable& variable : placement.variables) {
    text += fmt::format("{} {} {}\n", variable.name, dtypeName(variable.dtype),
                        fmt::join(variable.shape, ","));
  }
  text += fmt::format("slots {}\n", fmt::join(optimizer.slots(), ","));
  for (const ManifestTable& table : tables) {
    if (table.dim == 0) continue;  // a job may begin to count ids, and cease to
    text += fmt::format("table {} [{}] {}\n", table.name, table.dim, fmt::join(table.slots, ","));
  }
  return sha256Hex(text);
}

void describeModel(const Placement& placement, const Optimizer& optimizer,
                   const std::string& optimizer_name, std::vector<ManifestTable> tables,
                   Manifest& manifest) {
  manifest.model_digest = modelDigest(placement, optimizer, tables);
  manifest.tables = std::move(tables);
  manifest.optimizer = optimizer_name;
  manifest.slots = optimizer.slots();
  manifest.variables.clear();
  for (const Variable& variable : placement.variables) {
    manifest.variables.push_back({variable.name, variable.shape, dtypeName(variable.dtype)});
  }
}

}  // namespace trainyard::runtime
