#include "runtime/task/finish_record.h"

#include <cmath>
#include <limits>
#include <optional>

#include "nlohmann/json.hpp"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

std::string pathIn(const std::string& dir) {
  return dir + "/finished.json";
}

struct Record {
  std::string uid;
  std::string strategy;
  std::int64_t created = 0;
  std::int64_t passes = 0;
  v1::Evaluation evaluation;  // its version is the number of steps
};

// The members of a record, each of the type that recordFinish() writes; what is not is noted.
class Members {
 public:
  explicit Members(const nlohmann::json& record) : record_(record) {}
  bool allThere() const { return all_there_; }

  std::string text(const char* name) {
    const auto found = record_.find(name);
    if (found != record_.end() && found->is_string()) return found->get<std::string>();
    all_there_ = false;
    return {};
  }
  std::int64_t count(const char* name) {
    const auto found = record_.find(name);
    // Only numbers that are not negative are unsigned here.
    if (found != record_.end() && found->is_number_unsigned() &&
        found->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max()) {
      return found->get<std::int64_t>();
    }
    all_there_ = false;
    return 0;
  }
  bool has(const char* name) const { return record_.contains(name); }
  // JSON has no word for what is not finite: it is written as null.
  double number(const char* name) {
    const auto found = record_.find(name);
    if (found != record_.end() && found->is_number()) return found->get<double>();
    all_there_ = all_there_ && found != record_.end() && found->is_null();
    return std::nan("");
  }

 private:
  const nlohmann::json& record_;
  bool all_there_ = true;
};

std::optional<Record> parse(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  Members members(json);
  Record record;
  record.uid = members.text("uid");
  record.strategy = members.text("strategy");
  record.created = members.count("created");
  record.passes = members.count("passes");
  record.evaluation.set_version(members.count("step"));
  record.evaluation.set_hits(members.count("hits"));
  record.evaluation.set_samples(members.count("samples"));
  record.evaluation.set_loss_sum(members.number("lossSum"));
  // Of clicks only.
  if (members.has("auc")) record.evaluation.set_auc(members.number("auc"));
  if (members.has("calibration")) record.evaluation.set_calibration(members.number("calibration"));
  if (!members.allThere()) return std::nullopt;
  return record;
}

}  // namespace

Status recordFinish(const std::string& dir, const v1::TrainingJob& job, std::uint32_t created,
                    std::int64_t steps, const v1::Evaluation& evaluation) {
  nlohmann::ordered_json record{{"uid", job.metadata().uid()},
                                {"strategy", job.spec().strategy()},
                                {"created", created},
                                {"step", steps},
                                {"passes", job.spec().training().passes()},
                                {"hits", evaluation.hits()},
                                {"samples", evaluation.samples()},
                                {"lossSum", evaluation.loss_sum()}};
  if (evaluation.has_auc()) record["auc"] = evaluation.auc();
  if (evaluation.has_calibration()) record["calibration"] = evaluation.calibration();
  return writeStored(pathIn(dir), record.dump() + "\n");
}

std::optional<v1::Evaluation> readFinish(const std::string& dir, const v1::TrainingJob& job,
                                         std::uint32_t created, std::int64_t wanted) {
  const StatusOr<std::string> text = readStored(pathIn(dir), 1 << 16);
  if (!text.ok()) return std::nullopt;
  const std::optional<Record> record = parse(*text);
  if (!record || record->uid != job.metadata().uid()) return std::nullopt;
  const v1::Training& training = job.spec().training();
  const bool same = training.has_passes() ? record->passes == training.passes()
                                          : record->evaluation.version() >= wanted;
  // With another strategy the coordinator's home, and with it the count of its lives, is another.
  const bool same_life = record->created == created && record->strategy == job.spec().strategy();
  if (!same && !same_life) return std::nullopt;
  return record->evaluation;
}

}  // namespace trainyard::runtime
