#include "runtime/rows/row_steps.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace trainyard::runtime::rows {
namespace {

Status refuse(std::string message) {
  return absl::InvalidArgumentError(std::move(message));
}

}  // namespace

void RowSteps::setVersion(std::int64_t version) {
  RowPart::setVersion(version);
  has_former_ = false;
  newest_.reset();
}

Status RowSteps::canBegin(const StepPlan& plan) const {
  const bool at_first = version_ == plan.first_step;
  const bool behind_first = version_ == plan.first_step + 1 && has_former_;
  if (at_first || behind_first) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("partitions {} to {}: version {} of rows, the epoch starts at {}", range_.first,
                  range_.last - 1, version_, plan.first_step));
}

Status RowSteps::open(std::int64_t epoch, const StepPlan& plan) {
  TY_RETURN_IF_ERROR(canBegin(plan));
  epoch_ = epoch;
  plan_ = plan;
  expectGradients();
  return absl::OkStatus();
}

void RowSteps::expectGradients() {
  brought_.assign(static_cast<std::size_t>(plan_.quorum(version_)), std::nullopt);
  brought_samples_ = 0;
}

void RowSteps::seal(std::vector<RowAnswer>& out) {
  epoch_ = -1;
  unconfirmed_ = false;  // the replica gets it before the next epoch begins
  brought_.clear();
  for (const Parked& parked : std::exchange(parked_, {}))
    out.push_back(without(RowAnswer::Code::kEpochOver, parked.request, parked.call));
}

Status RowSteps::checkVersion(const RowRequest& request) const {
  const std::int64_t oldest = version_ - (has_former_ ? 1 : 0);
  const bool goes_on = !unconfirmed_ && plan_.samplesOf(version_) > 0;
  const std::int64_t newest = version_ + (goes_on ? 1 : 0);
  if (request.version >= oldest && request.version <= newest) return absl::OkStatus();
  return refuse(fmt::format("rows of version {} are asked for, there are {} to {}", request.version,
                            oldest, newest));
}

Status RowSteps::checkStep(const RowRequest& request) const {
  const bool is_due = std::max(plan_.first_step, version_ - 1) <= request.step &&
                      request.step <= version_ && request.version == request.step + 1;
  if (!is_due) {
    return refuse(fmt::format("gradients of step {} for rows of version {}, it is {}", request.step,
                              request.version, version_));
  }
  if (placeOf(request)) return absl::OkStatus();
  return refuse(fmt::format("gradients of rank {}, which has no {} in step {}", request.rank,
                            plan_.backup_workers > 0 ? "place" : "samples", request.step));
}

std::optional<std::size_t> RowSteps::placeOf(const RowRequest& request) const {
  const int place = plan_.backup_workers > 0 ? request.place.value_or(-1) : request.rank;
  if (place < 0 || place >= plan_.quorum(request.step)) return std::nullopt;
  return static_cast<std::size_t>(place);
}

Status RowSteps::take(RowRequest& request, CallId call, std::vector<RowAnswer>& out) {
  if (request.version == kNewestRows && !request.gradients) request.version = told();
  TY_RETURN_IF_ERROR(checkVersion(request));
  if (request.gradients) TY_RETURN_IF_ERROR(checkStep(request));
  bring(request);
  if (request.version <= told()) {
    out.push_back(answer(request, call, request.version));
  } else {
    park(std::move(request), call, out);
  }
  if (failure_.ok() && !brought_.empty() &&
      std::ranges::all_of(brought_, [](const auto& each) { return each.has_value(); })) {
    takeStep(out);
  }
  return absl::OkStatus();
}

// The first gradient of a step says that all parts have reached its version.
void RowSteps::bring(RowRequest& request) {
  if (!request.gradients || request.step != version_) return;
  auto& place = brought_[*placeOf(request)];
  if (!place) {
    place = std::move(request.gradients);
    countPushed(*place);
    brought_samples_ += request.push.samples;
  }
  request.gradients.reset();
  if (!has_former_) return;
  has_former_ = false;
  newest_.reset();
  for (Table& table : tables_) table.forgetFormer();
}

void RowSteps::park(RowRequest request, CallId call, std::vector<RowAnswer>& out) {
  std::erase_if(parked_, [&](const Parked& parked) {
    if (parked.request.rank != request.rank) return false;
    out.push_back(without(RowAnswer::Code::kAskedAgain, parked.request, parked.call));
    return true;
  });
  parked_.push_back({call, std::move(request)});
}

void RowSteps::cancel(CallId call) {
  std::erase_if(parked_, [&](const Parked& parked) { return parked.call == call; });
}

std::optional<RowAnswer> RowSteps::giveUp(CallId call) {
  const auto found =
      std::ranges::find_if(parked_, [&](const Parked& parked) { return parked.call == call; });
  if (found == parked_.end()) return std::nullopt;
  RowAnswer answer = without(RowAnswer::Code::kNotReady, found->request, call);
  answer.message = unconfirmed_ ? fmt::format("step {} waits for its replica", version_ - 1)
                                : fmt::format("step {} waits for rows of {}", version_, missing());
  parked_.erase(found);
  return answer;
}

std::string RowSteps::missing() const {
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < brought_.size(); ++r) {
    if (!brought_[r]) ranks.push_back(r);
  }
  // Whoever has places left: they are not ranks.
  if (plan_.backup_workers > 0)
    return fmt::format("{} of {} workers", ranks.size(), brought_.size());
  return fmt::format("workers of rank {}", fmt::join(ranks, ","));
}

void RowSteps::takeStep(std::vector<RowAnswer>& out) {
  std::vector<const std::vector<RowGradients>*> ranks;
  for (const auto& each : brought_) ranks.push_back(&*each);
  auto step = std::make_shared<PartUpdate>();
  step->point = step->step = version_;
  step->push.samples = brought_samples_;
  step->gradients = meanOf(brought_samples_, ranks);
  if (!become(step)) return;
  expectGradients();
  announce(std::move(step));
  if (!unconfirmed_) confirmed(out);
}

// What a step that cannot be taken leaves has no version before it.
bool RowSteps::become(std::shared_ptr<const PartUpdate> step) {
  has_former_ = update(step->step, step->gradients);
  if (!has_former_) {
    newest_.reset();
    return false;
  }
  newest_ = std::move(step);
  return true;
}

void RowSteps::confirmed(std::vector<RowAnswer>& out) {
  for (const Parked& parked : std::exchange(parked_, {}))
    out.push_back(answer(parked.request, parked.call, parked.request.version));
}

bool RowSteps::takeAsReplica(std::shared_ptr<const PartUpdate> step) {
  // Now, or by a message that this one repeats.
  if (step->step != version_) return step->step == version_ - 1;
  return become(std::move(step));
}

RowPart::Outline RowSteps::outline(std::int64_t known) const {
  Outline outline;
  GivenPart& given = outline.given;
  given.point = given.version = version_;
  if (known == version_) return outline;
  if (has_former_) {
    given.update = newest_;
    given.point = given.version = version_ - 1;
    if (known == given.point) return outline;
  }
  outline.stores = true;
  outline.former = has_former_;
  return outline;
}

Status RowSteps::takeOver(GivenPart given) {
  if (!given.stores.empty()) {
    TY_RETURN_IF_ERROR(loadStores(given.stores));
    setVersion(given.version);
  }
  if (given.version != version_) {
    return refuse(fmt::format("partitions {} to {}: at version {}, what came is behind {}",
                              range_.first, range_.last - 1, version_, given.version));
  }
  if (given.update == nullptr || takeAsReplica(given.update)) return absl::OkStatus();
  return failure_.ok() ? refuse("an update of another version") : failure_;
}

}  // namespace trainyard::runtime::rows
