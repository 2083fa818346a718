// Several runs side by side on one page, measured against the cost model. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/plan_report.h"
#include "cli/report/records.h"
#include "cli/run/result.h"

namespace trainyard::cli {

struct ComparedRun {
  std::string name;  // of its job
  RunResult result;
  RunRecords records;
  // Nobody computed (training.model.simulatedStepSeconds): loss and accuracy say nothing.
  bool simulated = false;
  std::optional<PlanReport> plan;        // where the job has a built-in model
  std::optional<double> predicted_step;  // seconds, where the page is asked for a prediction
};

// Seconds of a step from the end of the first one recorded to the last, evaluation excluded, over
// the records of the chief's last process. Nothing with fewer than two records.
std::optional<double> measuredStep(const RunRecords& records);

// Bytes per second of a server.
struct ServerRate {
  double received = 0;
  double transmitted = 0;
};
// By task, over the samples between the first step and the last one (all, where no steps are
// recorded), with PsBytes::allReceived() and allTransmitted(). Empty with fewer than two samples.
std::map<std::string, ServerRate> serverRates(const RunRecords& records);

// Well-formed XML as well as HTML.
std::string renderComparison(const std::vector<ComparedRun>& runs);
// The tables of that page as text.
std::string renderComparisonText(const std::vector<ComparedRun>& runs);

}  // namespace trainyard::cli
