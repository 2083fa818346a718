// What nobody can tell better: the area under the ROC curve, and the log loss, of who knows the
// truth that is planted in the clicks of a job (format synthetic_ctr), over its evaluation samples.
//
//   trainyard-bench-clicks-oracle RUN/job.json
//
// The job file is one that `trainyard run` has written. Prints {"auc": ..., "loss": ...}.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/programs/job_file.h"
#include "fmt/format.h"
#include "runtime/data/internal/synthetic_ctr.h"

namespace trainyard::runtime {
namespace {

struct Told {
  double logit = 0;
  bool clicked = false;
};

StatusOr<std::vector<Told>> evaluationSamples(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob job, readJobFile(path));
  const v1::DataSpec& data = job.spec().training().data();
  TY_ASSIGN_OR_RETURN(internal::SyntheticCtrSpec spec, internal::readSyntheticCtrSpec(data));
  spec.first = spec.samples;
  spec.samples = data.eval_samples();
  const auto clicks = internal::makeSyntheticCtr(std::move(spec));
  std::vector<Told> told;
  Batch batch;
  for (std::int64_t sample = 0; sample < clicks->size(); ++sample) {
    clicks->read(std::span(&sample, 1), std::span(&sample, 1), batch);
    told.push_back({clicks->oracleLogit(sample), batch.labels.front() == 1});
  }
  return told;
}

// The share of pairs of both labels that are in the right order (Mann and Whitney's U). Logits are
// real numbers: no two are equal.
double aucOf(std::vector<Told> told) {
  std::ranges::sort(told, {}, &Told::logit);
  double negatives = 0;
  double pairs = 0;
  for (const Told& one : told) (one.clicked ? pairs : negatives) += one.clicked ? negatives : 1;
  return pairs / (negatives * (static_cast<double>(told.size()) - negatives));
}

double lossOf(const std::vector<Told>& told) {
  double sum = 0;
  for (const Told& one : told) sum += std::log1p(std::exp(one.clicked ? -one.logit : one.logit));
  return sum / static_cast<double>(told.size());
}

}  // namespace
}  // namespace trainyard::runtime

int main(int argc, char** argv) {
  CLI::App app{"What who knows the truth can tell of a job's made-up clicks."};
  std::string path;
  app.add_option("job", path, "job.json of a run's folder")->required();
  CLI11_PARSE(app, argc, argv);
  const auto told = trainyard::runtime::evaluationSamples(path);
  if (!told.ok()) {
    std::cerr << told.status() << "\n";
    return trainyard::kExitFailure;
  }
  std::cout << fmt::format("{{\"auc\": {:.5f}, \"loss\": {:.5f}}}\n",
                           trainyard::runtime::aucOf(*told), trainyard::runtime::lossOf(*told));
  return trainyard::kExitOk;
}
