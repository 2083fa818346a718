// The job's tables: what the trainer asks beside a step's variables.
#include <algorithm>
#include <utility>

#include "runtime/ps/ps_synchronizer.h"

namespace trainyard::runtime::ps {
namespace {

constexpr Duration kReadAgain = std::chrono::milliseconds(50);

}  // namespace

void PsSynchronizer::fillTraffic(v1::RuntimeReport& report) const {
  traffic_.fill(report);
  std::lock_guard lock(mutex_);
  if (rows_ != nullptr) rows_->fillReport(report);
}

TurnRows PsSynchronizer::rows() {
  std::lock_guard lock(mutex_);
  return std::exchange(turn_rows_, {});
}

// Not where the machine has given up the step.
void PsSynchronizer::pushRows(RowValues gradients) {
  {
    std::lock_guard lock(mutex_);
    if (!rows_->bring(gradients)) return;
    rowsReady();
  }
  pump();
}

void PsSynchronizer::pushRows(const RowSums& sums) {
  {
    std::lock_guard lock(mutex_);
    if (!rows_->bring(sums)) return;
    rowsReady();
  }
  pump();
}

void PsSynchronizer::rowsReady() {
  for (std::size_t part = 0; part < rows_->grid().parts().size(); ++part)
    machine_->gradientReady(rows_->grid().numberOf(part));
}

// Requests that are due. CANCELLED: the turn is void.
StatusOr<std::vector<PsSynchronizer::RowRead>> PsSynchronizer::takeReads() {
  std::vector<RowRead> reads;
  const TimePoint now = clock_.now();
  for (std::size_t part = 0; part < reading_.size(); ++part) {
    Reading& reading = reading_[part];
    if (reading.done || !reading.due || *reading.due > now) continue;
    TY_ASSIGN_OR_RETURN(std::optional<Send> send, machine_->readRows(part));
    if (!send) {
      reading.due = now + kReadAgain;
      continue;
    }
    if (reading_newest_) send->header.set_version(rows::kNewestRows);
    RowRead& read = reads.emplace_back();
    read.body = rows_->readBodyOf(part, *send);
    read.send = *std::move(send);
    read.send.attempt = reading.attempt = ++read_attempts_;
    reading.due.reset();
  }
  return reads;
}

void PsSynchronizer::sendReads(const std::vector<RowRead>& reads) {
  for (const RowRead& read : reads) {
    const auto sent = client_->sendBytes(read.send.ps, read.send.attempt, read.send.header,
                                         {read.body.span(), read.body.memory});
    if (sent.ok()) {
      traffic_.transmitted(static_cast<std::uint32_t>(read.send.ps), *sent);
      continue;
    }
    ChunkClient::Reply refused;
    refused.chunk = read.send.chunk;
    refused.attempt = read.send.attempt;
    onReadEnd(refused, false);
  }
}

void PsSynchronizer::beginRead(const RowIds& ids, bool newest) {
  const bool of_step = machine_->stepState() != WorkerMachine::StepState::kNone;
  rows_->beginRead(newest ? rows::kNewestRows : machine_->version(), ids, of_step);
  reading_.assign(rows_->grid().parts().size(), {0, false, TimePoint{}});
  reading_newest_ = newest;
  rows_gone_ = false;
}

StatusOr<RowValues> PsSynchronizer::readRows(const RowIds& ids) {
  {
    std::lock_guard lock(mutex_);
    beginRead(ids, /*newest=*/false);
  }
  const TimePoint limit = clock_.now() + options_.patience;
  for (;;) {
    std::vector<RowRead> reads;
    {
      std::unique_lock lock(mutex_);
      if (rows_->readComplete()) return rows_->readRows();
      // With backup workers others go on while one evaluates, on the weights that he has.
      if (rows_gone_ && machine_->stepState() == WorkerMachine::StepState::kNone)
        beginRead(ids, /*newest=*/true);
      if (clock_.now() >= limit) return absl::DeadlineExceededError("no rows for too long");
      TY_ASSIGN_OR_RETURN(reads, takeReads());
      if (reads.empty()) {
        changed_.wait_for(lock, std::chrono::milliseconds(20));
        continue;
      }
    }
    sendReads(reads);
  }
}

// Where the rows go; nothing: asked again later.
std::vector<std::span<float>> PsSynchronizer::onReadReply(const ChunkClient::Reply& reply) {
  {
    std::lock_guard lock(mutex_);
    const Reading& reading = reading_[rows_->grid().meaningOf(reply.chunk)->part];
    const bool wanted = !reading.done && reading.attempt == reply.attempt;
    const bool fits = reply.status.ok() && reply.header.code() == v1::CHUNK_OK &&
                      reply.elements == rows_->elementsOf(reply.chunk);
    if (wanted && fits) return {rows_->target(reply.chunk, reply.elements)};
  }
  onReadEnd(reply, false);
  pump();
  return {};
}

void PsSynchronizer::onReadEnd(const ChunkClient::Reply& reply, bool stored) {
  {
    std::lock_guard lock(mutex_);
    Reading& reading = reading_[rows_->grid().meaningOf(reply.chunk)->part];
    if (reading.done || reading.attempt != reply.attempt) return;
    if (stored) {
      reading.done = true;
      rows_->stored(reply.chunk, reply.header);
    } else {
      reading.due = clock_.now() + kReadAgain;
      rows_gone_ = reply.status.ok() && reply.header.code() == v1::CHUNK_GONE;
      if (rows_gone_) machine_->onRowsGone();
    }
  }
  changed_.notify_all();
}

}  // namespace trainyard::runtime::ps
