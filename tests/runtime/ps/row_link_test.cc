// What a worker says of the ids that its steps look up.
#include "runtime/ps/row_link.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace trainyard::runtime::ps {
namespace {

class RowLinkTest : public testing::Test {
 protected:
  // Asks all parts for the rows of samples from `first` on, at `version`.
  void ask(std::int64_t version, std::int64_t first, int count) {
    for (std::size_t part = 0; part < grid_.parts().size(); ++part) {
      Send send;
      send.rows = {.first = first, .count = count};
      send.header.set_epoch(1);
      send.header.set_chunk(grid_.numberOf(part));
      send.header.set_pull_only(true);
      send.header.set_version(version);
      (void)link_.bodyOf(send);
    }
  }
  // Every part answers what is read beside the steps with rows of `value`, called `version`.
  void answerRead(std::int64_t version, float value) {
    for (std::size_t part = 0; part < grid_.parts().size(); ++part) {
      Send send;
      (void)link_.readBodyOf(part, send);
      std::ranges::fill(link_.target(send.chunk, link_.elementsOf(send.chunk)), value);
      v1::ChunkReplyHeader header;
      header.set_version(version);
      link_.stored(send.chunk, header);
    }
  }
  void expect(std::uint64_t occurrences, std::uint64_t distinct) {
    v1::RuntimeReport report;
    link_.fillReport(report);
    ASSERT_EQ(report.tables_size(), 2);
    EXPECT_EQ(report.tables(0).table(), "user");
    EXPECT_EQ(report.tables(0).occurrences(), occurrences);
    EXPECT_EQ(report.tables(0).distinct(), distinct);
    EXPECT_EQ(report.tables(1).occurrences(), 0U);
  }

  const RowGrid grid_{3, 2};
  // Each sample has a user of its own, and 7 twice.
  RowLink link_{{.tables = {{"user", 2}, {"item", 1}},
                 .grid = grid_,
                 .ids =
                     [](std::int64_t first, int count) {
                       RowIds ids(2);
                       for (int i = 0; i < count; ++i) {
                         const auto user = static_cast<std::uint64_t>(100 + first + i);
                         ids[0].insert(ids[0].end(), {user, 7, 7});
                       }
                       return ids;
                     }},
                ElementType::kFloat32};
};

TEST_F(RowLinkTest, CountsTheIdsOfEachStepOnceHoweverOftenItAsks) {
  expect(0, 0);
  ask(0, 0, 10);
  expect(30, 11);
  ask(0, 0, 10);
  expect(30, 11);
  ask(1, 10, 20);
  expect(90, 32);
}

// They are pulled, but are no part of a step.
TEST_F(RowLinkTest, RowsOfAnEvaluationAreNotCounted) {
  link_.beginRead(0, {{1, 2, 3}, {4}}, /*of_step=*/false);
  Send send;
  (void)link_.readBodyOf(0, send);
  expect(0, 0);
  // Those of a step are, also where nobody has foreseen them.
  link_.beginRead(0, {{1, 2, 1}, {}}, /*of_step=*/true);
  expect(3, 2);
}

// Asynchronously an evaluation scores whatever the servers have.
TEST_F(RowLinkTest, TheNewestRowsMayBeOfAnyVersion) {
  const RowIds ids = {{1, 2, 1}, {4}};
  link_.beginRead(rows::kNewestRows, ids, /*of_step=*/false);
  EXPECT_FALSE(link_.readComplete());
  answerRead(17, 5);
  ASSERT_TRUE(link_.readComplete());
  EXPECT_EQ(link_.readRows(), (RowValues{{5, 5, 5, 5, 5, 5}, {5}}));
}

TEST_F(RowLinkTest, RowsOfAVersionAreOfNoOther) {
  const RowIds ids = {{1}, {}};
  link_.beginRead(3, ids, /*of_step=*/false);
  answerRead(4, 5);
  EXPECT_FALSE(link_.readComplete());
  answerRead(3, 6);
  ASSERT_TRUE(link_.readComplete());
  EXPECT_EQ(link_.readRows(), (RowValues{{6, 6}, {}}));
}

}  // namespace
}  // namespace trainyard::runtime::ps
