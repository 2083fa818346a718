#include "runtime/program/program_rows.h"

#include <gmock/gmock.h>

namespace trainyard::runtime {
namespace {

using session::LookAhead;
using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<session::SessionTable> kTables{{"user", 2}, {"item", 1}};

// Rows of ids i of table t: [100 t + i, 0.5], as long as the table is wide.
class CountingExchange final : public RowExchange {
 public:
  TurnRows rows() override { return came; }
  void pushRows(RowValues) override { FAIL() << "a program says whose gradients they are"; }
  void pushRows(const RowSums& sums) override { pushed.push_back(sums); }
  StatusOr<RowValues> readRows(const RowIds& ids) override {
    read.push_back(ids);
    if (!failure.ok()) return failure;
    return valuesOf(ids);
  }
  static RowValues valuesOf(const RowIds& ids) {
    RowValues values(ids.size());
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (const std::uint64_t id : ids[t]) {
        values[t].push_back(static_cast<float>(100 * t + id));
        if (kTables[t].dim == 2) values[t].push_back(0.5F);
      }
    }
    return values;
  }
  void bring(RowIds ids) { came = {ids, valuesOf(ids)}; }

  TurnRows came;
  std::vector<RowIds> read;
  std::vector<RowSums> pushed;
  Status failure;
};

class ProgramRowsTest : public testing::Test {
 protected:
  ProgramRows rows_{kTables};
  CountingExchange exchange_;
};

TEST_F(ProgramRowsTest, RowsThatCameWithTheTurnAreNotReadAgain) {
  exchange_.bring({{7, 9}, {4}});
  rows_.beginTurn(exchange_, /*trains=*/true);
  EXPECT_THAT(*rows_.lookUp({0, {9, 7, 9}}), ElementsAre(9, 0.5F, 7, 0.5F, 9, 0.5F));
  EXPECT_THAT(exchange_.read, IsEmpty());
  EXPECT_THAT(*rows_.lookUp({0, {7, 3, 9, 2}}), ElementsAre(7, 0.5F, 3, 0.5F, 9, 0.5F, 2, 0.5F));
  EXPECT_THAT(exchange_.read, ElementsAre(RowIds{{3, 2}, {}}));
  EXPECT_THAT(*rows_.lookUp({1, {7}}), ElementsAre(107)) << "of another table";
  EXPECT_EQ(exchange_.read.size(), 2u);
}

TEST_F(ProgramRowsTest, RowsOfAFormerTurnAreForgotten) {
  exchange_.bring({{7}, {}});
  rows_.beginTurn(exchange_, /*trains=*/true);
  rows_.beginTurn(exchange_, /*trains=*/false);  // an evaluation takes none
  EXPECT_THAT(*rows_.lookUp({0, {7}}), ElementsAre(7, 0.5F));
  EXPECT_EQ(exchange_.read.size(), 1u);
}

TEST_F(ProgramRowsTest, ATurnThatIsVoidHasZerosAndOtherFailuresAreTold) {
  exchange_.bring({{7}, {}});
  exchange_.failure = absl::CancelledError("void");
  rows_.beginTurn(exchange_, /*trains=*/true);
  EXPECT_THAT(*rows_.lookUp({0, {7, 3}}), ElementsAre(7, 0.5F, 0, 0));
  exchange_.failure = absl::DeadlineExceededError("no rows for too long");
  EXPECT_TRUE(absl::IsDeadlineExceeded(rows_.lookUp({0, {3}}).status()));
}

TEST_F(ProgramRowsTest, AllGradientsOfATurnLeaveTogether) {
  exchange_.bring({{}, {}});
  rows_.beginTurn(exchange_, /*trains=*/true);
  rows_.push({0, {7, 9}, {2, 1}, {1, 2, 3, 4}});
  rows_.push({0, {7}, {5}, {6, 7}});
  rows_.pushAll();
  rows_.beginTurn(exchange_, /*trains=*/true);
  rows_.pushAll();
  ASSERT_EQ(exchange_.pushed.size(), 2u);
  EXPECT_EQ(exchange_.pushed[0].ids, (RowIds{{7, 9, 7}, {}}));
  EXPECT_EQ(exchange_.pushed[0].counts, (RowCounts{{2, 1, 5}, {}}));
  EXPECT_EQ(exchange_.pushed[0].values, (RowValues{{1, 2, 3, 4, 6, 7}, {}}));
  EXPECT_EQ(exchange_.pushed[1].ids, (RowIds{{}, {}})) << "servers wait for it all the same";
}

TEST_F(ProgramRowsTest, WhatWasSaidOfSamplesIsKnownForThem) {
  EXPECT_EQ(rows_.at(40, 10), (RowIds{{}, {}}));
  rows_.lookAhead({40, 10, {{1}, {2}}});
  rows_.lookAhead({50, 10, {{3}, {}}});
  EXPECT_EQ(rows_.at(40, 10), (RowIds{{1}, {2}}));
  EXPECT_EQ(rows_.at(50, 10), (RowIds{{3}, {}}));
  EXPECT_EQ(rows_.at(50, 5), (RowIds{{}, {}})) << "another share";
  rows_.lookAhead({50, 10, {{4}, {}}});
  EXPECT_EQ(rows_.at(50, 10), (RowIds{{4}, {}})) << "the newest";
  for (std::int64_t first = 60; first < 200; first += 10) rows_.lookAhead({first, 10, {{}, {}}});
  EXPECT_EQ(rows_.at(40, 10), (RowIds{{}, {}})) << "not for ever";
}

TEST(SessionTables, AreThoseOfTheJob) {
  v1::Training training;
  v1::TableSpec& table = *training.add_tables();
  table.set_name("user");
  table.set_dim(16);
  table.set_combiner("SqrtN");
  training.add_tables()->set_combiner("Sum");
  const auto tables = sessionTables(training);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].name, "user");
  EXPECT_EQ(tables[0].dim, 16u);
  EXPECT_EQ(tables[0].combiner, session::Combining::kSqrtN);
  EXPECT_EQ(tables[1].combiner, session::Combining::kSum);
}

}  // namespace
}  // namespace trainyard::runtime
