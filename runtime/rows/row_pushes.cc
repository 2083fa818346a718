#include "runtime/rows/row_pushes.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"

namespace trainyard::runtime::rows {

RowPushes::RowPushes(const std::vector<RowTableConfig>& tables, PartitionRange range, int aggregate)
    : RowPart(tables, range), aggregate_(static_cast<std::size_t>(aggregate)) {
  TY_CHECK(aggregate >= 1, "an update takes a push");
}

Status RowPushes::open(std::int64_t epoch, const StepPlan& /*plan*/) {
  epoch_ = epoch;
  return absl::OkStatus();
}

// What was pushed stays pushed; what waits comes again under the next epoch.
void RowPushes::seal(std::vector<RowAnswer>& out) {
  epoch_ = -1;
  unconfirmed_ = false;
  for (const Waiting& waiting : std::exchange(taken_, {}))
    out.push_back(without(RowAnswer::Code::kEpochOver, waiting.request, waiting.call));
  for (const Waiting& waiting : std::exchange(later_, {}))
    out.push_back(without(RowAnswer::Code::kEpochOver, waiting.request, waiting.call));
}

std::int64_t RowPushes::point() const {
  return version_ * static_cast<std::int64_t>(aggregate_) +
         static_cast<std::int64_t>(brought_.size());
}

Status RowPushes::take(RowRequest& request, CallId call, std::vector<RowAnswer>& out) {
  if (unconfirmed_ && request.gradients) {
    later_.push_back({call, std::move(request)});
    return absl::OkStatus();
  }
  if (request.gradients && failure_.ok()) bring(request);
  if (!failure_.ok()) {
    // The job is about to end; whoever asks again is told the same.
    out.push_back(without(RowAnswer::Code::kNotReady, request, call));
    out.back().message = std::string(failure_.message());
  } else if (unconfirmed_ && request.gradients) {
    taken_.push_back({call, std::move(request)});
  } else {
    out.push_back(answer(request, call, version_));
  }
  return absl::OkStatus();
}

void RowPushes::confirmed(std::vector<RowAnswer>& out) {
  for (const Waiting& waiting : std::exchange(taken_, {}))
    out.push_back(answer(waiting.request, waiting.call, version_));
  while (!unconfirmed_ && !later_.empty()) {
    Waiting next = std::move(later_.front());
    later_.pop_front();
    take(next.request, next.call, out).IgnoreError();  // what take() says of pushes is OK
  }
}

void RowPushes::cancel(CallId call) {
  const auto is_it = [call](const Waiting& waiting) { return waiting.call == call; };
  std::erase_if(taken_, is_it);
  std::erase_if(later_, is_it);
}

std::optional<RowAnswer> RowPushes::giveUp(CallId call) {
  const auto give_up = [&](auto& waiting) -> std::optional<RowAnswer> {
    const auto found = std::ranges::find(waiting, call, &Waiting::call);
    if (found == waiting.end()) return std::nullopt;
    RowAnswer answer = without(RowAnswer::Code::kNotReady, found->request, call);
    answer.message = "a push waits for the part's replica";
    waiting.erase(found);
    return answer;
  };
  if (auto taken = give_up(taken_)) return taken;
  return give_up(later_);
}

bool RowPushes::isKnown(const RowRequest::Push& push) const {
  const auto known = newest_.find(push.worker);
  return known != newest_.end() && known->second >= numberOf(push);
}

// Where it is in already it may still be on its way to the replica, or it is answered at once.
void RowPushes::bring(RowRequest& request) {
  if (isKnown(request.push)) return;
  countPushed(*request.gradients);
  if (!announces()) return contribute(request.push, request.step, *std::move(request.gradients));
  auto push = std::make_shared<PartUpdate>(
      PartUpdate{point(), request.step, request.push, std::move(*request.gradients)});
  contribute(push->push, push->step, push->gradients);
  if (!failure_.ok()) return;
  if (guarded_) last_ = push;
  announce(std::move(push));
}

void RowPushes::contribute(const RowRequest::Push& push, std::int64_t step,
                           std::vector<RowGradients> gradients) {
  newest_[push.worker] = numberOf(push);
  tickets_.add(push.ticket);
  samples_.add(push.first, push.first + push.samples);
  brought_samples_ += push.samples;
  brought_.push_back(std::move(gradients));
  if (brought_.size() == aggregate_) makeUpdate(step);
}

void RowPushes::makeUpdate(std::int64_t step) {
  std::vector<const std::vector<RowGradients>*> pushes;
  for (const std::vector<RowGradients>& each : brought_) pushes.push_back(&each);
  update(step, meanOf(brought_samples_, pushes));
  brought_.clear();
  brought_samples_ = 0;
}

void RowPushes::settle(std::int64_t version) {
  if (!brought_.empty()) makeUpdate(std::max<std::int64_t>(0, version - 1));
  version_ = version;
}

bool RowPushes::takeAsReplica(std::shared_ptr<const PartUpdate> push) {
  if (isKnown(push->push)) return true;
  const auto aggregate = static_cast<std::int64_t>(aggregate_);
  // Where the part has been settled since the last push, so is its replica now.
  if (push->point != point() && push->point % aggregate == 0) settle(push->point / aggregate);
  if (push->point != point()) return false;
  contribute(push->push, push->step, push->gradients);
  if (!failure_.ok()) return false;
  last_ = std::move(push);
  return true;
}

RowPart::Outline RowPushes::outline(std::int64_t known) const {
  Outline outline;
  GivenPart& given = outline.given;
  given.point = point();
  given.version = version_;
  if (known == given.point) return outline;
  // What has come since is one push, and no settling.
  if (last_ != nullptr && known == last_->point && known == given.point - 1) {
    given.point = known;
    given.update = last_;
    return outline;
  }
  outline.stores = true;
  for (const auto& [worker, number] : newest_) {
    const auto& [created, start, push] = number;
    given.applied.push_back({worker, created, start, push});
  }
  given.tickets = tickets_;
  given.samples = samples_;
  given.brought = brought_;
  given.brought_samples = brought_samples_;
  return outline;
}

Status RowPushes::takeOver(GivenPart given) {
  const bool counts = given.brought.empty() == (given.brought_samples == 0) &&
                      given.brought.size() < aggregate_ && given.brought_samples >= 0;
  if (!counts) return absl::InvalidArgumentError("pushes that make no update");
  if (!given.stores.empty()) {
    TY_RETURN_IF_ERROR(loadStores(given.stores));
    version_ = given.version;
    for (const GivenPart::Applied& push : given.applied)
      newest_[push.worker] = {push.created, push.start, push.number};
    tickets_ = std::move(given.tickets);
    samples_ = std::move(given.samples);
    brought_ = std::move(given.brought);
    brought_samples_ = given.brought_samples;
  }
  if (given.point != point()) {
    return absl::InvalidArgumentError(
        fmt::format("partitions {} to {}: {} pushes, what came is behind {}", range_.first,
                    range_.last - 1, point(), given.point));
  }
  if (given.update == nullptr || takeAsReplica(given.update)) return absl::OkStatus();
  return failure_.ok() ? absl::InvalidArgumentError("a push behind others") : failure_;
}

}  // namespace trainyard::runtime::rows
