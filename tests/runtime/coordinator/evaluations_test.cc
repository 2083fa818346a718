#include "runtime/coordinator/evaluations.h"

#include "tests/runtime/coordinator/parts_bench.h"

namespace trainyard::runtime {
namespace {

struct EvaluationsBench : PartsBench {
  using PartsBench::PartsBench;

  // A worker has scored its slice of a version under an epoch.
  void score(std::uint32_t rank, std::int64_t version, std::int64_t epoch = 1) {
    v1::EvaluationPart* part = worker(rank).mutable_worker()->add_evaluations();
    part->set_version(version);
    part->set_epoch(epoch);
    part->set_rank(rank);
    part->set_hits(10);
    part->set_samples(50);
  }
  // The versions whose scores become whole by it.
  std::vector<std::int64_t> follow() {
    say();
    evaluations.follow(membership, steps, out);
    std::vector<std::int64_t> versions;
    for (const EvaluationAction& action : said<EvaluationAction>())
      versions.push_back(action.evaluation.version());
    return versions;
  }
  // As members are told them.
  std::vector<std::int64_t> told() const {
    v1::View view;
    evaluations.tell(view);
    std::vector<std::int64_t> versions;
    for (const v1::Evaluation& one : view.earlier_evaluations()) versions.push_back(one.version());
    if (view.evaluation().samples() > 0) versions.push_back(view.evaluation().version());
    return versions;
  }
  using Versions = std::vector<std::int64_t>;
  Evaluations evaluations{config};
};

TEST(Evaluations, SixteenBeforeTheNewestAreTold) {
  EvaluationsBench b(1, 1);
  b.begin();
  EvaluationsBench::Versions last_seventeen;
  for (std::int64_t version = 1; version <= 20; ++version) {
    b.score(0, version);
    EXPECT_EQ(b.follow(), (EvaluationsBench::Versions{version}));
    if (version >= 4) last_seventeen.push_back(version);
  }
  EXPECT_EQ(b.told(), last_seventeen);
}

TEST(Evaluations, OfSeveralAtOnceEachIsWholeInItsOrder) {
  EvaluationsBench b;
  b.begin();
  for (const std::int64_t version : {30, 10, 20}) {
    b.score(0, version);
    if (version != 20) b.score(1, version);
  }
  EXPECT_EQ(b.follow(), (EvaluationsBench::Versions{10, 30}));
  b.score(1, 20);  // nobody looks at it any more
  EXPECT_EQ(b.follow(), EvaluationsBench::Versions());
  EXPECT_EQ(b.told(), (EvaluationsBench::Versions{10, 30}));
}

TEST(Evaluations, ARollBackTakesBackWhatIsBehindItAlone) {
  EvaluationsBench b(1, 1);
  b.begin();
  for (const std::int64_t version : {10, 20, 30}) b.score(0, version);
  EXPECT_EQ(b.follow(), (EvaluationsBench::Versions{10, 20, 30}));
  b.evaluations.rollBack(30);
  EXPECT_TRUE(b.evaluations.has(30)) << "the version itself is not taken again";
  b.evaluations.rollBack(20);
  b.evaluations.startAnew(2);
  EXPECT_FALSE(b.evaluations.has(30));
  EXPECT_EQ(b.told(), (EvaluationsBench::Versions{10, 20}));
  b.score(0, 30, 2);
  EXPECT_EQ(b.follow(), (EvaluationsBench::Versions{30}));
}

TEST(Evaluations, HalvesOfTwoHistoriesMakeNoWhole) {
  EvaluationsBench b;
  b.begin();
  b.score(0, 10);
  EXPECT_EQ(b.follow(), EvaluationsBench::Versions());
  b.evaluations.startAnew(2);
  b.score(1, 10, 2);
  EXPECT_EQ(b.follow(), EvaluationsBench::Versions());
  b.score(0, 10, 2);
  EXPECT_EQ(b.follow(), (EvaluationsBench::Versions{10}));
}

// With backup workers a version that others have left behind has one score; the last one has all.
TEST(Evaluations, TheLastVersionNeedsAllWorkersOfAJobWithBackups) {
  EvaluationsBench b(1, 2, [](CoordinatorConfig& c) { c.backup_workers = 1; });
  b.begin();
  b.score(0, 99);
  b.score(0, 100);
  EXPECT_EQ(b.follow(), (EvaluationsBench::Versions{99}));
  b.score(1, 100);
  EXPECT_EQ(b.follow(), (EvaluationsBench::Versions{100}));
}

}  // namespace
}  // namespace trainyard::runtime
