// Every role dies at every point of the protocol that has a failpoint, of a deterministic job: no
// step is lost, and the weights are bit for bit those of a job that nobody disturbed. KILL_PLAN in
// the environment picks one of the jobs.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>

#include "fmt/format.h"
#include "tests/multiproc/faults/held_run.h"
#include "tests/multiproc/side_by_side.h"

namespace trainyard {
namespace {

constexpr int kKillPointsWorkers = 3;
constexpr int kKillPointsSteps = 400;
constexpr std::size_t kLeastPairs = 25;
// An evaluation every 10 steps, and a checkpoint each second.
constexpr int kScored = 40;

struct Plan {
  std::string name;
  int ps = 0;  // 0: AllReduce
  Strokes strokes;
  int spare = 0;         // victims that the job may end without
  std::string update{};  // of workers that do not wait for each other

  std::string yaml() const {
    if (!update.empty()) return asynchronousJob(ps, kKillPointsSteps, update);
    return smallJob(std::max(ps, 1), kKillPointsWorkers, kKillPointsSteps) +
           "    evaluateEverySteps: 10\n    checkpoint: {everySeconds: 1}\n"
           "  runPolicy: {backoffLimit: 1000}\n";
  }
};

// A place whose number is 0 here is one that a life comes to while the job gets over the death of
// the life before.
std::vector<Plan> plans() {
  return {
      {"two servers, coming back",
       2,
       {{"ps-0", "ps.request", 10},
        {"ps-0", "ps.prepare"},
        {"ps-0", "ps.fetch"},
        {"ps-0", "coordinator.commit", 1},
        {"ps-1", "ps.request", 20},
        {"ps-1", "ps.prepare"},
        {"ps-1", "ps.fetch"},
        {"ps-1", "ps.snapshot", 1},
        {"worker-0", "worker.compute", 30},
        {"worker-0", "worker.start"},
        {"worker-0", "worker.evaluate", kScored},
        {"worker-1", "worker.push", 14},
        {"worker-1", "worker.start"},
        {"worker-1", "member.prepare"},
        {"worker-1", "worker.evaluate", kScored},
        {"agent/worker-2", "worker.push", 24},
        {"worker-2", "worker.finished"}},
       1},
      {"two servers, replicas",
       2,
       {{"ps-0", "ps.replica", 10},
        {"ps-0", "ps.fetch.replica"},
        {"ps-0", "coordinator.evaluated", kScored},
        {"ps-0", "coordinator.finish"},
        {"ps-1", "ps.replica", 20},
        {"ps-1", "ps.fetch.replica"},
        {"ps-1", "ps.prepared"},
        {"ps-1", "ps.capture", 1},
        {"ps-1", "checkpoint.shard.rename", 1},
        {"worker-0", "worker.push", 14},
        {"worker-0", "member.seal"},
        {"worker-0", "worker.step", 30},
        {"agent/worker-1", "worker.compute", 24},
        {"worker-1", "worker.step", 34},
        {"worker-1", "member.seal"},
        {"agent/ps-1", "ps.request", 44}},
       0},
      {"three servers",
       3,
       {{"ps-0", "ps.replicated", 10},
        {"ps-0", "member.seal"},
        {"ps-0", "checkpoint.manifest.commit", 1},
        {"agent/ps-0", "ps.request", 44},
        {"ps-1", "ps.replicated", 20},
        {"ps-1", "member.seal"},
        {"ps-1", "member.begin"},
        {"ps-1", "checkpoint.shard.write", 1},
        {"ps-2", "ps.answer", 30},
        {"agent/worker-0", "worker.push", 14},
        {"worker-0", "member.begin"},
        {"worker-0", "worker.finished"},
        {"worker-0", "worker.left"},
        {"worker-1", "worker.compute", 24},
        {"worker-1", "member.begin"}},
       1},
      {"one server",
       1,
       {{"ps-0", "ps.request", 10},
        {"ps-0", "ps.prepare"},
        {"ps-0", "ps.fetch"},
        {"ps-0", "ps.replicated", 30},
        {"ps-0", "coordinator.commit", 1},
        {"agent/ps-0", "ps.request", 54},
        {"worker-0", "ps.replica", 20},
        {"worker-0", "ps.prepare"},
        {"worker-0", "ps.fetch.replica"},
        {"worker-0", "ps.prepared"},
        {"worker-0", "worker.push", 44},
        {"agent/worker-0", "ps.replica", 64},
        {"worker-1", "worker.push", 24},
        {"ps-0", "coordinator.finish"}},
       0},
      {"all-reduce",
       0,
       {{"worker-0", "worker.push", 34},
        {"worker-0", "ring.receive"},
        {"worker-0", "coordinator.commit", 1},
        {"agent/worker-0", "worker.compute", 54},
        {"worker-1", "worker.push", 10},
        {"worker-1", "worker.start"},
        {"worker-1", "ring.prepare"},
        {"worker-1", "ring.prepared"},
        {"worker-1", "worker.evaluate", kScored},
        {"worker-2", "ring.apply", 20},
        {"worker-2", "member.seal"},
        {"worker-2", "ring.receive"},
        {"worker-2", "ring.applied", 30},
        {"agent/worker-2", "worker.compute", 44},
        {"worker-1", "worker.finished"}},
       1},
      {"all-reduce, the coordinator",
       0,
       {{"worker-0", "ring.apply", 10},
        {"worker-0", "member.seal"},
        {"worker-0", "ring.prepare"},
        {"worker-0", "ps.snapshot", 1},
        {"worker-0", "coordinator.evaluated", kScored},
        {"worker-0", "coordinator.finish"},
        {"agent/worker-1", "worker.push", 24}},
       0},
      {"asynchronous, two servers",
       2,
       {{"ps-0", "ps.request", 10},
        {"ps-0", "ps.prepare"},
        {"ps-0", "ps.fetch"},
        {"ps-0", "coordinator.commit", 1},
        {"ps-0", "ps.replica", 50},
        {"ps-0", "ps.replicated", 90},
        {"agent/ps-0", "ps.request", 120},
        {"ps-0", "coordinator.finish"},
        {"ps-1", "ps.request", 30},
        {"ps-1", "ps.fetch.replica"},
        {"ps-1", "ps.replicated", 70}},
       0,
       "{mode: Async}"},
      {"bounded delay, one server",
       1,
       {{"ps-0", "ps.request", 10},
        {"ps-0", "ps.prepare"},
        {"ps-0", "ps.fetch"},
        {"ps-0", "coordinator.commit", 1},
        {"ps-0", "ps.replicated", 60},
        {"agent/ps-0", "ps.request", 100},
        {"ps-0", "coordinator.finish"}},
       0,
       "{mode: BoundedDelay, maxDelay: 4}"},
  };
}

class KillPoints : public RunTest {
 protected:
  std::string digestOf(const Plan& plan) {
    Plan undisturbed = plan;
    undisturbed.ps = 2;
    if (plan.update.empty()) return undisturbedDigest(undisturbed.yaml());
    undisturbed.update = "{mode: Async}";
    return undisturbedDigest(undisturbed.yaml(), inCommonSteps());
  }
  // What is not as it should be, or "".
  std::string carryOut(const Plan& plan, const std::string& name, const std::string& digest,
                       std::vector<Kill>& kills) {
    std::vector<std::string> flags;
    if (plan.ps == 0) flags = {"--set", "strategy=AllReduce", "--set", "ps="};
    HeldRun run(folder(name), plan.yaml(), flags, kKillPointsWorkers, plan.strokes);
    if (plan.ps == 0) run.inRing();
    const std::string problem =
        run.run(kBackAtOnce + failpointsOf(plan.strokes), kKillPointsSteps, digest, plan.spare);
    kills = run.kills();
    return problem;
  }
};

TEST_F(KillPoints, LoseNoStep) {
  std::vector<Plan> all = plans();
  if (const char* only = std::getenv("KILL_PLAN"))
    std::erase_if(all, [&](const Plan& plan) { return plan.name != only; });
  std::vector<std::string> digests;
  for (const Plan& plan : all) digests.push_back(digestOf(plan));
  std::vector<std::vector<Kill>> kills(all.size());
  std::vector<std::string> problems(all.size());
  sideBySide(all.size(), [&](std::size_t i) {
    problems[i] = carryOut(all[i], fmt::format("job-{}", i), digests[i], kills[i]);
  });
  std::set<std::tuple<bool, std::string, std::string>> pairs;
  std::size_t count = 0;
  std::int64_t lost = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    fmt::print("{}: {}\n", all[i].name, problems[i].empty() ? "as it should be" : problems[i]);
    EXPECT_EQ(problems[i], "") << all[i].name;
    for (const Kill& kill : kills[i]) {
      fmt::print("{}\n", lineOf(kill));
      pairs.emplace(all[i].ps == 0, kill.victim, kill.place);
      lost += kill.lost;
      ++count;
    }
  }
  fmt::print("{} pairs of role and failpoint, {} kills, {} steps lost\n", pairs.size(), count,
             lost);
  EXPECT_EQ(lost, 0);
  const std::size_t least = std::getenv("KILL_PLAN") == nullptr ? kLeastPairs : 1;
  EXPECT_GE(pairs.size(), least);
}

}  // namespace
}  // namespace trainyard
