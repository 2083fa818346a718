// What is read of a part while steps go on is what a copy at its version would have been.
#include "runtime/rows/part_snapshot.h"

#include <algorithm>
#include <optional>

#include "gtest/gtest.h"
#include "runtime/rows/row_steps.h"
#include "tests/runtime/rows/replica_tables.h"

namespace trainyard::runtime::rows {
namespace {

class PartSnapshotTest : public testing::Test {
 public:
  PartSnapshotTest() {
    part_ = std::make_unique<RowSteps>(tables_.configs, ManyTables::kRange);
    part_->keepGone();
    EXPECT_TRUE(part_->open(1, planOfOneRank()).ok());
  }
  void takeSteps(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) {
      RowRequest push;
      push.epoch = 1;
      push.step = part_->version();
      push.version = push.step + 1;
      push.push.samples = 2;
      push.ids.assign(tables_.configs.size(), {});
      push.gradients = tables_.gradients(random_);
      ASSERT_EQ(askedOf(*part_, push, ++calls_).size(), 1U);
    }
  }
  std::vector<TableRows> copy() const {
    std::vector<TableRows> stores;
    for (std::size_t s = 0; s < part_->stores(); ++s)
      stores.push_back(copyRows(part_->store(s), s));
    return stores;
  }
  // Partition by partition, with so many steps (at most) before each; stores in turns.
  std::vector<TableRows> read(PartSnapshot& snapshot, std::uint64_t steps) {
    std::vector<TableRows> stores;
    for (std::size_t s = 0; s < part_->stores(); ++s)
      stores.push_back(emptyRows(s, ManyTables::kRange.first, part_->store(s).slots()));
    for (int p = ManyTables::kRange.first; p < ManyTables::kRange.last; ++p) {
      for (std::size_t s = 0; s < part_->stores(); ++s) {
        takeSteps(random_.below(steps + 1));
        appendBatch(snapshot.read(*part_, s, p),
                    static_cast<std::size_t>(part_->store(s).options().dim), stores[s]);
      }
    }
    return stores;
  }

 protected:
  Rng random_{5};
  ManyTables tables_;
  std::unique_ptr<RowSteps> part_;
  CallId calls_ = 0;
};

// Of `rows`, those that step `since` or a later one has changed.
TableRows changedSince(const TableRows& rows, std::int64_t since) {
  TableRows changed = emptyRows(rows.table, rows.first, rows.slots.size());
  const std::size_t dim = rows.ids.empty() ? 0 : rows.weights.size() / rows.ids.size();
  std::size_t at = 0;
  for (const std::int64_t size : rows.sizes) {
    const std::size_t before = changed.ids.size();
    for (const std::size_t end = at + static_cast<std::size_t>(size); at < end; ++at) {
      if (stepsAfter(rows.steps[at], since) < 0) continue;
      changed.ids.push_back(rows.ids[at]);
      changed.steps.push_back(rows.steps[at]);
      changed.counts.push_back(rows.counts[at]);
      const auto add = [&](const std::vector<float>& from, std::vector<float>& to) {
        const auto row = from.begin() + static_cast<std::ptrdiff_t>(at * dim);
        to.insert(to.end(), row, row + static_cast<std::ptrdiff_t>(dim));
      };
      add(rows.weights, changed.weights);
      for (std::size_t s = 0; s < rows.slots.size(); ++s) add(rows.slots[s], changed.slots[s]);
    }
    changed.sizes.push_back(static_cast<std::int64_t>(changed.ids.size() - before));
  }
  return changed;
}

TEST_F(PartSnapshotTest, IsWhatACopyWouldHaveBeenWhateverHappensMeanwhile) {
  bool grew = false;
  for (int round = 0; round < 60; ++round) {
    takeSteps(random_.below(6));
    const std::vector<TableRows> copied = copy();
    const auto snapshot = part_->snapshot();
    for (std::size_t s = 0; s < copied.size(); ++s)
      EXPECT_EQ(snapshot->sizes(s), copied[s].sizes) << "known before anything is read";
    EXPECT_EQ(bitsOf(read(*snapshot, random_.below(4))), bitsOf(copied));
    grew = grew || bitsOf(*part_) != bitsOf(copied);
  }
  EXPECT_TRUE(grew);
}

TEST_F(PartSnapshotTest, OfWhatHasChangedSinceAStep) {
  int different = 0;
  for (int round = 0; round < 60; ++round) {
    const std::int64_t since = part_->version();
    takeSteps(1 + random_.below(6));
    std::vector<TableRows> expected;
    for (const TableRows& rows : copy()) expected.push_back(changedSince(rows, since));
    const auto snapshot = part_->snapshot(since);
    EXPECT_EQ(bitsOf(read(*snapshot, random_.below(4))), bitsOf(expected));
    different += bitsOf(expected) != bitsOf(copy());
  }
  EXPECT_GT(different, 30);
}

TEST_F(PartSnapshotTest, SeveralAtOnceKeepTheirVersions) {
  takeSteps(5);
  const std::vector<TableRows> first = copy();
  const auto one = part_->snapshot();
  takeSteps(3);
  const std::vector<TableRows> second = copy();
  const auto other = part_->snapshot();
  takeSteps(4);
  EXPECT_EQ(bitsOf(read(*one, 1)), bitsOf(first));
  EXPECT_EQ(bitsOf(read(*other, 1)), bitsOf(second));
}

TEST_F(PartSnapshotTest, KeepsOnlyWhatChangesBeforeItIsRead) {
  takeSteps(10);
  const auto snapshot = part_->snapshot();
  EXPECT_EQ(snapshot->kept(), 0U);
  takeSteps(2);
  const std::size_t kept = snapshot->kept();
  EXPECT_GT(kept, 0U);
  read(*snapshot, 0);
  EXPECT_EQ(snapshot->kept(), 0U);
  takeSteps(5);
  EXPECT_EQ(snapshot->kept(), 0U) << "all has been read";
}

TEST_F(PartSnapshotTest, WhatNobodyHasAnyMoreIsNotNoted) {
  takeSteps(3);
  std::weak_ptr<PartSnapshot> given_up = part_->snapshot();
  EXPECT_TRUE(given_up.expired()) << "it is the caller's";
  takeSteps(3);
}

TEST_F(PartSnapshotTest, RowsThatHaveGoneSinceAreToldOnceAndNotThoseThatCameAgain) {
  bool told = false;
  for (int round = 0; round < 40; ++round) {
    const std::int64_t since = part_->version();
    const std::vector<TableRows> before = copy();
    takeSteps(1 + random_.below(8));
    const std::vector<TableRows> after = copy();
    for (std::size_t s = 0; s < before.size(); ++s) {
      const std::vector<std::uint64_t> gone = part_->goneSince(s, since);
      told = told || !gone.empty();
      for (const std::uint64_t id : before[s].ids) {
        const bool is_there = std::ranges::find(after[s].ids, id) != after[s].ids.end();
        EXPECT_EQ(std::ranges::count(gone, id), is_there ? 0 : 1);
      }
    }
  }
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace trainyard::runtime::rows
