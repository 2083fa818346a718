#include "runtime/rows/row_part.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::rows {
namespace {

Status refuse(std::string message) {
  return absl::InvalidArgumentError(std::move(message));
}

}  // namespace

RowPart::RowPart(const std::vector<RowTableConfig>& tables, PartitionRange range) : range_(range) {
  tables_.reserve(tables.size());
  for (const RowTableConfig& config : tables) {
    tables_.push_back({RowTable(config.options, *config.optimizer, range),
                       RowOrder(saltOf(config.options.name)), config.learning_rate, RowUndo()});
  }
}

void RowPart::setVersion(std::int64_t version) {
  TY_CHECK(epoch_ < 0, "rows are loaded between epochs");
  version_ = version;
  has_former_ = false;
}

Status RowPart::open(std::int64_t epoch, const StepPlan& plan) {
  const bool at_first = version_ == plan.first_step;
  const bool behind_first = version_ == plan.first_step + 1 && has_former_;
  if (!at_first && !behind_first) {
    return absl::FailedPreconditionError(
        fmt::format("partitions {} to {}: version {} of rows, the epoch starts at {}", range_.first,
                    range_.last - 1, version_, plan.first_step));
  }
  epoch_ = epoch;
  plan_ = plan;
  brought_.assign(static_cast<std::size_t>(plan.takers(version_)), std::nullopt);
  return absl::OkStatus();
}

void RowPart::seal(std::vector<RowAnswer>& out) {
  epoch_ = -1;
  brought_.clear();
  for (const Parked& parked : std::exchange(parked_, {}))
    out.push_back(without(RowAnswer::Code::kEpochOver, parked.request, parked.call));
}

Status RowPart::checkWish(const RowRequest& request) const {
  if (request.ids.size() != tables_.size()) {
    return refuse(fmt::format("rows of {} tables are asked for, there are {}", request.ids.size(),
                              tables_.size()));
  }
  const std::int64_t oldest = version_ - (has_former_ ? 1 : 0);
  const std::int64_t newest = version_ + (plan_.samplesOf(version_) > 0 ? 1 : 0);
  if (request.version < oldest || request.version > newest) {
    return refuse(fmt::format("rows of version {} are asked for, there are {} to {}",
                              request.version, oldest, newest));
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TY_RETURN_IF_ERROR(
        checkIds(request.ids[t], tables_[t].table.options().name, tables_[t].order, range_));
  }
  return absl::OkStatus();
}

Status RowPart::checkBrought(const RowRequest& request) const {
  const std::vector<RowGradients>& gradients = *request.gradients;
  if (gradients.size() != tables_.size()) {
    return refuse(
        fmt::format("gradients of {} tables, there are {}", gradients.size(), tables_.size()));
  }
  const bool is_due = std::max(plan_.first_step, version_ - 1) <= request.step &&
                      request.step <= version_ && request.version == request.step + 1;
  if (!is_due) {
    return refuse(fmt::format("gradients of step {} for rows of version {}, it is {}", request.step,
                              request.version, version_));
  }
  if (request.rank < 0 || request.rank >= plan_.takers(request.step)) {
    return refuse(fmt::format("gradients of rank {}, which has no samples in step {}", request.rank,
                              request.step));
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const RowTableOptions& options = tables_[t].table.options();
    TY_RETURN_IF_ERROR(checkGradients(gradients[t], options.name,
                                      static_cast<std::size_t>(options.dim), tables_[t].order,
                                      range_));
  }
  return absl::OkStatus();
}

Status RowPart::check(const RowRequest& request) const {
  TY_RETURN_IF_ERROR(checkWish(request));
  return request.gradients ? checkBrought(request) : absl::OkStatus();
}

void RowPart::onRequest(RowRequest request, CallId call, std::vector<RowAnswer>& out) {
  if (request.epoch != epoch_) {
    out.push_back(without(RowAnswer::Code::kEpochOver, request, call));
    return;
  }
  if (const Status valid = check(request); !valid.ok()) {
    out.push_back(without(RowAnswer::Code::kRefused, request, call));
    out.back().message = std::string(valid.message());
    return;
  }
  bring(request);
  if (request.version <= version_) {
    out.push_back(answer(request, call));
  } else {
    park(std::move(request), call, out);
  }
  if (failure_.ok() && !brought_.empty() &&
      std::ranges::all_of(brought_, [](const auto& each) { return each.has_value(); })) {
    takeStep(out);
  }
}

// The first gradient of a step says that all parts have reached its version.
void RowPart::bring(RowRequest& request) {
  if (!request.gradients || request.step != version_) return;
  auto& place = brought_[static_cast<std::size_t>(request.rank)];
  if (!place) place = std::move(request.gradients);
  request.gradients.reset();
  if (!has_former_) return;
  has_former_ = false;
  for (Table& table : tables_) table.undo.clear();
}

void RowPart::park(RowRequest request, CallId call, std::vector<RowAnswer>& out) {
  std::erase_if(parked_, [&](const Parked& parked) {
    if (parked.request.rank != request.rank) return false;
    out.push_back(without(RowAnswer::Code::kAskedAgain, parked.request, parked.call));
    return true;
  });
  parked_.push_back({call, std::move(request)});
}

void RowPart::cancel(CallId call) {
  std::erase_if(parked_, [&](const Parked& parked) { return parked.call == call; });
}

std::optional<RowAnswer> RowPart::giveUp(CallId call) {
  const auto found =
      std::ranges::find_if(parked_, [&](const Parked& parked) { return parked.call == call; });
  if (found == parked_.end()) return std::nullopt;
  RowAnswer answer = without(RowAnswer::Code::kNotReady, found->request, call);
  answer.message =
      fmt::format("step {} waits for rows of workers of rank {}", version_, missingRanks());
  parked_.erase(found);
  return answer;
}

std::string RowPart::missingRanks() const {
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < brought_.size(); ++r) {
    if (!brought_[r]) ranks.push_back(r);
  }
  return fmt::format("{}", fmt::join(ranks, ","));
}

Status RowPart::update(std::size_t t) {
  Table& own = tables_[t];
  std::vector<const RowGradients*> ranks;
  for (const auto& each : brought_) ranks.push_back(&(*each)[t]);
  RowGradients sum =
      sumOverRanks(ranks, static_cast<std::size_t>(own.table.options().dim), own.order);
  divideFloats(sum.sums, static_cast<float>(plan_.samplesOf(version_)));
  const UpdateContext context{version_, own.learning_rate.at(version_)};
  return own.table
      .update({context, static_cast<std::uint32_t>(version_), sum.ids, sum.counts, sum.sums},
              &own.undo)
      .status();
}

void RowPart::takeStep(std::vector<RowAnswer>& out) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    failure_ = update(t);
    if (failure_.ok()) continue;
    for (std::size_t done = t + 1; done-- > 0;) {
      tables_[done].table.revert(tables_[done].undo);
      tables_[done].undo.clear();
    }
    return;
  }
  ++version_;
  has_former_ = true;
  brought_.assign(static_cast<std::size_t>(plan_.takers(version_)), std::nullopt);
  for (const Parked& parked : std::exchange(parked_, {}))
    out.push_back(answer(parked.request, parked.call));
}

RowAnswer RowPart::without(RowAnswer::Code code, const RowRequest& request, CallId call) const {
  return {.call = call,
          .code = code,
          .epoch = request.epoch,
          .version = version_,
          .rows = {},
          .message = {}};
}

RowAnswer RowPart::answer(const RowRequest& request, CallId call) const {
  RowAnswer answer = without(RowAnswer::Code::kRows, request, call);
  answer.version = request.version;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const RowTable& table = tables_[t].table;
    std::vector<float>& rows = answer.rows.emplace_back(
        request.ids[t].size() * static_cast<std::size_t>(table.options().dim));
    if (request.version == version_) {
      table.pull(request.ids[t], rows);
    } else {
      table.pullBefore(tables_[t].undo, request.ids[t], rows);
    }
  }
  return answer;
}

}  // namespace trainyard::runtime::rows
