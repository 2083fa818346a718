// What the update modes promise, on workers that only take the time of a step: who waits for whom,
// how far apart they get, and that nothing is counted twice or forgotten.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kUpdateModesWorkers = 4;
constexpr int kSlowest = 3;
constexpr Duration kUpdateModesPatience = std::chrono::seconds(300);  // against hangs only

// One of the four takes six times as long as the others.
std::string slowOne(double step_seconds) {
  return fmt::format("worker.compute=delay({}),task=worker-{}", std::lround(step_seconds * 5000),
                     kSlowest);
}

std::string simulatedJob(const std::string& update, double step_seconds, int steps) {
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: simulated}}
spec:
  ps: {{replicas: 2}}
  worker: {{replicas: {}}}
  training:
    model: {{name: mlp, hidden: [8], simulatedStepSeconds: {}}}
    data: {{format: synthetic, shape: [8, 8, 1], classes: 4, samples: 3000, evalSamples: 100}}
    batchSize: 2
    steps: {}
    optimizer: {{name: SGD, learningRate: 0.5}}
    update: {}
)",
                     kUpdateModesWorkers, step_seconds, steps, update);
}

std::string workerName(int worker) {
  return fmt::format("worker-{}", worker);
}

// Which worker made each push, by the push's number.
std::map<std::int64_t, int> makersOf(const JobRun& run) {
  std::map<std::int64_t, int> makers;
  for (int w = 0; w < kUpdateModesWorkers; ++w) {
    for (const PositionRecord& record : run.positions(workerName(w))) {
      EXPECT_TRUE(makers.emplace(record.step, w).second) << "push " << record.step << " twice";
    }
  }
  return makers;
}

// How many times each worker was seen to go on, and when.
class Pace {
 public:
  void look(const JobRun& run) {
    const TimePoint now = systemClock().now();
    for (int w = 0; w < kUpdateModesWorkers; ++w) {
      std::vector<TimePoint>& seen = seen_[static_cast<std::size_t>(w)];
      seen.resize(std::max(seen.size(), run.positions(workerName(w)).size()), now);
    }
  }
  // Seconds between two steps of the workers that are not slow. Over some steps each: a look comes
  // every 15 ms at best, which alone would be more than what is told apart by it.
  double median() const {
    std::vector<double> all;
    for (int w = 0; w < kSlowest; ++w) {
      const std::vector<TimePoint>& seen = seen_[static_cast<std::size_t>(w)];
      // The first steps are of processes that come up one after another.
      for (std::size_t i = 2 + kSteps; i < seen.size(); ++i) {
        all.push_back(toSeconds(seen[i] - seen[i - kSteps]) / kSteps);
      }
    }
    if (all.empty()) return 0;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                     all.end());
    return all[all.size() / 2];
  }

 private:
  static constexpr std::size_t kSteps = 8;
  std::vector<std::vector<TimePoint>> seen_ =
      std::vector<std::vector<TimePoint>>(kUpdateModesWorkers);
};

class UpdateModesTest : public RunTest {
 protected:
  static std::map<std::string, std::string> succeeded(JobRun& run, int steps) {
    const ProgramEnd end = run.wait(kUpdateModesPatience);
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", steps)));
    return fieldsOf(end.lastLine());
  }
  // Two jobs at the same time, so that what else this machine does slows down both; the pace of
  // both is that while both run, because the one that is left alone has the machine for itself.
  static void watch(std::vector<std::pair<JobRun*, Pace*>> runs) {
    const auto ended = [](JobRun& run) {
      const auto state = run.launcher().poll();
      return !state.ok() || state->has_value();
    };
    EXPECT_TRUE(eventually(
        [&] {
          pollUntil({}, systemClock().now() + std::chrono::milliseconds(15));
          std::size_t over = 0;
          for (auto& [run, pace] : runs) over += ended(*run) ? 1 : 0;
          for (auto& [run, pace] : runs) {
            if (over == 0) pace->look(*run);
          }
          return over == runs.size();
        },
        kUpdateModesPatience));
  }
};

// The step with one backup worker is that of the three that are not slow.
TEST_F(UpdateModesTest, WithABackupWorkerNobodyWaitsForTheSlowOne) {
  constexpr double kStep = 0.25;
  constexpr int kSteps = 30;
  JobRun even(folder("even"), simulatedJob("{mode: Sync}", kStep, kSteps));
  JobRun backup(folder("backup"), simulatedJob("{mode: Sync, backupWorkers: 1}", kStep, kSteps));
  Pace even_pace, backup_pace;
  even.launch();
  backup.launch(slowOne(kStep));
  watch({{&even, &even_pace}, {&backup, &backup_pace}});
  EXPECT_FALSE(succeeded(even, kSteps).contains("skipped"));
  auto result = succeeded(backup, kSteps);
  EXPECT_GE(even_pace.median(), kStep * 0.9);
  EXPECT_LE(backup_pace.median(), 1.2 * even_pace.median());
  fmt::print("step {:.3f} s undisturbed, {:.3f} s with a slow one and a backup worker\n",
             even_pace.median(), backup_pace.median());

  // Three gradients a step; each one that was computed was taken or came too late.
  std::int64_t taken = 0, too_late = 0, lines = 0;
  for (int w = 0; w < kUpdateModesWorkers; ++w) {
    const std::string log = backup.taskLog(workerName(w));
    const std::size_t at = log.rfind(" gradients were taken, ");
    ASSERT_NE(at, std::string::npos) << log;
    const std::size_t begin = log.find_last_of(" ]\t\"", at - 1) + 1;
    taken += std::stoll(log.substr(begin, at - begin));
    too_late += std::stoll(log.substr(log.find(',', at) + 1));
    lines += static_cast<std::int64_t>(backup.positions(workerName(w)).size());
  }
  EXPECT_EQ(taken, kSteps * (kUpdateModesWorkers - 1));
  EXPECT_EQ(lines, taken);
  EXPECT_GT(too_late, 0);
  EXPECT_EQ(result["skipped"], fmt::to_string(too_late));
  EXPECT_EQ(backup.json("result.json").value("skipped", -1), too_late);
  const ProgramEnd get = program({"trainyard", "get", backup.dir().string(), "-o", "json"});
  const auto json = nlohmann::json::parse(get.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << get.output;
  EXPECT_EQ(json.at("run").value("skipped", -1), too_late);
}

TEST_F(UpdateModesTest, AsyncTakesExactlyItsPushesAndTheFastKeepTheirRate) {
  constexpr double kStep = 0.25;
  constexpr int kSteps = 90;
  JobRun even(folder("even"), simulatedJob("{mode: Async}", kStep, kSteps));
  JobRun slow(folder("slow"), simulatedJob("{mode: Async}", kStep, kSteps));
  Pace even_pace, slow_pace;
  even.launch();
  slow.launch(slowOne(kStep));
  watch({{&even, &even_pace}, {&slow, &slow_pace}});
  succeeded(even, kSteps);
  auto result = succeeded(slow, kSteps);
  fmt::print("push every {:.3f} s undisturbed, {:.3f} s beside a slow one\n", even_pace.median(),
             slow_pace.median());
  EXPECT_GE(even_pace.median(), kStep * 0.9);
  EXPECT_LE(slow_pace.median() * 0.95, even_pace.median());
  for (const JobRun* run : {&even, &slow}) {
    const auto makers = makersOf(*run);
    EXPECT_EQ(makers.size(), static_cast<std::size_t>(kSteps));
    EXPECT_EQ(makers.rbegin()->first, kSteps - 1);
  }
  EXPECT_EQ(result["partial"], "0");
  EXPECT_GT(std::stoi(result["spread"]), 4);
}

// The clocks as the numbers of the pushes tell them.
struct Clocks {
  std::vector<std::int64_t> of = std::vector<std::int64_t>(kUpdateModesWorkers, 0);
  std::int64_t least() const { return *std::min_element(of.begin(), of.end()); }
  std::int64_t most() const { return *std::max_element(of.begin(), of.end()); }
};

class BoundedDelayTest : public UpdateModesTest {
 protected:
  static constexpr int kDelay = 4;
  static constexpr int kSteps = 48;

  // Who made the pushes, in their order; the bound holds at each of them and is reached.
  std::vector<int> makers(const std::string& stop) {
    JobRun run(
        folder(stop),
        simulatedJob(fmt::format("{{mode: BoundedDelay, maxDelay: {}, stop: {}}}", kDelay, stop),
                     0.05, kSteps));
    run.launch(slowOne(0.05));
    auto result = succeeded(run, kSteps);
    EXPECT_EQ(result["spread"], fmt::to_string(kDelay));
    EXPECT_EQ(result["partial"], "0");
    std::vector<int> order;
    Clocks clocks;
    std::int64_t widest = 0;
    for (const auto& [push, worker] : makersOf(run)) {
      EXPECT_EQ(push, static_cast<std::int64_t>(order.size()));
      order.push_back(worker);
      ++clocks.of[static_cast<std::size_t>(worker)];
      widest = std::max(widest, clocks.most() - clocks.least());
    }
    EXPECT_EQ(order.size(), static_cast<std::size_t>(kSteps));
    EXPECT_EQ(widest, kDelay);
    return order;
  }
  // How often somebody got ahead of the fastest before all had caught up with him, after he had
  // reached the bound.
  static int overtakings(const std::vector<int>& makers) {
    Clocks clocks;
    std::int64_t stopped_at = -1;
    int count = 0;
    for (const int worker : makers) {
      ++clocks.of[static_cast<std::size_t>(worker)];
      count += stopped_at >= 0 && clocks.most() > stopped_at;
      if (stopped_at >= 0 && (clocks.least() >= stopped_at || clocks.most() > stopped_at))
        stopped_at = -1;
      if (stopped_at < 0 && clocks.most() - clocks.least() >= kDelay) stopped_at = clocks.most();
    }
    return count;
  }
};

TEST_F(BoundedDelayTest, TheSpreadReachesTheBoundAndStopAllStopsAll) {
  EXPECT_GT(overtakings(makers("Leaders")), 0);
  EXPECT_EQ(overtakings(makers("All")), 0);
}

}  // namespace
}  // namespace trainyard
