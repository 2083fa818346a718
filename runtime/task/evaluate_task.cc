#include "runtime/task/evaluate_task.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/dataset.h"
#include "runtime/model/model.h"
#include "runtime/task/buffer_files.h"

namespace trainyard::runtime {
namespace {

constexpr std::int64_t kBatch = 250;

StatusOr<Manifest> chooseManifest(const std::string& dir, const std::string& name) {
  if (!name.empty()) return readManifest(dir + "/" + name);
  std::vector<std::string> problems;
  for (const Manifest& manifest : listManifests(dir, &problems)) {
    if (verifyFiles(dir, manifest).ok()) return manifest;
  }
  return absl::NotFoundError(fmt::format("{}: no checkpoint that can be restored", dir));
}

// A checkpoint of other shapes could be read in part, and would give a score of nothing.
Status checkSameModel(const std::string& dir, const Manifest& manifest,
                      const std::vector<Variable>& variables) {
  for (const Variable& variable : variables) {
    const auto held = std::find_if(manifest.variables.begin(), manifest.variables.end(),
                                   [&](const auto& v) { return v.name == variable.name; });
    if (held != manifest.variables.end() && held->shape == variable.shape) continue;
    return invalidInput(
        fmt::format("{}/{}", dir, manifest.fileName()),
        fmt::format(
            "checkpoint of another model: variable {} is {} there, [{}] in the job", variable.name,
            held == manifest.variables.end() ? "not"
                                             : fmt::format("[{}]", fmt::join(held->shape, ", ")),
            fmt::join(variable.shape, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<EvaluationResult> evaluateCheckpoint(const v1::TrainingJob& job,
                                              const std::string& checkpoint_dir,
                                              const std::string& manifest_name, int threads) {
  const v1::Training& training = job.spec().training();
  setComputeThreads(threads);
  TY_ASSIGN_OR_RETURN(const Manifest manifest, chooseManifest(checkpoint_dir, manifest_name));
  TY_ASSIGN_OR_RETURN(const CheckpointReader reader,
                      CheckpointReader::open(checkpoint_dir, manifest));
  TY_ASSIGN_OR_RETURN(const DataSplits data, openData(training.data()));
  if (data.eval == nullptr) return invalidInput("training.data", "names no evaluation data");
  TY_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                      makeModel(training.model(), data.eval->shape(), data.train->classes(),
                                static_cast<std::uint64_t>(training.seed())));
  TY_RETURN_IF_ERROR(model->canEvaluate());
  TY_RETURN_IF_ERROR(restoreBuffers(checkpoint_dir, manifest.step, *model).status());
  TY_RETURN_IF_ERROR(checkSameModel(checkpoint_dir, manifest, model->variables()));
  for (std::size_t v = 0; v < model->variables().size(); ++v) {
    TY_RETURN_IF_ERROR(
        reader.read(model->variables()[v].name, "", 0, model->weights(static_cast<int>(v))));
  }
  BatchScore total;
  Batch batch;
  std::vector<std::int64_t> samples;
  for (std::int64_t at = 0; at < data.eval->size(); at += kBatch) {
    samples.resize(static_cast<std::size_t>(std::min(kBatch, data.eval->size() - at)));
    std::iota(samples.begin(), samples.end(), at);
    data.eval->read(samples, samples, batch);
    TY_ASSIGN_OR_RETURN(const BatchScore score, model->evaluate(batch));
    total.hits += score.hits;
    total.samples += score.samples;
    total.loss_sum += score.loss_sum;
  }
  const double count = static_cast<double>(total.samples);
  return EvaluationResult{manifest.step, total.samples, static_cast<double>(total.hits) / count,
                          total.loss_sum / count};
}

}  // namespace trainyard::runtime
