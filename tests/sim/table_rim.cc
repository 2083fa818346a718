// What stands around the rows of tables: where a worker's answers go, what servers load and write.
#include <algorithm>
#include <span>

#include "fmt/format.h"
#include "runtime/checkpoint/delta_rows.h"
#include "tests/sim/nodes.h"

namespace trainyard::sim {

void World::beginRows(WorkerNode& node) {
  const std::int64_t step = node.turn->step;
  const runtime::StepPlan::Share share{node.turn->first_position, node.turn->samples};
  runtime::TurnRows came = node.rows->beginTurn(*node.turn);
  node.lacks_rows = came.ids != runtime::rows::rowIdsAt(share.first, share.count);
  node.turn_rows = std::move(came.values);
  if (node.lacks_rows || !sharesSteps() || !upToDate(node, step)) return;
  if (node.turn_rows != reference_rows_[static_cast<std::size_t>(step)].at(share))
    problem(fmt::format("worker {} starts step {} with wrong rows", node.index, step));
}

void World::bringRows(WorkerNode& node) {
  const runtime::StepPlan::Share share{node.turn->first_position, node.turn->samples};
  const runtime::RowValues gradients = runtime::rows::rowGradients(share, node.turn_rows);
  runtime::RowSums sums{runtime::rows::rowIdsAt(share.first, share.count), {}, gradients};
  sums.counts.resize(sums.ids.size());
  if (!(node.lacks_rows ? node.rows->bring(sums) : node.rows->bring(gradients))) return;
  if (!sharesSteps() && !node.void_rows) pushed_rows_.bring(share, gradients);
  for (std::size_t part = 0; part < grid_.parts().size(); ++part)
    node.machine->gradientReady(grid_.numberOf(part));
}

void World::onRowReply(WorkerNode& node, const runtime::ps::Send& send, const Status& transport,
                       const v1::ChunkReplyHeader& header,
                       const std::shared_ptr<const std::vector<float>>& payload) {
  if (node.rows->isRead(send.chunk)) return onReadReply(node, send, transport, header, payload);
  const std::size_t elements = payload == nullptr ? 0 : payload->size();
  Status status = transport;
  if (status.ok() && header.code() == v1::CHUNK_OK && elements != node.rows->elementsOf(send.chunk))
    status = absl::InternalError("other rows");
  if (node.machine->onReply(send.chunk, send.attempt, status, header, now_)) {
    const std::span<float> target = node.rows->target(send.chunk, elements);
    std::copy_n(payload->begin(), elements / 2, target.begin());
    storeLater(node, send, [send, header, payload](WorkerNode& alive) {
      std::ranges::copy(*payload, alive.rows->target(send.chunk, payload->size()).begin());
      alive.rows->stored(send.chunk, header);
    });
  }
  trainer(node);
  pump(node);
}

std::vector<runtime::TableRows> World::rowsOf(const runtime::Manifest& manifest) const {
  std::vector<runtime::TableRows> rows;
  for (const auto& file : manifest.files)
    std::ranges::move(wholeRowsOf(files_.at(file.name)), std::back_inserter(rows));
  return rows;
}

// Pieces [begin, end), once; as the file's writer does, while steps are taken. The end.
std::size_t World::readRows(runtime::ps::Snapshot& snapshot, std::size_t begin, std::size_t end) {
  for (std::size_t piece = begin; piece < end; ++piece) {
    snapshot.tables[piece].read = [rows = snapshot.tables[piece].read()] { return rows; };
  }
  return end;
}

std::vector<runtime::TableRows> World::wholeRowsOf(const runtime::ps::Snapshot& snapshot) const {
  std::vector<runtime::TableRows> own;
  for (const runtime::LateRows& piece : snapshot.tables) own.push_back(piece.read());
  if (!snapshot.base.any()) return own;
  const auto base = std::ranges::find_if(
      manifests_, [&](const auto& one) { return one.fileName() == snapshot.base.manifest; });
  const std::vector<runtime::TableRows> before = rowsOf(*base);
  std::vector<runtime::TableRows> whole;
  for (const runtime::TableRows& delta : own) {
    std::vector<runtime::TableRows> of_table;
    std::ranges::copy_if(before, std::back_inserter(of_table),
                         [&](const auto& rows) { return rows.table == delta.table; });
    runtime::TableRows broken_delta = delta;
    if (broken(Mutation::kGoneForgotten)) broken_delta.gone.clear();
    whole.push_back(runtime::mergeRows(of_table, broken_delta));
  }
  return whole;
}

void World::checkRows(const runtime::ps::Snapshot& snapshot) {
  if (!sharesSteps()) return;
  for (const runtime::TableRows& copy : wholeRowsOf(snapshot)) {
    if (!reference_rows_[static_cast<std::size_t>(snapshot.version)].equals(copy))
      problem(
          fmt::format("rows in a snapshot of step {} differ from the reference", snapshot.version));
  }
}

// Each push is in the last version's rows once: all that were finished, and of those that a death
// has cut short perhaps some parts.
void World::checkPushedRows() {
  if (tables_ == nullptr || result_.outcome != "succeeded") return;
  // What was lost is read again.
  if (result_.kills > result_.worker_kills && !config_.replicate_pushes) return;
  for (const auto& manifest : manifests_) {
    if (manifest.step != plan_.steps) continue;
    const std::vector<runtime::TableRows> rows = rowsOf(manifest);
    const int pushes =
        config_.tickets ? config_.tickets->aggregate : config_.workers - config_.backup_workers;
    // A push that a death has cut short makes later updates of other pushes.
    const bool whole = result_.kills + result_.freezes + result_.scalings == 0 || pushes == 1;
    const int aggregate = whole ? pushes : 0;
    if (const std::string wrong = pushed_rows_.compare(rows, aggregate); !wrong.empty())
      problem(wrong);
    ++result_.pushed_rows_checked;
  }
}

// What the files hold.
void World::loadRows(PsNode& node, const v1::EpochInfo& epoch) {
  if (tables_ == nullptr) return;
  node.shard->clearRows(epoch.first_step());
  if (epoch.fresh() || broken(Mutation::kRowsNotLoaded)) return;
  for (const auto& manifest : manifests_) {
    if (manifest.fileName() != epoch.restore_manifest()) continue;
    for (const runtime::TableRows& rows : rowsOf(manifest)) node.shard->loadRows(rows);
  }
}

}  // namespace trainyard::sim
