// Parts of the tables that change their server or have replicas: between epochs, and what goes from
// one server to the other in them.
#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/row_body.h"
#include "runtime/ps/row_shard.h"

namespace trainyard::runtime::ps {

void RowShard::hold(std::size_t part) {
  if (held_[part] != nullptr) return;
  held_[part] = std::make_unique<Part>();
  held_[part]->number = grid_.numberOf(part);
  held_[part]->rows = makePart(grid_.parts()[part]);
}

RowShard::Part* RowShard::heldOf(std::uint32_t number) const {
  const auto meaning = grid_.meaningOf(number);
  return meaning ? held_[meaning->part].get() : nullptr;
}

bool RowShard::isOwn(std::size_t part) const {
  return std::ranges::binary_search(own_, part);
}

void RowShard::assign(const std::vector<int>& ps_of_part) {
  own_.clear();
  for (std::size_t part = 0; part < ps_of_part.size(); ++part) {
    if (ps_of_part[part] != ps_) continue;
    own_.push_back(part);
    hold(part);
  }
}

void RowShard::replicate(const std::vector<std::uint32_t>& numbers, bool guarded) {
  guarded_ = guarded;
  replicas_.clear();
  for (const std::uint32_t number : numbers) {
    const std::size_t part = grid_.meaningOf(number)->part;
    TY_CHECK(!isOwn(part), "a replica is of another server's part");
    replicas_.insert(part);
    hold(part);
  }
}

std::int64_t RowShard::point(std::uint32_t number) const {
  Part* const part = heldOf(number);
  if (part == nullptr || part->version < 0) return -1;
  const std::lock_guard lock(part->mutex);
  return part->rows->point();
}

StatusOr<rows::GivenPart> RowShard::give(std::uint32_t number, std::int64_t known) const {
  Part* const part = heldOf(number);
  if (part == nullptr || part->version < 0) {
    return absl::NotFoundError(
        fmt::format("{} does not hold part {} of the tables", serverName(ps_), number));
  }
  const std::lock_guard lock(part->mutex);
  return part->rows->give(known);
}

StatusOr<RowShard::Unpacked> RowShard::unpack(std::uint32_t number, rows::GivenPart given) const {
  std::unique_ptr<rows::RowPart> part = makePart(grid_.parts()[grid_.meaningOf(number)->part]);
  if (given.update != nullptr) TY_RETURN_IF_ERROR(part->checkGradients(given.update->gradients));
  for (const std::vector<rows::RowGradients>& push : given.brought)
    TY_RETURN_IF_ERROR(part->checkGradients(push));
  if (given.stores.empty()) return Unpacked{nullptr, std::move(given)};
  TY_RETURN_IF_ERROR(part->takeOver(std::move(given)));
  return Unpacked{std::move(part), {}};
}

Status RowShard::takeOver(std::uint32_t number, Unpacked unpacked) {
  Part* const part = heldOf(number);
  TY_CHECK(part != nullptr, "a server takes over what is its own, or a replica");
  const std::lock_guard lock(part->mutex);
  if (unpacked.whole != nullptr) {
    unpacked.whole->takeMeters(*part->rows);
    part->rows.swap(unpacked.whole);
  } else if (part->version < 0) {
    return absl::InvalidArgumentError("an update of rows that are not here");
  } else {
    TY_RETURN_IF_ERROR(part->rows->takeOver(std::move(unpacked.behind)));
  }
  part->version = part->rows->told();
  return absl::OkStatus();
}

bool RowShard::dropUnwanted() {
  bool had = false;
  for (std::size_t part = 0; part < held_.size(); ++part) {
    if (held_[part] == nullptr || isWanted(part)) continue;
    held_[part].reset();
    had = true;
  }
  return had;
}

bool RowShard::dropReplicas() {
  replicas_.clear();
  return dropUnwanted();
}

// With the part's mutex held.
void RowShard::collectUpdate(Part& part) {
  const std::shared_ptr<const rows::PartUpdate> taken = part.rows->takeUpdate();
  if (taken == nullptr) return;
  RowReplicaUpdate update;
  update.header.set_epoch(epoch_);
  update.header.set_chunk(part.number);
  describeUpdate(*taken, update.header);
  update.body = updateBody(*taken, update.header);
  const std::lock_guard lock(updates_mutex_);
  updates_.push_back(std::move(update));
}

std::vector<RowReplicaUpdate> RowShard::takeUpdates() {
  const std::lock_guard lock(updates_mutex_);
  return std::exchange(updates_, {});
}

void RowShard::onReplicated(const v1::ChunkRequestHeader& update, std::vector<ChunkAnswer>& out) {
  const std::optional<std::size_t> at = find(update.chunk());
  if (!at) return;
  Part& part = own(*at);
  std::vector<rows::RowAnswer> answers;
  const std::lock_guard lock(part.mutex);
  part.rows->onReplicated(update.before(), answers);
  collectUpdate(part);
  if (part.version.exchange(part.rows->told()) != part.rows->told()) look_(*at, *part.rows);
  answer(part, part.number, std::move(answers), out);
}

void RowShard::takeReplica(const v1::ChunkRequestHeader& header, std::span<const std::byte> body,
                           CallId call, std::vector<ChunkAnswer>& out) {
  const auto meaning = grid_.meaningOf(header.chunk());
  if (!meaning || !replicas_.contains(meaning->part)) {
    return out.push_back(refuse(call, header.chunk(),
                                fmt::format("{} has no such replica of part {} of the tables",
                                            serverName(ps_), header.chunk())));
  }
  StatusOr<rows::PartUpdate> update = updateOf(header, body, dims_);
  Part& part = *held_[meaning->part];
  const std::lock_guard lock(part.mutex);
  const Status valid = update.ok() ? part.rows->checkGradients(update->gradients) : update.status();
  if (!valid.ok())
    return out.push_back(refuse(call, header.chunk(), std::string(fromAbsl(valid.message()))));
  const std::int64_t point = update->point;
  const bool taken =
      part.rows->takeAsReplica(std::make_shared<const rows::PartUpdate>(*std::move(update)));
  part.version = part.rows->told();
  ChunkAnswer& answer = out.emplace_back();
  answer.call = call;
  answer.header.set_code(taken ? v1::CHUNK_OK : v1::CHUNK_GONE);
  answer.header.set_chunk(header.chunk());
  answer.header.set_epoch(epoch_);
  answer.header.set_version(part.rows->version());
  if (!taken) {
    answer.header.set_message(fmt::format("the replica of part {} is at {}, not {}", header.chunk(),
                                          part.rows->point(), point));
  }
}

void RowShard::fillReplicas(v1::ShardState& state) const {
  for (std::size_t p = 0; p < held_.size(); ++p) {
    if (held_[p] == nullptr || isOwn(p) || held_[p]->version < 0) continue;
    v1::ChunkReplica* held = state.add_replicas();
    held->set_chunk(held_[p]->number);
    held->set_version(held_[p]->version);
  }
}

}  // namespace trainyard::runtime::ps
