// Rows that a worker reads in its step because nothing was said of them before, as programs of the
// users' own do it (PsSynchronizer::readRows()).
#include <algorithm>

#include "fmt/format.h"
#include "tests/sim/nodes.h"

namespace trainyard::sim {
namespace {

constexpr Duration kReadAgain = std::chrono::milliseconds(50);
// Whatever is computed with it would be seen in all rows.
constexpr float kNonsense = 1e6F;

}  // namespace

runtime::RowIds World::foreseen(std::int64_t first, int count) const {
  runtime::RowIds ids = runtime::rows::rowIdsAt(first, count);
  if (config_.unforeseen && first % 3 != 0)
    std::ranges::for_each(ids, [](auto& of) { of.clear(); });
  return ids;
}

void World::readRows(WorkerNode& node) {
  node.rows->beginRead(node.machine->version(),
                       runtime::rows::rowIdsAt(node.turn->first_position, node.turn->samples),
                       true);
  node.reading.assign(grid_.parts().size(), {});
  for (std::size_t part = 0; part < grid_.parts().size() && !node.reading.empty(); ++part)
    readPart(node, part);
}

void World::readPart(WorkerNode& node, std::size_t part) {
  StatusOr<std::optional<runtime::ps::Send>> send = node.machine->readRows(part);
  if (!send.ok()) {  // the turn is void
    node.reading.clear();
    node.void_rows = true;
    --computed_;  // nobody counts it, because it has no gradient
    node.turn_rows.clear();
    const auto ids = runtime::rows::rowIdsAt(node.turn->first_position, node.turn->samples);
    for (std::size_t t = 0; t < ids.size(); ++t)
      node.turn_rows.emplace_back(ids[t].size() * tables_->workers[t].dim, kNonsense);
    return endPass(node);
  }
  if (!send->has_value()) return readPartLater(node, part);
  const runtime::ps::RowBytes body = node.rows->readBodyOf(part, **send);
  (*send)->attempt = node.reading[part].attempt = ++node.reads;
  sendBody(node, **send, body);
}

void World::readPartLater(WorkerNode& node, std::size_t part) {
  const v1::Incarnation self = node.incarnation;
  const std::uint64_t attempt = node.reading[part].attempt = ++node.reads;
  at(ownerOf(node), kReadAgain, [this, self, index = node.index, part, attempt] {
    WorkerNode* alive = workers_[index].get();
    if (alive == nullptr || !same(alive->incarnation, self) || alive->reading.empty()) return;
    if (alive->reading[part].attempt == attempt) readPart(*alive, part);
  });
}

void World::onReadReply(WorkerNode& node, const runtime::ps::Send& send, const Status& transport,
                        const v1::ChunkReplyHeader& header,
                        const std::shared_ptr<const std::vector<float>>& payload) {
  if (node.reading.empty()) return;
  const std::size_t part = grid_.meaningOf(send.chunk)->part;
  WorkerNode::Reading& reading = node.reading[part];
  if (reading.done || reading.attempt != send.attempt) return;
  const bool found = transport.ok() && header.code() == v1::CHUNK_OK && payload != nullptr &&
                     payload->size() == node.rows->elementsOf(send.chunk);
  if (!found) {
    if (transport.ok() && header.code() == v1::CHUNK_GONE) node.machine->onRowsGone();
    pump(node);
    return readPartLater(node, part);
  }
  std::ranges::copy(*payload, node.rows->target(send.chunk, payload->size()).begin());
  node.rows->stored(send.chunk, header);
  reading.done = true;
  if (!node.rows->readComplete()) return;
  node.reading.clear();
  node.turn_rows = node.rows->readRows();
  const runtime::StepPlan::Share share{node.turn->first_position, node.turn->samples};
  const auto step = static_cast<std::size_t>(node.turn->step);
  if (sharesSteps() && upToDate(node, node.turn->step) &&
      node.turn_rows != reference_rows_[step].at(share))
    problem(fmt::format("worker {} reads wrong rows in step {}", node.index, step));
  endPass(node);
}

}  // namespace trainyard::sim
