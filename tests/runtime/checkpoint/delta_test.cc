// Delta checkpoints: chains of them are read as what was there, whole or in changes.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/core/rng.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/changes.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A row as a model of a table: its weights and slot are functions of this.
struct ModelRow {
  std::uint32_t step = 0;
  std::uint32_t count = 0;
  bool operator==(const ModelRow&) const = default;
};
using ModelTable = std::map<std::uint64_t, ModelRow>;

int partitionOfId(std::uint64_t id) {
  return static_cast<int>(id * 37 % kTablePartitions);
}

class Deltas : public testing::Test {
 protected:
  // What the table has in [first, last), and of a delta since `since`.
  static TableRows rowsOf(const ModelTable& table, int first, int last,
                          std::optional<std::int64_t> since, const ModelTable& before) {
    TableRows rows;
    rows.first = first;
    rows.slots.resize(1);
    for (int partition = first; partition < last; ++partition) {
      std::int64_t size = 0;
      for (const auto& [id, row] : table) {
        if (partitionOfId(id) != partition || (since && row.step < *since)) continue;
        ++size;
        rows.ids.push_back(id);
        rows.steps.push_back(row.step);
        rows.counts.push_back(row.count);
        for (const float x : {1.0F, 2.0F}) rows.weights.push_back(x * static_cast<float>(row.step));
        for (const float x : {3.0F, 4.0F}) rows.slots[0].push_back(x + static_cast<float>(id));
      }
      rows.sizes.push_back(size);
    }
    for (const auto& [id, row] : before) {
      const int partition = partitionOfId(id);
      if (since && first <= partition && partition < last && !table.contains(id))
        rows.gone.push_back(id);
    }
    return rows;
  }
  // Committed, by `servers` servers; "" as base: whole, as that of `whole` is in any case.
  Manifest write(std::int64_t step, int servers, const std::string& base = "",
                 std::int64_t since = 0, const ModelTable& before = {}, int whole = -1) {
    StatusOr<Manifest> manifest = writeSampleShards(dir_.path(), 1, step, 1);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    manifest->tables = {{.name = "user", .dim = 2, .slots = {"accumulator"}}};
    manifest->base = base;
    manifest->history = 1;
    for (int ps = 0; ps < servers; ++ps) {
      const bool delta = !base.empty() && ps != whole;
      const TableRows rows =
          rowsOf(table_, kTablePartitions * ps / servers, kTablePartitions * (ps + 1) / servers,
                 delta ? std::optional(since) : std::nullopt, before);
      std::vector<ShardArray> arrays;
      addTableArrays(manifest->tables[0], rows, arrays);
      const auto file = writeShard(
          dir_.path(), fmt::format("ps-{}.step-{}.e1.i2.safetensors", ps, step), {}, arrays);
      EXPECT_TRUE(file.ok()) << file.status();
      manifest->files.push_back(*file);
      manifest->files.back().delta = delta;
    }
    EXPECT_EQ(commitManifest(dir_.path(), *manifest), absl::OkStatus());
    return *manifest;
  }
  // Of step 20, by so many; the base of step 10 is by two.
  Manifest writeDelta(int servers) {
    train(10);
    base_ = write(10, 2);
    at_base_ = table_;
    train(20);
    return write(20, servers, base_.fileName(), 10, at_base_);
  }
  StatusOr<CheckpointReader> open(const Manifest& manifest) const {
    return CheckpointReader::open(dir_.path(), manifest);
  }
  // Rows as a walk gives them, which must be sound; adds ids that are gone to `gone`.
  static ModelTable tableOf(const TableRows& rows, std::set<std::uint64_t>* gone = nullptr) {
    ModelTable table;
    std::size_t at = 0;
    for (std::size_t p = 0; p < rows.sizes.size(); ++p) {
      for (std::int64_t i = 0; i < rows.sizes[p]; ++i, ++at) {
        const std::uint64_t id = rows.ids[at];
        EXPECT_EQ(partitionOfId(id), rows.first + static_cast<int>(p));
        EXPECT_TRUE(i == 0 || rows.ids[at - 1] < id);
        EXPECT_EQ(rows.weights[2 * at + 1], 2.0F * static_cast<float>(rows.steps[at]));
        EXPECT_EQ(rows.slots[0][2 * at], 3.0F + static_cast<float>(id));
        table[id] = {rows.steps[at], rows.counts[at]};
      }
    }
    EXPECT_EQ(at, rows.ids.size());
    if (gone != nullptr) gone->insert(rows.gone.begin(), rows.gone.end());
    return table;
  }
  static ModelTable wholeOf(const CheckpointReader& reader) {
    ModelTable all;
    EXPECT_TRUE(reader
                    .walkTable(0, 0, kTablePartitions,
                               [&](const TableRows& rows) {
                                 EXPECT_THAT(rows.gone, IsEmpty());
                                 all.merge(tableOf(rows));
                                 return absl::OkStatus();
                               })
                    .ok());
    return all;
  }
  // `table` as somebody has it who applies what has changed.
  static void applyChanges(const CheckpointReader& before, const CheckpointReader& after,
                           ModelTable& table) {
    std::set<std::uint64_t> gone;
    ModelTable changed;
    ASSERT_TRUE(walkChanges(before, after, 0, [&](const TableRows& rows) {
                  changed.merge(tableOf(rows, &gone));
                  return absl::OkStatus();
                }).ok());
    for (const std::uint64_t id : gone) {
      EXPECT_FALSE(changed.contains(id));
      table.erase(id);  // one that has come and gone since was never there
    }
    for (const auto& [id, row] : changed) table[id] = row;
  }
  // Steps until `until`: rows come, change, go, and come again.
  void train(std::int64_t until) {
    for (; step_ < until; ++step_) {
      for (int i = 0; i < 6; ++i) {
        ModelRow& row = table_[rng_.below(200)];
        row = {static_cast<std::uint32_t>(step_), row.count + 1};
      }
      std::erase_if(table_, [&](const auto& one) {
        return one.second.step < step_ && one.first % 5 == static_cast<std::uint64_t>(step_) % 5 &&
               rng_.below(3) == 0;
      });
    }
  }

  SampleDir dir_;
  ModelTable table_;
  Manifest base_;
  ModelTable at_base_;
  std::int64_t step_ = 0;
  Rng rng_{7};
};

// Cut in one way, as jobs do it, or in several.
class DeltasCut : public Deltas, public testing::WithParamInterface<int> {};

TEST_P(DeltasCut, AChainIsReadAsWhatWasThere) {
  std::vector<Manifest> chain;
  std::vector<ModelTable> states;
  for (int i = 0; i < 9; ++i) {
    train(10 * (i + 1));
    const bool whole = i % 5 == 0;
    chain.push_back(write(step_, 2 + i % GetParam(), whole ? "" : chain.back().fileName(),
                          whole ? 0 : chain.back().step, whole ? ModelTable() : states.back()));
    states.push_back(table_);
  }
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const auto reader = open(chain[i]);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(wholeOf(*reader), states[i]) << i;
    EXPECT_EQ(reader->rowsOf(0).value_or(-1), static_cast<std::int64_t>(states[i].size()));
    EXPECT_EQ(verifyFiles(dir_.path(), chain[i]), absl::OkStatus());
    // From each to each later one: in the chain, or by comparing both.
    for (std::size_t before = 0; before < i; ++before) {
      const auto former = open(chain[before]);
      ASSERT_TRUE(former.ok());
      ModelTable followed = states[before];
      applyChanges(*former, *reader, followed);
      EXPECT_EQ(followed, states[i]) << before << " to " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, DeltasCut, testing::Values(1, 3));

// A stop may name a version that some servers, not all, had heard of as a delta.
TEST_F(Deltas, OfWhichOneServersRowsAreWholeIsReadAsWhatWasThere) {
  writeDelta(2);
  train(30);
  const Manifest mixed = write(30, 2, base_.fileName(), 10, at_base_, /*whole=*/1);
  const ModelTable then = table_;
  train(40);
  const Manifest last = write(40, 2, mixed.fileName(), 30, then);
  const auto base = open(base_), reader = open(mixed), later = open(last);
  ASSERT_TRUE(base.ok() && reader.ok() && later.ok());
  EXPECT_FALSE(reader->isDelta(0));
  EXPECT_TRUE(later->isDelta(0));
  EXPECT_EQ(wholeOf(*reader), then);
  EXPECT_EQ(reader->rowsOf(0).value_or(-1), static_cast<std::int64_t>(then.size()));
  EXPECT_EQ(wholeOf(*later), table_) << "of which it is the base";
  ModelTable followed = at_base_;
  applyChanges(*base, *reader, followed);
  EXPECT_EQ(followed, then) << "what has gone of whole rows is known by comparing";
  applyChanges(*reader, *later, followed);
  EXPECT_EQ(followed, table_);
  followed = at_base_;
  applyChanges(*base, *later, followed);
  EXPECT_EQ(followed, table_);
}

TEST_F(Deltas, TheDigestIsThatOfAWholeOne) {
  const Manifest delta = writeDelta(3);
  const std::string digest = checkpointDigest(*open(delta)).value_or("none");
  std::filesystem::remove(dir_ / delta.fileName());
  const Manifest whole = write(20, 1);
  EXPECT_EQ(checkpointDigest(*open(whole)).value_or("other"), digest);
}

TEST_F(Deltas, AnExportHasAllRows) {
  const Manifest delta = writeDelta(2);
  ASSERT_TRUE(exportSafetensors(*open(delta), dir_ / "delta", /*slots=*/true).ok());
  std::filesystem::remove(dir_ / delta.fileName());
  ASSERT_TRUE(exportSafetensors(*open(write(20, 2)), dir_ / "whole", /*slots=*/true).ok());
  EXPECT_EQ(readText(dir_ / "delta"), readText(dir_ / "whole"));
}

TEST_F(Deltas, WhatIsMissingOfAChainIsNamed) {
  const Manifest delta = writeDelta(2);
  std::filesystem::rename(dir_ / base_.files[1].name, dir_ / "away");
  EXPECT_TRUE(absl::IsDataLoss(open(delta).status()));
  EXPECT_THAT(verifyFiles(dir_.path(), delta).ToString(), HasSubstr(base_.files[1].name));
  std::filesystem::remove(dir_ / base_.fileName());
  const Status status = open(delta).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.ToString(), HasSubstr("step-20.e1.json is a delta of it"));
}

TEST_F(Deltas, AChainThatBitesItsTailIsRefused) {
  train(10);
  Manifest first = write(10, 1);
  Manifest second = write(20, 1, first.fileName(), 10);
  std::filesystem::remove(dir_ / first.fileName());
  first.base = second.fileName();
  ASSERT_EQ(commitManifest(dir_.path(), first), absl::OkStatus());
  EXPECT_THAT(chainOf(dir_.path(), second).status().ToString(),
              HasSubstr("not a checkpoint before that one"));
}

TEST_F(Deltas, PruningKeepsWhatDeltasNeed) {
  train(10);
  Manifest base = write(10, 1);
  for (std::int64_t step = 20; step <= 40; step += 10) {
    train(step);
    base = write(step, 1, step == 30 ? "" : base.fileName(), step - 10);
  }
  ASSERT_EQ(prune(dir_.path(), 1), absl::OkStatus());
  std::vector<std::int64_t> left;
  for (const Manifest& manifest : listManifests(dir_.path(), nullptr))
    left.push_back(manifest.step);
  EXPECT_THAT(left, testing::ElementsAre(40, 30)) << "what 40 is a delta of, and no more";
  EXPECT_EQ(verifyFiles(dir_.path(), base), absl::OkStatus());
}

TEST(History, AStateThatWasGoneBackBehindIsNoneThatALaterOneComesFrom) {
  const auto at = [](std::int64_t step, std::int64_t epoch, std::int64_t history,
                     const std::string& from = "") {
    Manifest manifest = sampleManifest(step, epoch);
    manifest.history = history;
    manifest.history_from = from;
    return manifest;
  };
  EXPECT_TRUE(comesFrom(at(20, 1, 1), at(10, 1, 1)));
  EXPECT_TRUE(comesFrom(at(20, 3, 1), at(10, 2, 1)));
  EXPECT_FALSE(comesFrom(at(10, 1, 1), at(20, 1, 1))) << "it is later";
  // Epoch 3 began from step 10.
  EXPECT_TRUE(comesFrom(at(30, 3, 3, "step-10.e1.json"), at(10, 1, 1)));
  EXPECT_FALSE(comesFrom(at(30, 3, 3, "step-10.e1.json"), at(20, 2, 1)));
  EXPECT_FALSE(comesFrom(at(30, 3, 0), at(20, 2, 0))) << "not known";
  Manifest other = at(10, 1, 1);
  other.job_uid = "another";
  EXPECT_FALSE(comesFrom(at(20, 1, 1), other));
}

}  // namespace
}  // namespace trainyard::runtime
