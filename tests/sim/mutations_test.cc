// What it takes to notice that the protocol is broken: each mutation, in a world that is apt to
// notice it, within a number of seeds with which the protocol as it is has no flaw.
#include <gtest/gtest.h>

#include "fmt/format.h"
#include "tests/sim/run_world.h"

namespace trainyard::sim {
namespace {

constexpr std::uint64_t kSeeds = 500;
constexpr Duration kLimit = std::chrono::minutes(5);

struct Case {
  Mutation mutation;
  std::string name;
  WorldConfig (*config)(std::uint64_t seed);
  bool may_lose_steps = false;        // without the mutation
  std::string outcome = "succeeded";  // the same
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

// What is wrong with a run; "": nothing.
std::string flaw(const WorldConfig& config, const Case& expected) {
  const WorldResult result = World(config).run();
  if (!result.problem.empty()) return result.problem;
  if (result.outcome != expected.outcome) return "the job has " + result.outcome;
  if (result.lost_steps > 0 && !expected.may_lose_steps)
    return fmt::format("{} steps are lost", result.lost_steps);
  return "";
}

// Servers that die one at a time.
WorldConfig deaths(std::uint64_t seed) {
  WorldConfig config = deathsOneByOne(seed);
  config.small_chunks = true;
  return config;
}

// Without replicas, or several at a time.
WorldConfig rollsBack(std::uint64_t seed) {
  return {.seed = seed * 1009,
          .ps = 1 + static_cast<int>(seed % 3),
          .workers = 1 + static_cast<int>(seed % 3),
          .kills = 5,
          .drop = seed % 3 == 0 ? 0.03 : 0.0,
          .duplicate = 0.05};
}

WorldConfig deathsOfWorkers(std::uint64_t seed) {
  return {.seed = seed * 911,
          .ps = 1 + static_cast<int>(seed % 3),
          .workers = 2 + static_cast<int>(seed % 2),
          .kills = 4,
          .kill_ps = false,
          .drop = seed % 4 == 0 ? 0.03 : 0.0,
          .duplicate = 0.05};
}

WorldConfig workersComeAndGo(std::uint64_t seed) {
  return {.seed = seed * 271,
          .steps = 60,
          .max_delay = std::chrono::milliseconds(100),
          .scalings = 6,
          .scale_within = std::chrono::milliseconds(1000)};
}

WorldConfig deathsWhileItScales(std::uint64_t seed) {
  return {.seed = seed * 911,
          .ps = 1 + static_cast<int>(seed % 3),
          .workers = 1 + static_cast<int>(seed % 4),
          .passes = 2,
          .samples = 300,
          .batch = 3,
          .kills = 5,
          .kill_ps = false,
          .kill_within = std::chrono::milliseconds(600),
          .drop = seed % 2 == 0 ? 0.1 : 0.0,
          .duplicate = 0.05,
          .scalings = 4};
}

WorldConfig serversComeAndGo(std::uint64_t seed) {
  return {.seed = seed * 101,
          .ps = 1 + static_cast<int>(seed % 3),
          .workers = 1 + static_cast<int>(seed % 3),
          .steps = 60,
          .drop = seed % 4 == 0 ? 0.03 : 0.0,
          .duplicate = 0.05,
          .ps_scalings = 4,
          .max_ps = 4};
}

WorldConfig asynchronous(std::uint64_t seed) {
  return {.seed = seed * 13,
          .ps = 1 + static_cast<int>(seed % 3),
          .steps = 60,
          .tickets = runtime::TicketRules{},
          .drop = 0.03,
          .duplicate = 0.05};
}

WorldConfig asynchronousServersComeAndGo(std::uint64_t seed) {
  WorldConfig config = asynchronous(seed);
  config.drop = 0.1;
  config.kills = 5;
  config.kill_ps = false;
  config.kill_within = std::chrono::milliseconds(600);
  config.ps_scalings = 4;
  config.max_ps = 4;
  return config;
}

// Servers that die one at a time; pushes have replicas.
WorldConfig asynchronousDeaths(std::uint64_t seed) {
  WorldConfig config = deaths(seed);
  config.workers = 3;
  config.deterministic = false;
  config.tickets = runtime::TicketRules{.aggregate = 1 + static_cast<int>(seed % 2)};
  config.replicate_pushes = true;
  config.kill_workers = false;
  return config;
}

// Of an only server, whose ledger is with its chunks at the first worker.
WorldConfig boundedDeaths(std::uint64_t seed) {
  WorldConfig config = asynchronousDeaths(seed);
  config.ps = 1;
  config.tickets = runtime::TicketRules{.max_delay = 2};
  return config;
}

template <WorldConfig (*kConfig)(std::uint64_t)>
WorldConfig withTables(std::uint64_t seed) {
  WorldConfig config = kConfig(seed);
  config.tables = true;
  return config;
}

WorldConfig readsRowsInItsSteps(std::uint64_t seed) {
  WorldConfig config = withTables<deathsOfWorkers>(seed);
  config.unforeseen = true;
  return config;
}

WorldConfig withDeltas(std::uint64_t seed) {
  WorldConfig config{.seed = seed * 91, .steps = 90};
  config.tables = true;
  config.deltas = true;
  return config;
}

WorldConfig stops(std::uint64_t seed) {
  return {.seed = seed * 77,
          .steps = 200,
          .stop_at = std::chrono::milliseconds(100 + 10 * (seed % 40))};
}

const std::vector<Case>& cases() {
  using enum Mutation;
  static const std::vector<Case> all{
      {kRepeatIsNew, "RepeatIsNew", asynchronous},
      {kRepeatedRowsAreNew, "RepeatedRowsAreNew", withTables<asynchronous>},
      {kOneRankTwice, "OneRankTwice", deathsOfWorkers},
      {kCutGradientCounts, "CutGradientCounts", deathsOfWorkers},
      {kCutWeightsCount, "CutWeightsCount", deathsOfWorkers},
      {kCutWeightsCount, "CutWeightsCountWhileServersChange", serversComeAndGo},
      {kSealClaimed, "SealClaimed", deathsWhileItScales},
      {kPreparedClaimed, "PreparedClaimed", serversComeAndGo},
      {kVersionClaimed, "VersionClaimed", deathsOfWorkers},
      {kRestClaimed, "RestClaimed", stops, false, "stopped"},
      {kWrittenClaimed, "WrittenClaimed", deathsOfWorkers},
      {kBegunNotTold, "BegunNotTold", deaths},
      {kHighestNotTold, "HighestNotTold", deaths},
      {kFormerSealCounts, "FormerSealCounts", deaths},
      {kSuccessorAlike, "SuccessorAlike", deaths},
      {kRevisionsDisordered, "RevisionsDisordered", workersComeAndGo},
      {kConfirmsEarly, "ConfirmsEarly", deaths},
      {kReplicaForgets, "ReplicaForgets", deaths},
      {kConfirmsEarly, "PushConfirmedEarly", asynchronousDeaths},
      {kReplicaForgets, "PushForgotten", asynchronousDeaths},
      {kBegunNotTold, "LedgerOfTheBeginNotTold", asynchronousDeaths},
      {kPushesNotTold, "PushesNotTold", asynchronousDeaths},
      {kHandsNotTold, "HandsNotTold", asynchronousDeaths},
      {kHandsNotTold, "HandsNotToldOfAnOnlyServer", boundedDeaths},
      {kReplicaRoundedUp, "ReplicaRoundedUp", deaths},
      {kMovedWithoutSlots, "MovedWithoutSlots", serversComeAndGo},
      {kMovedFormer, "MovedFormer", serversComeAndGo},
      {kMovedWithoutPushes, "MovedWithoutPushes", asynchronousServersComeAndGo},
      {kLeaverNotAwaited, "LeaverNotAwaited", serversComeAndGo},
      {kLedgerForgotten, "LedgerForgotten", rollsBack, true},
      {kPositionForgotten, "PositionForgotten", rollsBack, true},
      {kEndToldEarly, "EndToldEarly", rollsBack, true},
      {kRowsNotLoaded, "RowsNotLoaded", withTables<rollsBack>, true},
      {kConfirmsEarly, "RowsConfirmedEarly", withTables<deaths>},
      {kReplicaForgets, "RowsForgotten", withTables<deaths>},
      {kReplicaForgets, "PushedRowsForgotten", withTables<asynchronousDeaths>},
      {kReplicaRoundedUp, "RowsRoundedUp", withTables<deaths>},
      {kMovedFormer, "RowsMovedWithoutTheirUpdate", withTables<serversComeAndGo>},
      {kCopyMissesUpdate, "CopyMissesUpdate", withTables<deaths>},
      {kCopyMissesUpdate, "CopyMissesPush", withTables<asynchronousDeaths>},
      {kGoneForgotten, "GoneForgotten", withDeltas},
      {kFormerRowsForgotten, "FormerRowsForgotten", readsRowsInItsSteps},
      {kQuestionIsNew, "QuestionIsNew", asynchronous},
  };
  return all;
}

class Mutations : public testing::TestWithParam<Case> {};

TEST_P(Mutations, IsCaught) {
  const Case& broken = GetParam();
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    WorldConfig config = broken.config(seed);
    config.limit = kLimit;
    ASSERT_EQ(flaw(config, broken), "") << "without the mutation, seed " << seed;
    config.mutation = broken.mutation;
    const std::string found = flaw(config, broken);
    if (found.empty()) continue;
    fmt::print("{}: caught at seed {}: {}\n", broken.name, seed, found);
    return;
  }
  FAIL() << broken.name << " was not noticed in " << kSeeds << " seeds";
}

INSTANTIATE_TEST_SUITE_P(Protocol, Mutations, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trainyard::sim
