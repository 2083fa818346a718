#include "runtime/task/buffer_files.h"

#include "runtime/checkpoint/step_files.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 32;

StepFiles filesOf(const std::string& dir) {
  return {dir, "buffers.step-", ".pt"};
}

}  // namespace

Status saveBuffers(const std::string& dir, std::int64_t step, int keep, Model& model) {
  const std::string bytes = model.saveState();
  if (bytes.empty()) return absl::OkStatus();
  TY_RETURN_IF_ERROR(makeStoredFolder(dir));
  const StepFiles files = filesOf(dir);
  TY_RETURN_IF_ERROR(writeStored(files.path(step), bytes));
  files.prune(keep);
  return absl::OkStatus();
}

bool hasBuffers(const std::string& dir, std::int64_t step) {
  return filesOf(dir).has(step);
}

StatusOr<bool> restoreBuffers(const std::string& dir, std::optional<std::int64_t> step,
                              Model& model) {
  if (model.saveState().empty()) return false;
  const StepFiles files = filesOf(dir);
  const auto newest = files.newest(step);
  if (!newest) return false;
  const std::string path = files.path(*newest);
  TY_ASSIGN_OR_RETURN(const std::string bytes, readStored(path, kMaxBytes));
  TY_RETURN_IF_ERROR(annotate(model.loadState(bytes), path));
  return true;
}

}  // namespace trainyard::runtime
