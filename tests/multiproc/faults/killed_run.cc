#include "tests/multiproc/faults/killed_run.h"

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr Duration kKilledRunPatience = std::chrono::seconds(300);  // a bound against hangs only
constexpr std::int64_t kTail = 512;  // holds the last lines of a record
constexpr std::string_view kAgent = "agent/";

}  // namespace

std::string asynchronousJob(int ps, int steps, const std::string& update) {
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: asynchronous}}
spec:
  ps: {{replicas: {}}}
  worker: {{replicas: 3}}
  runPolicy: {{backoffLimit: 1000}}
  training:
    model: {{name: mlp, hidden: [32], simulatedStepSeconds: 0.05}}
    data: {{format: synthetic, shape: [8, 8, 1], classes: 4, samples: 100000, evalSamples: 100}}
    batchSize: 16
    steps: {}
    optimizer: {{name: SGD, learningRate: 0.01}}
    update: {}
    chunkReplicas: Always
    evaluateEverySteps: 100
    checkpoint: {{everySeconds: 1}}
)",
                     ps, steps, update);
}

std::vector<std::string> inCommonSteps() {
  return {"--set", "training.update.mode=Sync", "--set",
          "training.model.simulatedStepSeconds=0.001"};
}

std::int64_t repeatedSteps(const JobRun& run, int workers) {
  std::int64_t most = 0;
  for (int w = 0; w < workers; ++w) {
    std::int64_t repeated = 0;
    std::set<std::int64_t> seen;
    for (const PositionRecord& record : run.positions(fmt::format("worker-{}", w))) {
      repeated += !seen.insert(record.step).second;
    }
    most = std::max(most, repeated);
  }
  return most;
}

std::int64_t stepsTakenTwice(const JobRun& run, int workers, int holders) {
  std::map<std::int64_t, int> twice;  // by step, workers
  for (int w = 0; w < workers; ++w) {
    std::map<std::int64_t, int> times;
    for (const PositionRecord& record : run.positions(fmt::format("worker-{}", w))) {
      if (++times[record.step] == 2) ++twice[record.step];
    }
  }
  return std::count_if(twice.begin(), twice.end(),
                       [&](const auto& step) { return step.second >= holders; });
}

std::string lineOf(const Kill& kill) {
  return fmt::format("killed {} at {} (step {}, epoch {}): lost {}", kill.victim, kill.place,
                     kill.step, kill.epoch, kill.lost);
}

KilledRun::KilledRun(const std::filesystem::path& dir, const std::string& yaml,
                     const std::vector<std::string>& flags, int workers)
    : workers_(workers), job_(dir, yaml, flags) {}

// Looked at often, so only the end of the file is read.
PositionRecord KilledRun::lastOf(int worker) const {
  PositionRecord last;
  last.step = -1;
  std::ifstream in(job_.taskDir(fmt::format("worker-{}", worker)) / "positions.jsonl",
                   std::ios::ate);
  if (!in) return last;
  in.seekg(std::max<std::int64_t>(0, static_cast<std::int64_t>(in.tellg()) - kTail));
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;  // its beginning was left out, or it is still being written
    last.step = json.at("step");
    last.epoch = json.at("epoch");
  }
  return last;
}

PositionRecord KilledRun::newest() const {
  PositionRecord newest = lastOf(0);
  for (int w = 1; w < workers_; ++w) {
    const PositionRecord other = lastOf(w);
    if (std::pair(other.epoch, other.step) > std::pair(newest.epoch, newest.step)) newest = other;
  }
  return newest;
}

std::string KilledRun::kill(const std::string& victim, const std::string& place) {
  const bool agent = victim.starts_with(kAgent);
  const std::string task = agent ? victim.substr(kAgent.size()) : victim;
  const pid_t runtime = job_.runtimePid(task);
  const pid_t pid = agent ? job_.agentPid(task) : runtime;
  const PositionRecord done = newest();
  if (runtime <= 0 || pid <= 0 || ::kill(pid, SIGKILL) != 0)
    return fmt::format("{} does not run", victim);
  kills_.push_back({victim, place, done.step + 1, done.epoch});
  // A program does not outlive its agent.
  const Waited gone = eventually([&] { return commandOf(runtime).empty(); }, kKilledRunPatience);
  return gone ? "" : fmt::format("the program of {} still runs: {}", victim, gone.trouble());
}

bool KilledRun::recovered() {
  if (recovered_ == kills_.size()) return true;
  if (newest().epoch <= kills_.back().epoch) return false;
  const std::int64_t repeated = lostSteps();
  kills_.back().lost = repeated - repeated_;
  repeated_ = repeated;
  recovered_ = kills_.size();
  return true;
}

bool KilledRun::cameBack() const {
  if (kills_.empty()) return true;
  const Kill& last = kills_.back();
  for (int w = 0; w < workers_; ++w) {
    const std::string task = fmt::format("worker-{}", w);
    if (last.victim == task || last.victim == std::string(kAgent) + task)
      return lastOf(w).epoch > last.epoch;
  }
  return true;
}

std::string KilledRun::end(std::int64_t steps, const std::string& digest, int spare) {
  const ProgramEnd end = job_.wait(kKilledRunPatience);
  if (!kills_.empty()) kills_.back().lost += lostSteps() - repeated_;
  if (end.code != 0 ||
      !end.lastLine().starts_with(fmt::format("result: succeeded steps={} ", steps)))
    return fmt::format("exit {}: {}", end.code, end.lastLine());
  const nlohmann::json status = job_.json("status.json").at("status");
  if (const int lost = status.value("lostSteps", 0); lost != 0)
    return fmt::format("the status says that {} steps were lost", lost);
  if (const auto repeated = lostSteps(); repeated != 0)
    return fmt::format("{} steps were taken twice", repeated);
  const auto kills = static_cast<int>(kills_.size());
  const int restarts = status.value("restarts", 0);
  if (restarts > kills || restarts < kills - spare)
    return fmt::format("{} restarts after {} kills", restarts, kills);
  for (const auto& [position, count] : usesOfPositions(job_, workers_)) {
    if (count != 1) return fmt::format("position {} was used {} times", position, count);
  }
  return job_.digest() == digest ? "" : "another digest";
}

}  // namespace trainyard
