#include "runtime/placement/layout.h"

#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Two chunks and four parts of tables, dealt over the first two servers; a part's replica is with
// the other one.
class LayoutTest : public testing::Test {
 protected:
  LayoutTest() {
    for (const int ps : {0, 1}) chunks_.push_back({.bytes = 8, .ps = ps});
    for (const int ps : {0, 0, 1, 1}) chunks_.push_back({.bytes = 0, .ps = ps, .rows = true});
    before_ = initialMap(chunks_, 2);
    givers_ = before_.ps;
    for (std::uint32_t part = 2; part < 6; ++part) {
      has_.insert({givers_[part], part});
      has_.insert({1 - givers_[part], part});
    }
  }
  Layout from(const std::set<int>& members, const std::set<int>& servers,
              bool replicated = true) const {
    const LayoutStart start{givers_, members, [&](int server, std::uint32_t part) {
                              return givers_[part] == server || has_.contains({server, part});
                            }};
    return layoutFrom(start, chunks_, before_, servers, replicated);
  }
  // Its process is gone, and another one is there.
  void lose(int server) {
    std::erase_if(has_, [&](const auto& one) { return one.first == server; });
    for (int& giver : givers_) {
      if (giver == server) giver = 1 - server;
    }
  }
  std::vector<ChunkLoad> chunks_;
  ChunkMap before_;
  std::vector<int> givers_;
  std::set<std::pair<int, std::uint32_t>> has_;
};

TEST_F(LayoutTest, WhereNothingChangesNothingIsCopied) {
  const Layout layout = from({0, 1}, {0, 1});
  EXPECT_EQ(layout, settledLayout(chunks_, before_, {0, 1}, true));
  EXPECT_TRUE(layout.plain());
  EXPECT_EQ(layout.map.ps, before_.ps);
  EXPECT_THAT(layout.replicas, ElementsAre(1, 0, 1, 1, 0, 0));
}

// It holds chunks at once, and copies its parts and the replicas that it kept.
TEST_F(LayoutTest, PartsStayWithWhoHasThemUntilTheNewProcessHasCopiedThem) {
  lose(1);
  const Layout layout = from({0, 1}, {0, 1});
  EXPECT_THAT(layout.map.ps, ElementsAre(0, 1, 0, 0, 0, 0));
  EXPECT_THAT(layout.replicas, ElementsAre(1, 0, -1, -1, -1, -1)) << "chunks are fetched at once";
  EXPECT_EQ(layout.target.ps, before_.ps);
  EXPECT_THAT(layout.copies, ElementsAre(Pair(1, ElementsAre(2, 3, 4, 5))));
  EXPECT_FALSE(layout.plain());
  for (std::uint32_t part = 2; part < 6; ++part) has_.insert({1, part});
  EXPECT_EQ(from({0, 1}, {0, 1}), settledLayout(chunks_, before_, {0, 1}, true));
}

TEST_F(LayoutTest, WhileAServerComesPartsKeepTheirReplicas) {
  const Layout layout = from({0, 1, 2}, {0, 1, 2});
  EXPECT_THAT(layout.map.ps, ElementsAre(0, 1, 0, 0, 1, 1));
  EXPECT_EQ(std::count(layout.target.ps.begin() + 2, layout.target.ps.end(), 2), 1);
  EXPECT_THAT(layout.replicas, Each(testing::Ge(0)));
  for (std::uint32_t part = 2; part < 6; ++part) {
    EXPECT_NE(layout.replicas[part], layout.map.ps[part]);
    EXPECT_LT(layout.replicas[part], 2) << "who has it";
  }
  EXPECT_TRUE(layout.copies.contains(2));
  // All is as it is to be once the new server, and who keeps other replicas than before, have
  // theirs.
  for (const auto& [server, parts] : layout.copies) {
    for (const std::uint32_t part : parts) has_.insert({server, part});
  }
  EXPECT_EQ(from({0, 1, 2}, {0, 1, 2}), settledLayout(chunks_, before_, {0, 1, 2}, true));
}

TEST_F(LayoutTest, AServerThatLeavesHasItsPartsWhileOthersCopyThem) {
  has_.clear();  // without replicas
  const Layout layout = from({0, 1}, {0}, false);
  EXPECT_THAT(layout.map.ps, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(layout.target.ps, Each(0));
  EXPECT_THAT(layout.copies, ElementsAre(Pair(0, ElementsAre(4, 5))));
  EXPECT_THAT(layout.replicas, IsEmpty());
  EXPECT_EQ(layout.map.servers, (std::set<int>{0, 1}));
  EXPECT_EQ(layout.target.servers, std::set<int>{0});
}

// Who has its replicas holds them at once.
TEST_F(LayoutTest, AServerThatLeavesIsNotNeededWhereThereAreReplicas) {
  const Layout layout = from({0}, {0});
  EXPECT_THAT(layout.map.ps, Each(0));
  EXPECT_THAT(layout.copies, ElementsAre(Pair(kWorkerKeeper, ElementsAre(2, 3, 4, 5))));
  EXPECT_THAT(layout.replicas, ElementsAre(kWorkerKeeper, kWorkerKeeper, -1, -1, -1, -1));
}

// It holds nothing, so who is to hold the parts gets them before the epoch begins.
TEST_F(LayoutTest, TheWorkerThatKeepsAnOnlyServersReplicasGivesThemAtOnce) {
  before_ = initialMap(chunks_, 1);
  for (ChunkLoad& chunk : chunks_) chunk.ps = 0;
  before_.ps.assign(6, 0);
  givers_.assign(6, kWorkerKeeper);
  has_.clear();
  const Layout layout = from({0}, {0});
  EXPECT_THAT(layout.map.ps, Each(0));
  EXPECT_THAT(layout.replicas, Each(kWorkerKeeper));
  EXPECT_THAT(layout.copies, IsEmpty());
}

TEST_F(LayoutTest, TheFirstWorkerKeepsAPartsReplicaUntilASecondServerHasCopiedIt) {
  before_ = initialMap(chunks_, 1);
  before_.ps.assign(6, 0);
  givers_.assign(6, 0);
  has_.clear();
  for (std::uint32_t part = 2; part < 6; ++part) has_.insert({kWorkerKeeper, part});
  const Layout layout = from({0, 1}, {0, 1});
  EXPECT_THAT((std::vector<int>{layout.map.ps.begin() + 2, layout.map.ps.end()}), Each(0));
  EXPECT_THAT((std::vector<int>{layout.replicas.begin() + 2, layout.replicas.end()}),
              Each(kWorkerKeeper));
  EXPECT_THAT(layout.copies, ElementsAre(Pair(1, ElementsAre(2, 3, 4, 5))))
      << "two are its own, two it keeps";
}

}  // namespace
}  // namespace trainyard::runtime
