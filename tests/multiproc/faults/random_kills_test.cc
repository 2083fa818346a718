// Twenty kills at random moments of one run of a deterministic job, of programs and agents: no step
// is lost, and the weights are bit for bit those of a job that nobody disturbed. KILL_SEED in the
// environment repeats the choices of a run.
#include <cstdlib>

#include "base/core/rng.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "tests/multiproc/faults/killed_run.h"
#include "tests/multiproc/side_by_side.h"

namespace trainyard {
namespace {

constexpr int kKills = 20;
constexpr int kStepMillis = 20;
constexpr int kMostSteps = 8;  // between a recovery and the next kill
// Far more than come between the kills, also where a look at the job comes late.
constexpr int kRandomKillsSteps = 500;
constexpr Duration kRandomKillsPatience = std::chrono::seconds(300);  // a bound against hangs only

struct Job {
  std::string name;
  int ps = 0;  // 0: AllReduce
  int workers = 3;
  std::string update{};  // of workers that do not wait for each other

  std::string yaml() const {
    if (!update.empty()) return asynchronousJob(ps, kRandomKillsSteps, update);
    return smallJob(std::max(ps, 1), workers, kRandomKillsSteps) +
           "    checkpoint: {everySeconds: 1}\n  runPolicy: {backoffLimit: 1000}\n";
  }
  std::vector<std::string> flags() const {
    if (ps > 0) return {};
    return {"--set", "strategy=AllReduce", "--set", "ps="};
  }
  std::vector<std::string> victims() const {
    std::vector<std::string> tasks;
    for (int i = 0; i < ps; ++i) tasks.push_back(fmt::format("ps-{}", i));
    // Without common steps a worker's death may cost its push.
    for (int i = 0; i < workers && update.empty(); ++i)
      tasks.push_back(fmt::format("worker-{}", i));
    return tasks;
  }
};

// More workers where fewer tasks die.
std::vector<Job> jobs() {
  return {{.name = "2 parameter servers", .ps = 2},
          {.name = "3 parameter servers", .ps = 3},
          {.name = "all-reduce", .ps = 0, .workers = 5},
          {.name = "1 parameter server", .ps = 1, .workers = 4},
          {.name = "asynchronous, 2 parameter servers", .ps = 2, .update = "{mode: Async}"}};
}

std::uint64_t chosenSeed() {
  const char* given = std::getenv("KILL_SEED");
  if (given == nullptr) return static_cast<std::uint64_t>(systemClock().unixMillis() % 1'000'000);
  return parseNumber<std::uint64_t>(given).value_or(0);
}

class RandomKills : public RunTest {
 protected:
  // Of parameter servers: a deterministic job gives the same bits without them, and with any
  // number.
  static std::string undisturbed(Job job) {
    job.ps = 2;
    if (job.update.empty()) return undisturbedDigest(job.yaml());
    return undisturbedDigest(job.yaml(), inCommonSteps());
  }
  // What is not as it should be, or "".
  static std::string disturb(KilledRun& run, const Job& job, std::uint64_t seed) {
    Rng random(seed);
    const std::vector<std::string> tasks = job.victims();
    for (int i = 0; i < kKills; ++i) {
      const Waited goes_on = eventually([&] { return run.recovered(); }, kRandomKillsPatience);
      if (!goes_on) return "the job does not go on: " + goes_on.trouble();
      const std::int64_t step =
          run.newest().step + 1 + static_cast<std::int64_t>(random.below(kMostSteps));
      const Waited came =
          eventually([&] { return run.newest().step >= step; }, kRandomKillsPatience);
      if (!came) return fmt::format("the job never came to step {}: {}", step, came.trouble());
      const auto within = std::chrono::microseconds(random.below(kStepMillis * 1000));
      pollUntil({}, systemClock().now() + within);
      const std::string task = tasks[random.below(tasks.size())];
      const bool agent = random.below(5) == 0;
      const std::string problem = run.kill(agent ? "agent/" + task : task, "a random moment");
      if (!problem.empty()) return problem;
    }
    return "";
  }
  std::string carryOut(const Job& job, const std::string& name, std::uint64_t seed,
                       const std::string& digest, std::vector<Kill>& kills) {
    KilledRun run(folder(name), job.yaml(), job.flags(), job.workers);
    if (job.ps == 0) run.inRing();
    run.job().launch(fmt::format("{}worker.compute=delay({}){}", kBackAtOnce, kStepMillis,
                                 run.job().untilReleased()));
    std::string problem = disturb(run, job, seed);
    run.job().releaseSteps();
    if (problem.empty()) problem = run.end(kRandomKillsSteps, digest, 0);
    if (!problem.empty()) run.job().printLogs();
    kills = run.kills();
    return problem;
  }
};

TEST_F(RandomKills, LoseNoStep) {
  const std::uint64_t seed = chosenSeed();
  fmt::print("KILL_SEED={}\n", seed);
  const std::vector<Job> all = jobs();
  std::vector<std::string> digests;
  for (const Job& job : all) digests.push_back(undisturbed(job));
  std::vector<std::vector<Kill>> kills(all.size());
  std::vector<std::string> problems(all.size());
  sideBySide(all.size(), [&](std::size_t i) {
    problems[i] = carryOut(all[i], fmt::format("job-{}", i), seed + i, digests[i], kills[i]);
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int64_t lost = 0;
    for (const Kill& kill : kills[i]) {
      fmt::print("{}\n", lineOf(kill));
      lost += kill.lost;
    }
    fmt::print("{}: {} kills, {} steps lost, {}\n", all[i].name, kills[i].size(), lost,
               problems[i].empty() ? "digest equal" : problems[i]);
    EXPECT_EQ(problems[i], "") << all[i].name;
    EXPECT_EQ(kills[i].size(), static_cast<std::size_t>(kKills));
    EXPECT_EQ(lost, 0);
  }
}

}  // namespace
}  // namespace trainyard
