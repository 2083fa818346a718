#include "runtime/ps/row_shard.h"

#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/ps/protocol.h"
#include "runtime/ps/row_body.h"
#include "runtime/rows/row_copy.h"
#include "runtime/rows/row_pushes.h"
#include "runtime/rows/row_steps.h"

namespace trainyard::runtime::ps {
namespace {

std::shared_ptr<const Weights> joined(const std::vector<std::vector<float>>& tables) {
  std::size_t floats = 0;
  for (const std::vector<float>& rows : tables) floats += rows.size();
  auto all = std::make_shared<Weights>();
  all->reserve(floats);
  for (const std::vector<float>& rows : tables) all->insert(all->end(), rows.begin(), rows.end());
  return all;
}

// Of a table's rows, and of ids that have none yet.
std::uint64_t bytesOf(const rows::RowPart& part, std::size_t t) {
  const rows::RowTable* counted = part.counted(t);
  return static_cast<std::uint64_t>(part.table(t).bytes() +
                                    (counted == nullptr ? 0 : counted->bytes()));
}

// What a worker makes of it is to ask again; the message is for people.
v1::ChunkCode codeOf(rows::RowAnswer::Code code) {
  switch (code) {
    case rows::RowAnswer::Code::kRows:
      return v1::CHUNK_OK;
    case rows::RowAnswer::Code::kEpochOver:
      return v1::CHUNK_WRONG_EPOCH;
    case rows::RowAnswer::Code::kAskedAgain:
    case rows::RowAnswer::Code::kNotReady:
      return v1::CHUNK_NOT_READY;
    case rows::RowAnswer::Code::kRefused:
      return v1::CHUNK_GONE;
  }
  return v1::CHUNK_UNSPECIFIED;
}

}  // namespace

RowShard::RowShard(std::vector<rows::RowTableConfig> tables, RowGrid grid, int ps, ElementType wire,
                   std::optional<int> aggregate, bool deltas)
    : tables_(std::move(tables)),
      grid_(std::move(grid)),
      ps_(ps),
      wire_(wire),
      aggregate_(aggregate),
      deltas_(deltas) {
  for (const rows::RowTableConfig& table : tables_)
    dims_.push_back(static_cast<std::size_t>(table.options.dim));
  held_.resize(grid_.parts().size());
  assign(grid_.psOfPart());
}

std::unique_ptr<rows::RowPart> RowShard::makePart(rows::PartitionRange range) const {
  if (aggregate_) return std::make_unique<rows::RowPushes>(tables_, range, *aggregate_);
  auto steps = std::make_unique<rows::RowSteps>(tables_, range);
  if (deltas_) steps->keepGone();
  return steps;
}

std::optional<std::size_t> RowShard::find(std::uint32_t number) const {
  const auto meaning = grid_.meaningOf(number);
  if (!meaning) return std::nullopt;
  const auto at = std::ranges::lower_bound(own_, meaning->part);
  if (at == own_.end() || *at != meaning->part) return std::nullopt;
  return static_cast<std::size_t>(at - own_.begin());
}

bool RowShard::has(std::uint32_t number) const {
  return grid_.meaningOf(number).has_value();
}

ChunkAnswer RowShard::refuse(CallId call, std::uint32_t number, std::string why) const {
  ChunkAnswer answer;
  answer.call = call;
  answer.header.set_code(v1::CHUNK_WRONG_SERVER);
  answer.header.set_chunk(number);
  answer.header.set_message(std::move(why));
  return answer;
}

void RowShard::answer(Part& part, std::uint32_t number, std::vector<rows::RowAnswer> answers,
                      std::vector<ChunkAnswer>& out) {
  for (rows::RowAnswer& given : answers) {
    part.waiting.erase(given.call);
    ChunkAnswer& answer = out.emplace_back();
    answer.call = given.call;
    answer.header.set_code(codeOf(given.code));
    answer.header.set_chunk(number);
    answer.header.set_epoch(given.epoch);
    answer.header.set_version(given.version);
    answer.header.set_message(given.code == rows::RowAnswer::Code::kAskedAgain
                                  ? std::string(kAskedAgain)
                                  : std::move(given.message));
    if (given.code == rows::RowAnswer::Code::kRows) answer.payload = joined(given.rows);
  }
}

void RowShard::onRequest(const v1::ChunkRequestHeader& header, std::span<const std::byte> body,
                         CallId call, TimePoint now, std::vector<ChunkAnswer>& out) {
  const std::optional<std::size_t> at = find(header.chunk());
  if (!at) {
    return out.push_back(refuse(call, header.chunk(),
                                fmt::format("part {} of the tables is not here", header.chunk())));
  }
  StatusOr<rows::RowRequest> request = rowRequestOf(header, body, dims_, wire_);
  if (!request.ok()) {
    return out.push_back(
        refuse(call, header.chunk(), std::string(fromAbsl(request.status().message()))));
  }
  Part& part = own(*at);
  std::vector<rows::RowAnswer> answers;
  const std::lock_guard lock(part.mutex);
  look_(*at, *part.rows);
  part.waiting.emplace(call, now);
  part.rows->onRequest(*std::move(request), call, answers);
  collectUpdate(part);
  if (part.version.exchange(part.rows->told()) != part.rows->told()) look_(*at, *part.rows);
  answer(part, header.chunk(), std::move(answers), out);
}

void RowShard::withPart(std::size_t at,
                        const std::function<void(const rows::RowPart&)>& use) const {
  Part& part = own(at);
  const std::lock_guard lock(part.mutex);
  use(*part.rows);
}

void RowShard::onCancelled(CallId call) {
  for (const std::size_t p : own_) {
    Part& part = *held_[p];
    const std::lock_guard lock(part.mutex);
    if (part.waiting.erase(call) > 0) part.rows->cancel(call);
  }
}

void RowShard::giveUp(TimePoint since, std::vector<ChunkAnswer>& out) {
  for (const std::size_t p : own_) {
    Part& part = *held_[p];
    const std::lock_guard lock(part.mutex);
    std::vector<rows::RowAnswer> late;
    for (const auto& [call, began] : part.waiting) {
      if (began > since) continue;
      if (auto given_up = part.rows->giveUp(call)) late.push_back(*std::move(given_up));
    }
    answer(part, part.number, std::move(late), out);
  }
}

void RowShard::seal(std::vector<ChunkAnswer>& out) {
  for (const std::size_t p : own_) {
    Part& part = *held_[p];
    const std::lock_guard lock(part.mutex);
    std::vector<rows::RowAnswer> ended;
    part.rows->seal(ended);
    if (part.version >= 0) part.version = part.rows->told();
    answer(part, part.number, std::move(ended), out);
    part.waiting.clear();
  }
  takeUpdates();
}

Status RowShard::open(std::int64_t epoch, const StepPlan& plan) {
  for (std::size_t p = 0; p < held_.size(); ++p) {
    if (!isWanted(p)) continue;
    Part& part = *held_[p];
    const std::lock_guard lock(part.mutex);
    if (part.version < 0) {
      return absl::FailedPreconditionError(fmt::format("part {} of the tables is not here", p));
    }
    part.rows->setGuarded(isGuarded(p));
    TY_RETURN_IF_ERROR(isOwn(p) ? part.rows->open(epoch, plan) : part.rows->canBegin(plan));
  }
  epoch_ = epoch;
  return absl::OkStatus();
}

void RowShard::clear(std::int64_t version) {
  dropUnwanted();
  for (const auto& part : held_) {
    if (part == nullptr) continue;
    const std::lock_guard lock(part->mutex);
    std::unique_ptr<rows::RowPart> empty = makePart(part->rows->range());
    empty->takeMeters(*part->rows);
    part->rows = std::move(empty);
    part->rows->setVersion(version);
    part->version = version;
  }
}

void RowShard::load(const TableRows& rows) {
  for (const auto& part : held_) {
    if (part == nullptr) continue;
    const std::lock_guard lock(part->mutex);
    rows::loadRows(rows, part->rows->store(rows.table));
  }
}

void RowShard::forgetGoneBefore(std::int64_t version) {
  for (const auto& part : held_) {
    if (part == nullptr) continue;
    const std::lock_guard lock(part->mutex);
    part->rows->forgetGoneBefore(version);
  }
}

void RowShard::settle(std::int64_t version) {
  for (const std::size_t p : own_) {
    Part& part = *held_[p];
    const std::lock_guard lock(part.mutex);
    part.rows->settle(version);
    part.version = version;
  }
}

void RowShard::addPushed(NumberSet& tickets, NumberSet& samples) const {
  for (const auto& part : held_) {
    if (part == nullptr || part->version < 0) continue;
    const std::lock_guard lock(part->mutex);
    const auto& pushes = static_cast<const rows::RowPushes&>(*part->rows);
    tickets.add(pushes.tickets());
    samples.add(pushes.samples());
  }
}

std::vector<rows::PartitionRange> RowShard::ranges() const {
  std::vector<rows::PartitionRange> ranges;
  for (std::size_t p = 0; p < held_.size(); ++p) {
    if (!isWanted(p)) continue;
    const rows::PartitionRange range = grid_.parts()[p];
    if (!ranges.empty() && ranges.back().last == range.first) {
      ranges.back().last = range.last;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

std::int64_t RowShard::lowestVersion() const {
  std::int64_t lowest = -1;
  for (const std::size_t p : own_) {
    const std::int64_t version = held_[p]->version;
    if (version < 0) continue;  // it is another server's as long as it is not here
    lowest = lowest < 0 ? version : std::min(lowest, version);
  }
  return lowest;
}

std::int64_t RowShard::highestVersion() const {
  std::int64_t highest = -1;
  for (const std::size_t p : own_) highest = std::max(highest, held_[p]->version.load());
  return highest;
}

std::optional<v1::Abort> RowShard::abort() const {
  for (const std::size_t p : own_) {
    Part& part = *held_[p];
    const std::lock_guard lock(part.mutex);
    if (part.rows->failure().ok()) continue;
    v1::Abort abort;
    abort.set_step(part.rows->version());
    abort.set_reason(std::string(fromAbsl(part.rows->failure().message())));
    abort.set_table_full(absl::IsResourceExhausted(part.rows->failure()));
    return abort;
  }
  return std::nullopt;
}

void RowShard::fillTables(v1::ShardTable& table) const {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    v1::TableRows* held = table.add_tables();
    held->set_table(tables_[t].options.name);
    for (std::size_t p = 0; p < held_.size(); ++p) {
      if (!isWanted(p)) continue;
      const std::lock_guard lock(held_[p]->mutex);
      const rows::RowPart& part = *held_[p]->rows;
      if (isOwn(p)) {
        held->set_rows(held->rows() + part.table(t).size());
        held->set_bytes(held->bytes() + bytesOf(part, t));
      } else {
        held->set_replica_rows(held->replica_rows() + part.table(t).size());
        held->set_replica_bytes(held->replica_bytes() + bytesOf(part, t));
      }
    }
  }
}

void RowShard::fillReport(v1::RuntimeReport& report) const {
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    v1::TableWork& work = *report.add_tables();
    work.set_table(tables_[t].options.name);
    rows::FrequentIds hot(rows::RowMeter::kHotIds);
    for (const std::size_t p : own_) {
      const Part* part = held_[p].get();
      const std::lock_guard lock(held_[p]->mutex);
      const rows::RowTable& table = part->rows->table(t);
      const rows::RowCounts& counts = part->rows->meter(t).counts();
      work.set_rows(work.rows() + table.size());
      work.set_bytes(work.bytes() + bytesOf(*part->rows, t));
      if (const rows::RowTable* counted = part->rows->counted(t))
        work.set_counted(work.counted() + static_cast<std::uint64_t>(counted->size()));
      work.set_created(work.created() + counts.created);
      work.set_refused(work.refused() + counts.refused);
      work.set_evicted(work.evicted() + counts.evicted);
      work.set_pulled(work.pulled() + counts.pulled);
      work.set_pushed(work.pushed() + counts.pushed);
      hot.add(part->rows->meter(t).hot());
    }
    work.set_hot(hot.share());
  }
}

}  // namespace trainyard::runtime::ps
