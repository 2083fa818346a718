// report.html: one run on one page, without scripts or anything from the network.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/plan/plan_report.h"
#include "cli/report/records.h"
#include "cli/run/result.h"

namespace trainyard::cli {

struct ReportInput {
  std::string job;
  RunResult result;
  RunRecords records;
  // Nobody computed (training.model.simulatedStepSeconds): loss and accuracy say nothing.
  bool simulated = false;
  std::optional<PlanReport> plan;  // where the job has a built-in model
  std::vector<std::pair<std::string, std::string>>
      facts;             // name and value, e.g. model, optimizer, CPU
  std::string finished;  // when, RFC 3339
};

// Well-formed XML as well as HTML. Pure.
std::string renderReport(const ReportInput& input);

}  // namespace trainyard::cli
