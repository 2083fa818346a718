#include "runtime/rows/row_pushes.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime::rows {

RowPushes::RowPushes(const std::vector<RowTableConfig>& tables, PartitionRange range, int aggregate)
    : RowPart(tables, range), aggregate_(static_cast<std::size_t>(aggregate)) {
  TY_CHECK(aggregate >= 1, "an update takes a push");
}

Status RowPushes::open(std::int64_t epoch, const StepPlan& /*plan*/) {
  epoch_ = epoch;
  return absl::OkStatus();
}

// Nobody waits.
void RowPushes::seal(std::vector<RowAnswer>& /*out*/) {
  epoch_ = -1;
}

Status RowPushes::take(RowRequest& request, CallId call, std::vector<RowAnswer>& out) {
  if (request.gradients && failure_.ok()) bring(request);
  if (failure_.ok()) {
    out.push_back(answer(request, call, version_));
    return absl::OkStatus();
  }
  // The job is about to end; whoever asks again is told the same.
  out.push_back(without(RowAnswer::Code::kNotReady, request, call));
  out.back().message = std::string(failure_.message());
  return absl::OkStatus();
}

void RowPushes::bring(RowRequest& request) {
  const RowRequest::Push& push = request.push;
  const Number number{push.created, push.start, push.number};
  const auto known = newest_.find(push.worker);
  if (known != newest_.end() && known->second >= number) return;
  newest_[push.worker] = number;
  tickets_.add(push.ticket);
  samples_.add(push.first, push.first + push.samples);
  brought_samples_ += push.samples;
  countPushed(*request.gradients);
  brought_.push_back(*std::move(request.gradients));
  if (brought_.size() == aggregate_) takeUpdate(request.step);
}

void RowPushes::takeUpdate(std::int64_t step) {
  std::vector<const std::vector<RowGradients>*> pushes;
  for (const std::vector<RowGradients>& each : brought_) pushes.push_back(&each);
  update(step, brought_samples_, pushes);
  brought_.clear();
  brought_samples_ = 0;
}

void RowPushes::settle(std::int64_t version) {
  if (!brought_.empty()) takeUpdate(std::max<std::int64_t>(0, version - 1));
  version_ = version;
}

}  // namespace trainyard::runtime::rows
