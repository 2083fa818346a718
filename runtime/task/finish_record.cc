#include "runtime/task/finish_record.h"

#include "base/process/files.h"
#include "nlohmann/json.hpp"

namespace trainyard::runtime {
namespace {

std::string pathIn(const std::string& dir) {
  return dir + "/finished.json";
}

}  // namespace

Status recordFinish(const std::string& dir, const v1::TrainingJob& job, std::uint32_t created,
                    std::int64_t steps, const v1::Evaluation& evaluation) {
  const nlohmann::ordered_json record{{"uid", job.metadata().uid()},
                                      {"strategy", job.spec().strategy()},
                                      {"created", created},
                                      {"step", steps},
                                      {"passes", job.spec().training().passes()},
                                      {"hits", evaluation.hits()},
                                      {"samples", evaluation.samples()},
                                      {"lossSum", evaluation.loss_sum()}};
  return writeFileAtomically(pathIn(dir), record.dump() + "\n", 0644);
}

std::optional<v1::Evaluation> readFinish(const std::string& dir, const v1::TrainingJob& job,
                                         std::uint32_t created, std::int64_t wanted) {
  const StatusOr<std::string> text = readFile(pathIn(dir), 1 << 16);
  if (!text.ok()) return std::nullopt;
  const auto record = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || record.value("uid", "") != job.metadata().uid()) return std::nullopt;
  const v1::Training& training = job.spec().training();
  const bool same = training.has_passes()
                        ? record.value("passes", std::int64_t{-1}) == training.passes()
                        : record.value("step", std::int64_t{-1}) >= wanted;
  // With another strategy the coordinator's home, and with it the count of its lives, is another.
  const bool same_life = record.value("created", std::uint32_t{0}) == created &&
                         record.value("strategy", "") == job.spec().strategy();
  if (!same && !same_life) return std::nullopt;
  v1::Evaluation evaluation;
  evaluation.set_version(record.value("step", std::int64_t{0}));
  evaluation.set_hits(record.value("hits", std::int64_t{0}));
  evaluation.set_samples(record.value("samples", std::int64_t{0}));
  evaluation.set_loss_sum(record.value("lossSum", 0.0));
  return evaluation;
}

}  // namespace trainyard::runtime
