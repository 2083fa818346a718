// Parts of the tables as they were at one version, for checkpoints.
#include <numeric>
#include <utility>

#include "runtime/ps/row_shard.h"
#include "runtime/rows/part_snapshot.h"

namespace trainyard::runtime::ps {
namespace {

// What is read, and in memory, at once.
constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;

// Ranges of partitions whose rows have about that many bytes, at least a partition.
std::vector<rows::PartitionRange> piecesOf(const rows::RowTable& table,
                                           const std::vector<std::int64_t>& sizes) {
  const auto row_bytes =
      static_cast<std::int64_t>(sizeof(rows::RowHeader) + table.rowFloats() * sizeof(float));
  std::vector<rows::PartitionRange> pieces;
  std::int64_t bytes = 0;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    const int partition = table.range().first + static_cast<int>(p);
    if (pieces.empty() || bytes + sizes[p] * row_bytes > kPieceBytes) {
      pieces.push_back({partition, partition});
      bytes = 0;
    }
    pieces.back().last = partition + 1;
    bytes += sizes[p] * row_bytes;
  }
  return pieces;
}

}  // namespace

// Keeps what it is read from.
struct RowShard::LatePart {
  std::shared_ptr<Part> part;
  std::shared_ptr<rows::RowPart> rows;  // of the part then
  std::shared_ptr<rows::PartSnapshot> snapshot;
};

std::vector<LateRows> RowShard::snapshot(std::size_t at, std::optional<std::int64_t> since) const {
  const std::shared_ptr<Part>& part = held_[own_[at]];
  const LatePart late{part, part->rows, part->rows->snapshot(since)};
  std::vector<LateRows> pieces;
  for (std::size_t s = 0; s < part->rows->stores(); ++s) {
    const rows::RowTable& table = part->rows->store(s);
    const rows::PartitionRange all = table.range();
    if (since) {
      std::vector<std::uint64_t> gone = part->rows->goneSince(s, *since);
      pieces.push_back({s, all.first, {}, [late, s, all, gone = std::move(gone)] {
                          TableRows rows = rows::roomForRows(late.rows->store(s), s, all, 0);
                          readLate(late, s, all, rows);
                          rows.gone = gone;
                          return rows;
                        }});
      continue;
    }
    const std::vector<std::int64_t>& sizes = late.snapshot->sizes(s);
    for (const rows::PartitionRange& range : piecesOf(table, sizes)) {
      const auto begin = sizes.begin() + (range.first - all.first);
      const auto end = begin + (range.last - range.first);
      const std::int64_t count = std::accumulate(begin, end, std::int64_t{0});
      pieces.push_back({s, range.first, {begin, end}, [late, s, range, count] {
                          TableRows rows = rows::roomForRows(late.rows->store(s), s, range, count);
                          readLate(late, s, range, rows);
                          return rows;
                        }});
    }
  }
  return pieces;
}

StatusOr<rows::GivenPart> RowShard::giveFollower(std::uint32_t number, int follower,
                                                 std::uint64_t mark,
                                                 const std::function<void()>& begun) {
  const std::shared_ptr<Part> part = heldOf(number);
  if (part == nullptr || part->version < 0) return notHere(number);
  LatePart late{part, nullptr, nullptr};
  rows::RowPart::ToFollower all;
  {
    const std::lock_guard lock(part->mutex);
    late.rows = part->rows;
    all = late.rows->giveFollower(follower, mark, ++logs_);
    late.snapshot = all.rows;
  }
  begun();
  for (std::size_t s = 0; late.snapshot != nullptr && s < all.given.stores.size(); ++s)
    readLate(late, s, late.rows->range(), all.given.stores[s]);
  return std::move(all.given);
}

// Steps go on between two partitions, and while rows are put in order.
void RowShard::readLate(const LatePart& late, std::size_t store, rows::PartitionRange range,
                        TableRows& rows) {
  const rows::RowTable& table = late.rows->store(store);
  for (int partition = range.first; partition < range.last; ++partition) {
    rows::RowBatch batch;
    {
      const std::lock_guard lock(late.part->mutex);
      batch = late.snapshot->read(*late.rows, store, partition);
    }
    rows::appendBatch(batch, static_cast<std::size_t>(table.options().dim), rows);
  }
}

}  // namespace trainyard::runtime::ps
