// Where the rows of one partition are: open addressing with linear probing over cells of eight
// bytes. A cell has 32 bits of the row's hash, so that growing reads no row; whether an id is the
// one that is looked for only the row itself says.
#pragma once

#include <cstdint>
#include <memory>

namespace trainyard::runtime::rows {

// Not thread-safe.
class RowIndex {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // Walks over the rows that `hash` may be, in one order.
  class Probe {
   public:
    // The next row, or kNone: there is no other.
    std::uint32_t next() {
      for (;; at_ = (at_ + 1) & index_->mask_) {
        const Cell& cell = index_->cells_[at_];
        if (cell.row == kNone) return kNone;
        if (cell.tag != tag_) continue;
        at_ = (at_ + 1) & index_->mask_;
        return cell.row;
      }
    }

   private:
    friend class RowIndex;
    Probe(const RowIndex* index, std::uint32_t tag)
        : index_(index), tag_(tag), at_(tag & index->mask_) {}
    const RowIndex* index_;
    std::uint32_t tag_;
    std::uint32_t at_;
  };

  RowIndex();
  // So that so many rows are inserted without growing.
  void reserve(std::uint32_t rows);
  // Asks the processor for what find() reads first.
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&cells_[tagOf(hash) & mask_]); }
  Probe find(std::uint64_t hash) const { return {this, tagOf(hash)}; }
  // Precondition: the row is not there; fewer than 2^31 are.
  void insert(std::uint64_t hash, std::uint32_t row);
  // Preconditions: the row is there.
  void erase(std::uint64_t hash, std::uint32_t row);
  void renumber(std::uint64_t hash, std::uint32_t from, std::uint32_t to);

  std::uint32_t size() const { return size_; }
  std::size_t bytes() const { return (std::size_t{mask_} + 1) * sizeof(Cell); }

 private:
  struct Cell {
    std::uint32_t tag = 0;
    std::uint32_t row = kNone;
  };
  // The upper bits name the partition.
  static std::uint32_t tagOf(std::uint64_t hash) { return static_cast<std::uint32_t>(hash); }
  void put(std::uint32_t tag, std::uint32_t row);
  std::uint32_t cellOf(std::uint64_t hash, std::uint32_t row) const;
  void grow(std::uint32_t cells);

  std::unique_ptr<Cell[]> cells_;
  std::uint32_t mask_;
  std::uint32_t size_ = 0;
};

}  // namespace trainyard::runtime::rows
