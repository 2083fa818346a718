#include "runtime/rows/row_index.h"

#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime::rows {
namespace {

constexpr std::uint32_t kFirst = 4;  // cells; a power of two

// Three quarters: 10.7 to 21.3 bytes a row, and some two cells to look at.
constexpr bool isFull(std::uint32_t rows, std::uint32_t cells) {
  return rows > cells / 4 * 3;
}

}  // namespace

RowIndex::RowIndex() : cells_(std::make_unique<Cell[]>(kFirst)), mask_(kFirst - 1) {}

void RowIndex::put(std::uint32_t tag, std::uint32_t row) {
  std::uint32_t at = tag & mask_;
  while (cells_[at].row != kNone) at = (at + 1) & mask_;
  cells_[at] = {tag, row};
}

void RowIndex::grow(std::uint32_t cells) {
  const std::uint32_t former = mask_ + 1;
  const std::unique_ptr<Cell[]> from = std::exchange(cells_, std::make_unique<Cell[]>(cells));
  mask_ = cells - 1;
  for (std::uint32_t i = 0; i < former; ++i) {
    if (from[i].row != kNone) put(from[i].tag, from[i].row);
  }
}

void RowIndex::reserve(std::uint32_t rows) {
  std::uint32_t cells = mask_ + 1;
  while (isFull(rows, cells)) cells *= 2;
  if (cells > mask_ + 1) grow(cells);
}

void RowIndex::insert(std::uint64_t hash, std::uint32_t row) {
  if (isFull(size_ + 1, mask_ + 1)) grow((mask_ + 1) * 2);
  put(tagOf(hash), row);
  ++size_;
}

std::uint32_t RowIndex::cellOf(std::uint64_t hash, std::uint32_t row) const {
  std::uint32_t at = tagOf(hash) & mask_;
  while (cells_[at].row != row) {
    TY_CHECK(cells_[at].row != kNone, "the row is there");
    at = (at + 1) & mask_;
  }
  return at;
}

// Without marks for what was there once: what follows moves up as far as its own first cell (Knuth,
// The Art of Computer Programming 3, 6.4, algorithm R).
void RowIndex::erase(std::uint64_t hash, std::uint32_t row) {
  std::uint32_t hole = cellOf(hash, row);
  for (std::uint32_t at = (hole + 1) & mask_; cells_[at].row != kNone; at = (at + 1) & mask_) {
    const std::uint32_t first = cells_[at].tag & mask_;
    const bool stays = ((at - first) & mask_) < ((at - hole) & mask_);
    if (stays) continue;
    cells_[hole] = cells_[at];
    hole = at;
  }
  cells_[hole] = {};
  --size_;
}

void RowIndex::renumber(std::uint64_t hash, std::uint32_t from, std::uint32_t to) {
  cells_[cellOf(hash, from)].row = to;
}

}  // namespace trainyard::runtime::rows
