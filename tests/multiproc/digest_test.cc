// One deterministic job has one result: the digest over weights, slots and step does not depend on
// how many servers hold the model, how it is cut, or who is late.
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/multiproc/side_by_side.h"

namespace trainyard {
namespace {

// Whoever is late changes during the run: each worker in turn, then a server.
constexpr char kDelays[] =
    "worker.push=delay(4)@20-35,task=worker-0;worker.push=delay(4)@50-70,task=worker-1;"
    "worker.compute=delay(4)@90-110,task=worker-2;ps.request=delay(1)@120-130,task=ps-0";

class DigestTest : public RunTest {
 protected:
  std::string digestOf(const std::string& name, const std::string& yaml,
                       std::vector<std::string> sets, const std::string& failpoints) {
    std::vector<std::string> flags;
    for (const std::string& set : sets) {
      flags.insert(flags.end(), {"--set", set});
    }
    JobRun run(folder(name), yaml, flags);
    const ProgramEnd end = run.launchAndWait(failpoints);
    EXPECT_EQ(end.code, 0) << name;
    return end.code == 0 ? run.digest() : name + " failed";
  }
};

TEST_F(DigestTest, IsTheSameOnAnyNumberOfServersAndAnyPlacement) {
  const std::string want = digestOf("one", smallJob(1, 3, 200), {}, "");
  EXPECT_EQ(digestOf("two", smallJob(2, 3, 200), {}, kDelays), want);
  EXPECT_EQ(digestOf("three", smallJob(3, 3, 200), {}, kDelays), want);
  const std::map<std::string, std::vector<std::string>> placements = {
      {"RoundRobin", {}},
      {"FixedSize", {"training.placement.fixedSize.shards=2"}},
      {"MinMax",
       {"training.placement.minMax.maxShards=2", "training.placement.minMax.minBytes=1024"}}};
  for (const auto& [strategy, more] : placements) {
    std::vector<std::string> sets = more;
    sets.insert(sets.begin(), "training.placement.strategy=" + strategy);
    EXPECT_EQ(digestOf(strategy, smallJob(2, 3, 200), sets, kDelays), want) << strategy;
  }
  EXPECT_NE(digestOf("seed", smallJob(1, 3, 200), {"training.seed=4"}, ""), want)
      << "the digest sees weights";
}

// The convolutional network: LibTorch's kernels, dropout, and variables that are cut over servers.
TEST_F(DigestTest, IsTheSameForAConvolutionalNetwork) {
  const std::vector<std::string> sets = {"training.model={name: mnist_cnn, dropout: 0.5}",
                                         "training.data={format: synthetic, shape: [28, 28, 1], "
                                         "classes: 10, samples: 600, evalSamples: 50}"};
  const std::string want = digestOf("one", smallJob(1, 2, 8), sets, "");
  EXPECT_EQ(digestOf("two", smallJob(2, 2, 8), sets, "worker.push=delay(30)@2-5,task=worker-0"),
            want);
}

// A job may do without the copies that servers keep of each other's chunks: then a server that dies
// takes all back, to the same bits in the end.
TEST_F(DigestTest, StaysWhereAServerDiesThatNobodyHasACopyOf) {
  for (const bool replicated : {false, true}) {
    JobRun run(folder(replicated ? "auto" : "never"), smallJob(2, 2, 120),
               {"--set", std::string("training.chunkReplicas=") + (replicated ? "Auto" : "Never")});
    const ProgramEnd end = run.launchAndWait("ps.request=crash@60,task=ps-1,life=1.1");
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_EQ(run.digest(), undisturbedDigest(smallJob(2, 2, 120)));
    const std::int64_t lost = run.json("status.json")["status"].value("lostSteps", std::int64_t{0});
    EXPECT_EQ(lost > 0, !replicated) << lost;
  }
}

// Encrypted, and with nothing in shared memory, a server that dies loses no step either: of two,
// whose replica the other has, and an only one, whose worker-0 has.
TEST_F(DigestTest, IsTheSameWhenDataAreEncrypted) {
  for (const int servers : {1, 2}) {
    JobRun run(folder(fmt::format("servers-{}", servers)), smallJob(servers, 2, 120),
               {"--set", "network.encryption=TLS", "--set", "training.sharedMemory=Never"});
    const std::string failpoint =
        fmt::format("ps.request=crash@60,task=ps-{},life=1.1", servers - 1);
    const ProgramEnd end = run.launchAndWait(failpoint);
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_EQ(run.digest(), undisturbedDigest(smallJob(servers, 2, 120)));
    EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0);
  }
}

// Without `deterministic` gradients are summed as they come. Float addition is not associative, so
// (g0 + g1) + g2 and (g2 + g1) + g0 differ in their last bits; with 3 workers the order matters
// (with 2 it would not: a + b is b + a), and 60 steps of training make the difference grow.
TEST_F(DigestTest, ArrivalOrderCountsOnlyWithoutDeterminism) {
  const std::string up =
      "worker.compute=delay(15),task=worker-1;worker.compute=delay(30),task=worker-2";
  const std::string down =
      "worker.compute=delay(15),task=worker-1;worker.compute=delay(30),task=worker-0";
  const std::vector<std::string> loose = {"training.deterministic=false"};
  struct Run {
    std::string name;
    std::vector<std::string> sets;
    std::string delays;
    std::string digest = {};
  };
  std::vector<Run> runs = {
      {"up", loose, up}, {"down", loose, down}, {"strict-up", {}, up}, {"strict-down", {}, down}};
  sideBySide(runs.size(), [&](std::size_t i) {
    runs[i].digest = digestOf(runs[i].name, smallJob(1, 3, 60), runs[i].sets, runs[i].delays);
  });
  EXPECT_NE(runs[0].digest, runs[1].digest);
  EXPECT_EQ(runs[2].digest, runs[3].digest);
}

}  // namespace
}  // namespace trainyard
