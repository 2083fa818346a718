// Scores of versions on the evaluation set, put together from the workers' parts.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

#include "runtime/coordinator/coordinator_config.h"
#include "runtime/coordinator/job_steps.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Not thread-safe.
class Evaluations {
 public:
  explicit Evaluations(const CoordinatorConfig& config) : async_(config.tickets.has_value()) {}

  // The newest complete one; no samples: none yet.
  const v1::Evaluation& newest() const { return newest_; }
  // Of a job that was over before.
  void setNewest(const v1::Evaluation& evaluation) { newest_ = evaluation; }
  // The version has its score.
  bool has(std::int64_t version) const {
    return newest_.samples() > 0 && newest_.version() == version;
  }
  // What was scored under former epochs than this counts no more: it is of another history of
  // weights, or of other slices.
  void startAnew(std::int64_t epoch);
  // Steps behind this version are to be taken again: a score of them is of weights that may never
  // come back.
  void rollBack(std::int64_t version);
  void follow(const Membership& membership, const JobSteps& steps, Outbox& out);

  void tell(v1::View& view) const;
  void tell(v1::JobProgress& progress) const;

 private:
  int scorers(std::int64_t version, const Membership& membership, const JobSteps& steps) const;

  void add(v1::Evaluation evaluation);

  const bool async_;
  v1::Evaluation newest_;
  std::deque<v1::Evaluation> earlier_;  // before it, ascending
  // First epoch of those that share their weights' history and their slices of the evaluation set.
  std::int64_t lineage_ = 0;
  std::map<std::int64_t, std::map<std::uint32_t, v1::EvaluationPart>> parts_;  // version, rank
};

}  // namespace trainyard::runtime
