// Parts of the tables that change their server or have replicas: between epochs, and what goes from
// one server to the other in them.
#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/incarnation.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/row_body.h"
#include "runtime/ps/row_shard.h"

namespace trainyard::runtime::ps {

void RowShard::hold(std::size_t part) {
  if (held_[part] != nullptr) return;
  held_[part] = std::make_shared<Part>();
  held_[part]->number = grid_.numberOf(part);
  held_[part]->rows = makePart(grid_.parts()[part]);
}

std::shared_ptr<RowShard::Part> RowShard::heldOf(std::uint32_t number) const {
  const auto meaning = grid_.meaningOf(number);
  return meaning ? held_[meaning->part] : nullptr;
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

void RowShard::replicate(const std::vector<std::uint32_t>& numbers, bool guarded,
                         const std::set<std::uint32_t>& unguarded) {
  guarded_ = guarded;
  replicas_.clear();
  unguarded_.clear();
  for (const std::uint32_t number : unguarded) unguarded_.insert(grid_.meaningOf(number)->part);
  for (const std::uint32_t number : numbers) {
    const std::size_t part = grid_.meaningOf(number)->part;
    TY_CHECK(!isOwn(part), "a replica is of another server's part");
    replicas_.insert(part);
    hold(part);
  }
}

void RowShard::copy(const std::vector<std::uint32_t>& numbers,
                    std::map<std::uint32_t, std::set<int>> followers) {
  followers_ = std::move(followers);
  copies_.clear();
  for (const std::uint32_t number : numbers) {
    const std::size_t part = grid_.meaningOf(number)->part;
    TY_CHECK(!isWanted(part), "what is copied is another server's part");
    copies_.insert(part);
    hold(part);
  }
}

// What was here complete, and is to be copied, is of a former epoch.
void RowShard::release() {
  dropUnwanted();
  for (const std::size_t part : copies_) {
    if (isWanted(part) || held_[part]->version < 0) continue;
    held_[part].reset();
    hold(part);
  }
  for (const auto& part : held_) {
    if (part == nullptr) continue;
    const auto found = followers_.find(part->number);
    const std::lock_guard lock(part->mutex);
    part->rows->keepFollowers(found == followers_.end() ? std::set<int>() : found->second);
  }
}

std::int64_t RowShard::point(std::uint32_t number) const {
  const std::shared_ptr<Part> part = heldOf(number);
  if (part == nullptr || part->version < 0) return -1;
  const std::lock_guard lock(part->mutex);
  return part->rows->point();
}

std::uint64_t RowShard::markOf(std::uint32_t number, const v1::Incarnation& of) const {
  const std::shared_ptr<Part> part = heldOf(number);
  if (part == nullptr) return 0;
  const std::lock_guard lock(part->mutex);
  return part->copy && same(part->copy->of, of) ? part->copy->mark : 0;
}

Status RowShard::notHere(std::uint32_t number) const {
  return absl::NotFoundError(
      fmt::format("{} does not hold part {} of the tables", serverName(ps_), number));
}

StatusOr<rows::GivenPart> RowShard::give(std::uint32_t number, std::int64_t known) const {
  const std::shared_ptr<Part> part = heldOf(number);
  if (part == nullptr || part->version < 0) return notHere(number);
  const std::lock_guard lock(part->mutex);
  return part->rows->give(known);
}

StatusOr<RowShard::Unpacked> RowShard::unpack(std::uint32_t number, rows::GivenPart given) const {
  std::unique_ptr<rows::RowPart> part = makePart(grid_.parts()[grid_.meaningOf(number)->part]);
  if (given.update != nullptr) TY_RETURN_IF_ERROR(part->checkGradients(given.update->gradients));
  for (const std::vector<rows::RowGradients>& push : given.brought)
    TY_RETURN_IF_ERROR(part->checkGradients(push));
  for (const auto& update : given.updates)
    TY_RETURN_IF_ERROR(part->checkGradients(update->gradients));
  if (given.stores.empty()) return Unpacked{nullptr, std::move(given)};
  const std::uint64_t mark = given.mark;
  TY_RETURN_IF_ERROR(part->takeOver(std::move(given)));
  Unpacked unpacked{std::move(part), {}};
  unpacked.behind.mark = mark;
  return unpacked;
}

Status RowShard::takeOver(std::uint32_t number, Unpacked unpacked,
                          const v1::Incarnation* copied_of) {
  const std::shared_ptr<Part> part = heldOf(number);
  TY_CHECK(part != nullptr, "a server takes over what is its own, or a replica, or a copy");
  const std::lock_guard lock(part->mutex);
  const std::uint64_t mark = unpacked.behind.mark;
  TY_RETURN_IF_ERROR(become(*part, std::move(unpacked)));
  part->copy.reset();
  if (copied_of != nullptr) part->copy = Part::Copy{*copied_of, mark};
  part->version = part->copy ? -1 : part->rows->told();
  return absl::OkStatus();
}

// With the part's mutex held.
Status RowShard::become(Part& part, Unpacked unpacked) const {
  if (unpacked.whole != nullptr) {
    unpacked.whole->takeMeters(*part.rows);
    part.rows.swap(unpacked.whole);
    return absl::OkStatus();
  }
  if (part.version < 0 && !part.copy)
    return absl::InvalidArgumentError("an update of rows that are not here");
  if (unpacked.behind.mark != 0) {
    // A count of pushes does not tell of one that is missing, for versions may be settled in
    // between.
    if (!part.copy || part.copy->mark + unpacked.behind.updates.size() != unpacked.behind.mark)
      return absl::InvalidArgumentError("updates that are not all that came behind the copy");
    return part.rows->follow(std::move(unpacked.behind));
  }
  return part.rows->takeOver(std::move(unpacked.behind));
}

bool RowShard::dropUnwanted() {
  bool had = false;
  for (std::size_t part = 0; part < held_.size(); ++part) {
    if (held_[part] == nullptr || isKept(part)) continue;
    held_[part].reset();
    had = true;
  }
  return had;
}

bool RowShard::dropReplicas() {
  replicas_.clear();
  copies_.clear();
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
