#include "agent/traffic/merged_report.h"

#include <algorithm>

namespace trainyard::agent {
namespace {

bool hasCome(const v1::RuntimeReport& report) {
  return report.has_id() || report.has_incarnation();
}

void add(v1::PhaseSeconds& sum, const v1::PhaseSeconds& more) {
  sum.set_data(sum.data() + more.data());
  sum.set_compute(sum.compute() + more.compute());
  sum.set_push_pull(sum.push_pull() + more.push_pull());
  sum.set_evaluate(sum.evaluate() + more.evaluate());
}

// Each process of a worker looks up in the same tables.
void add(google::protobuf::RepeatedPtrField<v1::TableWork>& sum,
         const google::protobuf::RepeatedPtrField<v1::TableWork>& more) {
  for (const v1::TableWork& work : more) {
    const auto found =
        std::ranges::find_if(sum, [&](const auto& own) { return own.table() == work.table(); });
    v1::TableWork& own = found == sum.end() ? *sum.Add() : *found;
    own.set_table(work.table());
    own.set_occurrences(own.occurrences() + work.occurrences());
    own.set_distinct(own.distinct() + work.distinct());
  }
}

void add(v1::RuntimeReport& sum, const v1::RuntimeReport& more) {
  sum.set_examples(sum.examples() + more.examples());
  sum.set_completed_steps(sum.completed_steps() + more.completed_steps());
  sum.set_requests(sum.requests() + more.requests());
  sum.set_parameter_bytes(sum.parameter_bytes() + more.parameter_bytes());
  sum.set_step_seconds(std::max(sum.step_seconds(), more.step_seconds()));
  if (more.has_seconds()) add(*sum.mutable_seconds(), more.seconds());
  sum.mutable_traffic()->MergeFrom(more.traffic());
  add(*sum.mutable_tables(), more.tables());
  if (!more.has_job()) return;
  *sum.mutable_job() = more.job();
  *sum.mutable_heard() = more.heard();
}

}  // namespace

v1::RuntimeReport mergedReport(const TaskIdentity& self,
                               const std::vector<v1::RuntimeReport>& reports) {
  const auto first = std::find_if(reports.begin(), reports.end(), hasCome);
  if (first == reports.end()) return {};
  v1::RuntimeReport merged = *first;
  *merged.mutable_id() = self.id;
  for (auto report = std::next(first); report != reports.end(); ++report) {
    if (hasCome(*report)) add(merged, *report);
  }
  merged.set_ready(
      reports.size() == self.processes &&
      std::all_of(reports.begin(), reports.end(), [](const auto& r) { return r.ready(); }));
  return merged;
}

}  // namespace trainyard::agent
