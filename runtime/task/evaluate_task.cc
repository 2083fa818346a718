#include "runtime/task/evaluate_task.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/dataset.h"
#include "runtime/data/table_lookup.h"
#include "runtime/model/model.h"
#include "runtime/rows/row_copy.h"
#include "runtime/rows/row_table.h"
#include "runtime/task/buffer_files.h"
#include "runtime/task/job_tables.h"

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

// All rows of the job's tables in a checkpoint.
class CheckpointRows {
 public:
  static StatusOr<CheckpointRows> read(const v1::Training& training, const CheckpointReader& reader,
                                       const std::vector<TableLookup>& tables) {
    CheckpointRows rows;
    if (tables.empty()) return rows;
    TY_ASSIGN_OR_RETURN(rows.job_, jobTables(training));
    TY_RETURN_IF_ERROR(annotate(checkSameTables(reader.manifest(), rows.job_.described()),
                                reader.manifest().fileName()));
    for (std::size_t t = 0; t < tables.size(); ++t) {
      rows::RowTable& table =
          rows.tables_.emplace_back(rows.job_.configs[t].options, *rows.job_.configs[t].optimizer);
      TY_RETURN_IF_ERROR(reader.walkTable(t, 0, kTablePartitions, [&](TableRows held) {
        beginSlots(*rows.job_.optimizers[t], held);  // which nobody looks at
        rows::loadRows(held, table);
        return absl::OkStatus();
      }));
    }
    return rows;
  }
  std::vector<std::vector<float>> of(const std::vector<std::vector<std::uint64_t>>& ids) const {
    std::vector<std::vector<float>> rows(ids.size());
    for (std::size_t t = 0; t < ids.size(); ++t) {
      rows[t].resize(ids[t].size() * static_cast<std::size_t>(tables_[t].options().dim));
      tables_[t].pull(ids[t], rows[t]);
    }
    return rows;
  }

 private:
  JobTables job_;
  std::vector<rows::RowTable> tables_;
};

}  // namespace

StatusOr<EvaluationResult> evaluateCheckpoint(const v1::TrainingJob& job,
                                              const std::string& checkpoint_dir,
                                              const std::string& manifest_name, int threads) {
  const v1::Training& training = job.spec().training();
  if (training.model().name() == "program") {
    return invalidInput("training.model.name",
                        "\"program\": only the program itself can evaluate its model");
  }
  setComputeThreads(threads);
  TY_ASSIGN_OR_RETURN(const Manifest manifest, chooseManifest(checkpoint_dir, manifest_name));
  TY_ASSIGN_OR_RETURN(const CheckpointReader reader,
                      CheckpointReader::open(checkpoint_dir, manifest));
  TY_ASSIGN_OR_RETURN(const DataSplits data, openData(training.data()));
  if (data.eval == nullptr) return invalidInput("training.data", "names no evaluation data");
  const bool tabular = !data.train->columns().empty();
  const InputShape input =
      tabular ? impliedInput(training) : InputShape{data.eval->shape(), data.train->classes()};
  TY_ASSIGN_OR_RETURN(const std::vector<TableLookup> tables,
                      tableLookups(training, data.train->columns()));
  TY_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                      makeModel(training.model(), input.shape, input.classes,
                                static_cast<std::uint64_t>(training.seed()), "", tables));
  TY_RETURN_IF_ERROR(model->canEvaluate());
  TY_RETURN_IF_ERROR(restoreBuffers(checkpoint_dir, manifest.step, *model).status());
  TY_RETURN_IF_ERROR(checkSameModel(checkpoint_dir, manifest, model->variables()));
  for (std::size_t v = 0; v < model->variables().size(); ++v) {
    TY_RETURN_IF_ERROR(
        reader.read(model->variables()[v].name, "", 0, model->weights(static_cast<int>(v))));
  }
  TY_ASSIGN_OR_RETURN(const CheckpointRows rows, CheckpointRows::read(training, reader, tables));
  BatchScore total;
  Batch batch;
  std::vector<std::int64_t> samples;
  for (std::int64_t at = 0; at < data.eval->size(); at += kBatch) {
    samples.resize(static_cast<std::size_t>(std::min(kBatch, data.eval->size() - at)));
    std::iota(samples.begin(), samples.end(), at);
    data.eval->read(samples, samples, batch);
    batch.rows = rows.of(occurrencesOf(tables, batch.features));
    TY_ASSIGN_OR_RETURN(const BatchScore score, model->evaluate(batch));
    total.add(score);
  }
  const double count = static_cast<double>(total.samples);
  return EvaluationResult{
      manifest.step,          total.samples,      static_cast<double>(total.hits) / count,
      total.loss_sum / count, total.clicks.auc(), total.clicks.calibration()};
}

}  // namespace trainyard::runtime
