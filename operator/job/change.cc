#include "operator/job/change.h"

#include <algorithm>
#include <string>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::ordered_json;

// What tasks are made from, and what they compute: fixed until the job rests.
constexpr std::string_view kWhileResting[] = {"image",
                                              "storage",
                                              "volumes",
                                              "network",
                                              "ps.maxReplicas",
                                              "ps.restartPolicy",
                                              "ps.template",
                                              "ps.volumeClaimTemplates",
                                              "ps.persistentVolumeClaimRetentionPolicy",
                                              "worker.processesPerPod",
                                              "worker.onMembershipChange",
                                              "worker.restartPolicy",
                                              "worker.template",
                                              "worker.volumeClaimTemplates",
                                              "worker.persistentVolumeClaimRetentionPolicy",
                                              "training.model",
                                              "training.data",
                                              "training.batchSize",
                                              "training.globalBatchSize",
                                              "training.passes",
                                              "training.seed",
                                              "training.deterministic",
                                              "training.sharedMemory",
                                              "training.chunkReplicas",
                                              "training.device",
                                              "training.threads",
                                              "training.wireType",
                                              "training.tables",
                                              "training.initFrom",
                                              "training.optimizer",
                                              "training.update",
                                              "training.allReduce",
                                              "training.placement",
                                              "training.checkpoint",
                                              "training.evaluateEverySteps",
                                              "runPolicy.successPolicy",
                                              "runPolicy.runAsImageUser",
                                              "runPolicy.schedulingPolicy",
                                              "runPolicy.podFailurePolicy"};
// Another strategy is another job; two controllers of one job would fight.
constexpr std::string_view kNever[] = {"strategy", "runPolicy.managedBy"};
// How long a record is kept is decided by whoever looks at it.
constexpr const char* kAfterTheEnd = "/runPolicy/ttlSecondsAfterFinished";

const Json* find(const Json& spec, std::string_view path) {
  const Json* value = &spec;
  for (const std::string_view part : split(path, '.')) {
    if (!value->is_object()) return nullptr;
    const auto member = value->find(std::string(part));
    if (member == value->end()) return nullptr;
    value = &*member;
  }
  return value;
}

bool differs(const Json& before, const Json& after, std::string_view path) {
  const Json* const one = find(before, path);
  const Json* const other = find(after, path);
  if (one == nullptr || other == nullptr) return one != other;
  return *one != *other;
}

// The member of spec that the field is in comes or goes as a whole, which is one change.
bool isWithinAnother(const Json& before, const Json& after, std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return false;
  const std::string_view parent = path.substr(0, dot);
  return find(before, parent) == nullptr || find(after, parent) == nullptr;
}

// `path` is the field or lies within it.
bool covers(std::string_view field, std::string_view path) {
  return path.starts_with(field) && (path.size() == field.size() || path[field.size()] == '.');
}

// What of a spec stays as it is when the job has ended.
Json ended(Json spec) {
  const Json::json_pointer pointer(kAfterTheEnd);
  if (spec.contains(pointer.parent_pointer())) spec[pointer.parent_pointer()].erase(pointer.back());
  return spec;
}

JobProblem problem(std::string_view field, std::string message) {
  return {"", 0, field.empty() ? "spec" : fmt::format("spec.{}", field), std::move(message)};
}

}  // namespace

JobLife lifeOf(const v1::TrainingJob& recorded) {
  const std::string& state = recorded.status().state();
  if (state == "Succeeded" || state == "Failed") return JobLife::kEnded;
  const bool rests = state.empty() || state == "Suspended";
  return recorded.spec().run_policy().suspend() && rests ? JobLife::kRests : JobLife::kRuns;
}

bool mayChangeWhileRunning(std::string_view path) {
  const auto fixed = [&](std::string_view field) {
    return covers(field, path) || covers(path, field);
  };
  return std::none_of(std::begin(kWhileResting), std::end(kWhileResting), fixed) &&
         std::none_of(std::begin(kNever), std::end(kNever), fixed);
}

std::vector<JobProblem> checkChange(const Json& before, const Json& after, JobLife life) {
  std::vector<JobProblem> problems;
  if (life == JobLife::kEnded && ended(before) != ended(after)) {
    problems.push_back(problem("", "cannot change: the job has ended"));
  }
  if (life == JobLife::kRuns) {
    constexpr char kMessage[] = "cannot change while the job runs: suspend it first";
    if (before.contains("training") != after.contains("training")) {
      problems.push_back(problem("training", kMessage));
    }
    for (const std::string_view field : kWhileResting) {
      if (isWithinAnother(before, after, field) || !differs(before, after, field)) continue;
      problems.push_back(problem(field, kMessage));
    }
  }
  for (const std::string_view field : kNever) {
    if (isWithinAnother(before, after, field) || !differs(before, after, field)) continue;
    problems.push_back(problem(field, "cannot change: it is fixed when the job is created"));
  }
  return problems;
}

}  // namespace trainyard::control
