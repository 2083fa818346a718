#include "runtime/ps/row_link.h"

#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime::ps {

RowLink::RowLink(RowLinkOptions options, ElementType wire)
    : options_(std::move(options)),
      wire_(wire),
      worker_(options_.tables, options_.grid.parts()),
      counts_(options_.tables.size()),
      reader_(options_.tables, options_.grid.parts()) {}

bool RowLink::isRead(std::uint32_t number) const {
  const auto meaning = options_.grid.meaningOf(number);
  return meaning && meaning->reads;
}

RowValues RowLink::valuesOf(const rows::RowWorker& worker) const {
  RowValues values;
  for (std::size_t t = 0; t < options_.tables.size(); ++t) values.push_back(worker.rows(t));
  return values;
}

TurnRows RowLink::beginTurn(const Turn& turn) {
  const StepPlan::Share share{turn.first_position, turn.samples};
  TY_CHECK(key_.share == share && (options_.asynchronous || key_.version == turn.step),
           "a turn begins when its rows are here");
  turn_ = key_;
  return {ids_, valuesOf(worker_)};
}

bool RowLink::bring(const RowValues& gradients) {
  if (turn_ != key_) return false;
  worker_.bring(turn_.version, gradients);
  return true;
}

bool RowLink::bring(const RowSums& sums) {
  if (turn_ != key_) return false;
  worker_.bring(turn_.version, sums.ids, sums.counts, sums.values);
  return true;
}

RowLink::Key RowLink::keyOf(const Send& send) const {
  const v1::ChunkRequestHeader& header = send.header;
  if (options_.asynchronous) return {0, 0, send.rows_wish, send.rows};
  const std::int64_t version = header.pull_only() ? header.version() : header.step() + 1;
  return {header.epoch(), header.rank(), version, send.rows};
}

RowBytes RowLink::bodyOf(Send& send) {
  if (const Key key = keyOf(send); key != key_) {
    key_ = key;
    ++wish_;
    worker_.enter(key.epoch, static_cast<int>(key.rank));
    ids_ = options_.ids(key.share.first, key.share.count);
    worker_.want(key.version, ids_);
    count(ids_, worker_);
  }
  const auto meaning = options_.grid.meaningOf(send.header.chunk());
  return rowBody(worker_.request(meaning->part, send.with_payload), wire_, send.header);
}

void RowLink::count(const RowIds& ids, const rows::RowWorker& worker) {
  for (std::size_t t = 0; t < counts_.size(); ++t) {
    counts_[t].occurrences += ids[t].size();
    for (std::size_t part = 0; part < options_.grid.parts().size(); ++part)
      counts_[t].distinct += worker.wantedOf(part, t);
  }
}

void RowLink::fillReport(v1::RuntimeReport& report) const {
  for (std::size_t t = 0; t < counts_.size(); ++t) {
    v1::TableWork& work = *report.add_tables();
    work.set_table(options_.tables[t].name);
    work.set_occurrences(counts_[t].occurrences);
    work.set_distinct(counts_[t].distinct);
  }
}

void RowLink::beginRead(std::int64_t version, const RowIds& ids, bool of_step) {
  ++read_wish_;
  reader_.enter(reader_.epoch(), 0);
  reader_.want(version, ids);
  if (of_step) count(ids, reader_);
}

RowBytes RowLink::readBodyOf(std::size_t part, Send& send) {
  send.chunk = options_.grid.readNumberOf(part);
  send.header.set_chunk(send.chunk);
  return rowBody(reader_.request(part, false), wire_, send.header);
}

RowValues RowLink::readRows() const {
  return valuesOf(reader_);
}

std::size_t RowLink::elementsOf(std::uint32_t number) const {
  const auto meaning = options_.grid.meaningOf(number);
  const rows::RowWorker& worker = meaning->reads ? reader_ : worker_;
  std::size_t elements = 0;
  for (std::size_t t = 0; t < options_.tables.size(); ++t)
    elements += worker.wantedOf(meaning->part, t) * options_.tables[t].dim;
  return elements;
}

std::span<float> RowLink::target(std::uint32_t number, std::size_t elements) {
  Arriving& arriving = arriving_[number];
  arriving.wish = wishOf(isRead(number));
  arriving.floats.resize(elements);
  return arriving.floats;
}

void RowLink::stored(std::uint32_t number, const v1::ChunkReplyHeader& header) {
  const Arriving& arriving = arriving_[number];
  const auto meaning = options_.grid.meaningOf(number);
  if (arriving.wish != wishOf(meaning->reads)) return;  // other rows are asked for meanwhile
  rows::RowWorker& worker = meaning->reads ? reader_ : worker_;
  rows::RowAnswer answer;
  // Whether it is of this epoch, and the newest request's, is the machine's to know.
  answer.epoch = worker.epoch();
  const bool any_version = options_.asynchronous || worker.version() == rows::kNewestRows;
  answer.version = any_version ? worker.version() : header.version();
  auto at = arriving.floats.begin();
  for (std::size_t t = 0; t < options_.tables.size(); ++t) {
    const auto length =
        static_cast<std::ptrdiff_t>(worker.wantedOf(meaning->part, t) * options_.tables[t].dim);
    answer.rows.emplace_back(at, at + length);
    at += length;
  }
  worker.onAnswer(meaning->part, answer);
}

}  // namespace trainyard::runtime::ps
