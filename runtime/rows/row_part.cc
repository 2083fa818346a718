#include "runtime/rows/row_part.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/core/check.h"
#include "fmt/format.h"
#include "runtime/rows/row_copy.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::rows {
namespace {

// Bytes of updates that are kept for who copies a part, however few rows it has.
constexpr std::size_t kLeastLog = std::size_t{4} << 20;

}  // namespace

RowPart::RowPart(const std::vector<RowTableConfig>& tables, PartitionRange range) : range_(range) {
  tables_.reserve(tables.size());
  for (const RowTableConfig& config : tables) {
    tables_.push_back(
        {RowTable(config.options, *config.optimizer, range), RowOrder(saltOf(config.options.name)),
         config.learning_rate, RowUndo(),
         RowMeter(saltOf(config.options.name) + static_cast<std::uint64_t>(range.first)),
         config.options.admit_after > 1 ? std::make_unique<RowAdmission>(config.options, range)
                                        : nullptr});
  }
}

void RowPart::Table::revert() {
  table.revert(undo);
  if (admission != nullptr) admission->revert();
  undo.clear();
}

void RowPart::Table::forgetFormer() {
  undo.clear();
  if (admission != nullptr) admission->forgetFormer();
}

const RowTable* RowPart::counted(std::size_t t) const {
  const RowAdmission* admission = tables_[t].admission.get();
  return admission == nullptr ? nullptr : &admission->counted();
}

std::size_t RowPart::stores() const {
  std::size_t stores = tables_.size();
  for (std::size_t t = 0; t < tables_.size(); ++t) stores += counted(t) != nullptr;
  return stores;
}

const RowTable& RowPart::store(std::size_t number) const {
  if (number < tables_.size()) return tables_[number].table;
  std::size_t next = tables_.size();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (counted(t) != nullptr && next++ == number) return *counted(t);
  }
  TY_CHECK(false, "stores are numbered up to stores()");
  return tables_[0].table;
}

void RowPart::setVersion(std::int64_t version) {
  TY_CHECK(epoch_ < 0, "rows are loaded between epochs");
  version_ = version;
}

void RowPart::takeMeters(RowPart& former) {
  for (std::size_t t = 0; t < tables_.size(); ++t)
    std::swap(tables_[t].meter, former.tables_[t].meter);
}

void RowPart::countPushed(const std::vector<RowGradients>& gradients) {
  for (std::size_t t = 0; t < tables_.size(); ++t) tables_[t].meter.pushed(gradients[t].ids.size());
}

void RowPart::onRequest(RowRequest request, CallId call, std::vector<RowAnswer>& out) {
  if (request.epoch != epoch_) {
    out.push_back(without(RowAnswer::Code::kEpochOver, request, call));
    return;
  }
  Status valid = check(request);
  if (valid.ok()) valid = take(request, call, out);
  if (valid.ok()) return;
  out.push_back(without(RowAnswer::Code::kRefused, request, call));
  out.back().message = std::string(valid.message());
}

Status RowPart::check(const RowRequest& request) const {
  if (request.ids.size() != tables_.size()) {
    return absl::InvalidArgumentError(fmt::format("rows of {} tables are asked for, there are {}",
                                                  request.ids.size(), tables_.size()));
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    TY_RETURN_IF_ERROR(
        checkIds(request.ids[t], tables_[t].table.options().name, tables_[t].order, range_));
  }
  if (!request.gradients) return absl::OkStatus();
  if (request.push.samples <= 0) return absl::InvalidArgumentError("gradients of no samples");
  return checkGradients(*request.gradients);
}

Status RowPart::checkGradients(const std::vector<RowGradients>& gradients) const {
  if (gradients.size() != tables_.size()) {
    return absl::InvalidArgumentError(
        fmt::format("gradients of {} tables, there are {}", gradients.size(), tables_.size()));
  }
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const RowTableOptions& options = tables_[t].table.options();
    TY_RETURN_IF_ERROR(rows::checkGradients(gradients[t], options.name,
                                            static_cast<std::size_t>(options.dim), tables_[t].order,
                                            range_));
  }
  return absl::OkStatus();
}

std::vector<RowGradients> RowPart::meanOf(
    std::int64_t samples, std::span<const std::vector<RowGradients>* const> sources) const {
  std::vector<RowGradients> means;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    std::vector<const RowGradients*> of_table;
    of_table.reserve(sources.size());
    for (const std::vector<RowGradients>* source : sources) of_table.push_back(&(*source)[t]);
    means.push_back(sumOverRanks(of_table, static_cast<std::size_t>(tables_[t].table.options().dim),
                                 tables_[t].order));
    divideFloats(means.back().sums, static_cast<float>(samples));
  }
  return means;
}

Status RowPart::updateTable(std::size_t t, std::int64_t step, const RowGradients& mean) {
  Table& own = tables_[t];
  own.forgetFormer();
  const RowGradients* taken = &mean;
  RowGradients admitted;
  if (own.admission != nullptr) {
    // Of what is only counted, too.
    TY_RETURN_IF_ERROR(own.table.checkFinite(mean.ids, mean.sums));
    admitted = mean;
    own.admission->filter(own.table, step, admitted);
    taken = &admitted;
  }
  const UpdateContext context{step, own.learning_rate.at(step)};
  TY_ASSIGN_OR_RETURN(const RowUpdateResult result,
                      own.table.update({context, static_cast<std::uint32_t>(step), taken->ids,
                                        taken->counts, taken->sums},
                                       &own.undo));
  own.meter.updated(result);
  return absl::OkStatus();
}

bool RowPart::update(std::int64_t step, const std::vector<RowGradients>& means) {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    failure_ = updateTable(t, step, means[t]);
    if (failure_.ok()) continue;
    for (std::size_t done = t + 1; done-- > 0;) tables_[done].revert();
    return false;
  }
  ++version_;
  evict(step);
  if (keeps_gone_) noteGone(step);
  noteSnapshots();
  return true;
}

// What has gone is last in an undo.
void RowPart::noteGone(std::int64_t step) {
  gone_.resize(stores());
  for (std::size_t s = 0; s < gone_.size(); ++s) {
    const std::span<const RowUndo::Entry> entries = undoOf(s).entries();
    for (std::size_t e = entries.size(); e-- > 0 && entries[e].evicted;) {
      gone_[s].ids.push_back(entries[e].id);
      gone_[s].steps.push_back(static_cast<std::uint32_t>(step));
    }
  }
}

std::shared_ptr<PartSnapshot> RowPart::snapshot(std::optional<std::int64_t> since) {
  auto taken = std::make_shared<PartSnapshot>(*this, since);
  snapshots_.push_back(taken);
  return taken;
}

void RowPart::noteSnapshots() {
  std::erase_if(snapshots_, [](const auto& snapshot) { return snapshot.expired(); });
  for (const auto& weak : snapshots_) {
    const std::shared_ptr<PartSnapshot> snapshot = weak.lock();
    for (std::size_t s = 0; snapshot != nullptr && s < stores(); ++s) snapshot->note(s, undoOf(s));
  }
}

std::vector<std::uint64_t> RowPart::goneSince(std::size_t store, std::int64_t since) const {
  if (store >= gone_.size()) return {};
  std::set<std::uint64_t> told;
  for (std::size_t i = 0; i < gone_[store].ids.size(); ++i) {
    const bool before = stepsAfter(gone_[store].steps[i], since) < 0;
    // One that has come again is among the rows.
    if (!before && !this->store(store).has(gone_[store].ids[i])) told.insert(gone_[store].ids[i]);
  }
  return {told.begin(), told.end()};
}

void RowPart::forgetGoneBefore(std::int64_t version) {
  for (Gone& gone : gone_) {
    const auto first = std::ranges::find_if(
        gone.steps, [&](std::uint32_t step) { return stepsAfter(step, version) >= 0; });
    const auto old = first - gone.steps.begin();
    gone.steps.erase(gone.steps.begin(), first);
    gone.ids.erase(gone.ids.begin(), gone.ids.begin() + old);
  }
}

void RowPart::announce(std::shared_ptr<const PartUpdate> update) {
  if (log_.followed()) log_.add(update, std::max(kLeastLog, bytes()));
  if (!guarded_) return;
  unconfirmed_ = true;
  to_send_ = std::move(update);
}

// Of all stores.
std::size_t RowPart::bytes() const {
  std::size_t bytes = 0;
  for (std::size_t s = 0; s < stores(); ++s) bytes += static_cast<std::size_t>(store(s).bytes());
  return bytes;
}

GivenPart RowPart::give(std::int64_t known) const {
  Outline outline = this->outline(known);
  if (!outline.stores) return std::move(outline.given);
  PartSnapshot rows(*this, std::nullopt);
  outline.given.stores = beginStores(outline.former, rows);
  for (TableRows& of : outline.given.stores) {
    for (int partition = range_.first; partition < range_.last; ++partition) {
      appendBatch(rows.read(*this, of.table, partition),
                  static_cast<std::size_t>(store(of.table).options().dim), of);
    }
  }
  return std::move(outline.given);
}

RowPart::ToFollower RowPart::giveFollower(int follower, std::uint64_t mark, std::uint64_t life) {
  if (auto updates = log_.since(follower, mark)) {
    GivenPart given;
    given.point = point();
    given.version = version_;
    given.mark = log_.mark();
    given.updates = *std::move(updates);
    return {std::move(given), nullptr};
  }
  Outline all = outline(/*known=*/-1);
  ToFollower whole{std::move(all.given), snapshot()};
  whole.given.stores = beginStores(all.former, *whole.rows);
  whole.given.mark = log_.begin(follower, life);
  return whole;
}

Status RowPart::follow(GivenPart given) {
  if (!given.stores.empty()) return takeOver(std::move(given));
  for (std::shared_ptr<const PartUpdate>& update : given.updates) {
    if (takeAsReplica(std::move(update))) continue;
    return failure_.ok() ? absl::InvalidArgumentError("an update behind others") : failure_;
  }
  if (point() != given.point) settle(given.version);
  if (point() == given.point && version_ == given.version) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("partitions {} to {}: updates have led to version {}, not {}", range_.first,
                  range_.last - 1, version_, given.version));
}

void RowPart::onReplicated(std::int64_t point, std::vector<RowAnswer>& out) {
  if (epoch_ < 0 || !unconfirmed_ || point != this->point() - 1) return;
  unconfirmed_ = false;
  confirmed(out);
}

const RowUndo& RowPart::undoOf(std::size_t store) const {
  if (store < tables_.size()) return tables_[store].undo;
  for (const Table& own : tables_) {
    if (own.admission != nullptr && &own.admission->counted() == &this->store(store))
      return own.admission->undo();
  }
  TY_CHECK(false, "stores are numbered up to stores()");
  return tables_[0].undo;
}

std::vector<TableRows> RowPart::beginStores(bool former, PartSnapshot& rows) const {
  std::vector<TableRows> begun;
  for (std::size_t s = 0; s < stores(); ++s) {
    if (former) rows.note(s, undoOf(s));
    TableRows& of = begun.emplace_back(roomForRows(store(s), s, range_, store(s).size()));
    if (s >= gone_.size()) continue;
    of.gone = gone_[s].ids;
    of.gone_steps = gone_[s].steps;
    // What the newest step has taken away it takes away there too.
    while (former && !of.gone.empty() &&
           of.gone_steps.back() == static_cast<std::uint32_t>(version_ - 1)) {
      of.gone.pop_back();
      of.gone_steps.pop_back();
    }
  }
  return begun;
}

Status RowPart::loadStores(const std::vector<TableRows>& given) {
  if (given.size() != stores()) {
    return absl::InvalidArgumentError(
        fmt::format("{} tables of rows, the job has {}", given.size(), stores()));
  }
  for (std::size_t s = 0; s < given.size(); ++s) {
    TY_RETURN_IF_ERROR(checkRows(given[s], store(s)));
    loadRows(given[s], store(s));
    gone_.resize(stores());
    gone_[s] = {given[s].gone, given[s].gone_steps};
  }
  return absl::OkStatus();
}

void RowPart::evict(std::int64_t step) {
  for (Table& own : tables_) {
    own.meter.evicted(own.table.evict(version_, static_cast<std::uint32_t>(step), own.undo));
    if (own.admission != nullptr) own.admission->evict(version_, step);
  }
}

RowAnswer RowPart::without(RowAnswer::Code code, const RowRequest& request, CallId call) const {
  return {.call = call,
          .code = code,
          .epoch = request.epoch,
          .version = version_,
          .rows = {},
          .message = {}};
}

RowAnswer RowPart::answer(const RowRequest& request, CallId call, std::int64_t version) {
  RowAnswer answer = without(RowAnswer::Code::kRows, request, call);
  answer.version = version;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const RowTable& table = tables_[t].table;
    tables_[t].meter.pulled(request.ids[t]);
    std::vector<float>& rows = answer.rows.emplace_back(
        request.ids[t].size() * static_cast<std::size_t>(table.options().dim));
    if (version == version_) {
      table.pull(request.ids[t], rows);
    } else {
      table.pullBefore(tables_[t].undo, request.ids[t], rows);
    }
  }
  return answer;
}

}  // namespace trainyard::runtime::rows
