#include "tests/multiproc/faults/fault_run.h"

#include <signal.h>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "tests/multiproc/faults/killed_run.h"

namespace trainyard {
namespace {

constexpr int kWorkers = 3;
constexpr int kBatch = 16;
// Bounds against hangs only.
constexpr Duration kFaultRunPatience = std::chrono::seconds(300);
// The coordinator's deadline and a little.
constexpr Duration kDeadCoordinator = std::chrono::seconds(7);

// The last "epoch N starts at step S with W workers, HOW" of the coordinators' log.
struct EpochLine {
  int epochs = 0;
  std::int64_t first_step = 0;
  std::string how;
};
EpochLine lastEpochLine(const std::string& log) {
  constexpr std::string_view kStarts = " starts at step ";
  constexpr std::string_view kWorkersAnd = " workers, ";
  EpochLine last;
  for (const std::string_view line : split(log, '\n')) {
    const std::size_t at = line.find(kStarts);
    const std::size_t how = line.find(kWorkersAnd);
    if (at == std::string_view::npos || how == std::string_view::npos) continue;
    ++last.epochs;
    const std::string_view step = splitFirst(line.substr(at + kStarts.size()), ' ').first;
    last.first_step = parseNumber<std::int64_t>(step).value_or(-1);
    last.how = line.substr(how + kWorkersAnd.size());
  }
  return last;
}

// The last "steps repeated so far: N" that was printed.
std::int64_t printedLoss(const std::string& output) {
  constexpr std::string_view kWords = "steps repeated so far: ";
  const std::size_t at = output.rfind(kWords);
  if (at == std::string::npos) return 0;
  const std::string_view rest = std::string_view(output).substr(at + kWords.size());
  return parseNumber<std::int64_t>(splitFirst(rest, '\n').first).value_or(-1);
}

std::string outcomeOf(const EpochLine& line) {
  if (line.epochs <= 1 || line.how.starts_with("from what the ")) return "goes-on";
  return line.how.starts_with("from the seed") ? "from-seed" : "goes-back";
}

}  // namespace

std::string faultJob(const FaultCell& cell) {
  if (!cell.update.empty()) {
    const bool bounded = cell.update == "BoundedDelay";
    return asynchronousJob(
        cell.ps, kFaultSteps,
        fmt::format("{{mode: {}{}}}", cell.update, bounded ? ", maxDelay: 4" : ""));
  }
  std::string job = smallJob(2, kWorkers, kFaultSteps);
  return job + "    evaluateEverySteps: 100\n    checkpoint: {everySeconds: 1}\n";
}

std::vector<std::string> faultFlags(bool ring) {
  if (!ring) return {};
  return {"--set", "strategy=AllReduce", "--set", "ps="};
}

FaultRun::FaultRun(const std::filesystem::path& dir, FaultCell cell, std::string undisturbed)
    : cell_(std::move(cell)),
      undisturbed_(std::move(undisturbed)),
      run_(dir, faultJob(cell_), faultFlags(cell_.ring)) {}

// Steps of the others last anyway.
bool FaultRun::slow() const {
  return cell_.wantsCheckpoint() && cell_.update.empty();
}

std::string FaultRun::failpoints() const {
  const auto [place, steps] = splitFirst(cell_.place, '@');
  std::string text = fmt::format("{}={}@{},task={},life=1.1,times=1", place,
                                 cell_.how == "crash" ? "crash" : "pause", steps, cell_.held);
  if (slow()) text += ";" + run_.slowSteps();
  return text;
}

// Steps are slow until there is the checkpoint that the cell wants: one that is being taken when
// somebody stops or dies, or one to go back to.
std::string FaultRun::waitForCheckpoint() {
  const std::string hit = fmt::format("failpoint {} at ", splitFirst(cell_.place, '@').first);
  const auto there = [&] {
    if (cell_.moment != "checkpoint") return run_.newestCheckpoint() > 0;
    return run_.taskLog(cell_.held).find(hit) != std::string::npos;
  };
  const Waited came = eventually(there, kFaultRunPatience);
  run_.releaseSteps();
  return came ? "" : "there never was a checkpoint: " + came.trouble();
}

FaultResult FaultRun::run() {
  const TimePoint begin = systemClock().now();
  run_.launch(failpoints());
  if (slow()) result_.problem = waitForCheckpoint();
  if (result_.problem.empty() && cell_.how != "crash") result_.problem = strike();
  if (result_.problem.empty() && cell_.ofLauncher()) {
    result_.problem = nothingLeft();
    if (result_.problem.empty()) run_.launch();
  }
  if (result_.problem.empty()) readEnd(run_.wait(kFaultRunPatience));
  if (result_.problem.empty()) result_.problem = compare();
  if (!result_.problem.empty()) run_.printLogs();
  result_.seconds = toSeconds(systemClock().now() - begin);
  return result_;
}

std::string FaultRun::strike() {
  pid_t held = 0;
  const Waited stopped = eventually(
      [&] {
        held = run_.runtimePid(cell_.held);
        return held > 0 && stateOf(held) == 'T';
      },
      kFaultRunPatience);
  if (!stopped) {
    return fmt::format("{} never came to {}: {}", cell_.held, cell_.place, stopped.trouble());
  }
  ports_ = portsOf(run_);
  if (cell_.how == "kill") return kill(held);
  return cell_.how == "freeze" ? wakeOnceDead(held) : "";
}

std::string FaultRun::kill(pid_t held) {
  if (cell_.ofLauncher()) {
    // Who is stopped stays so: it must be ended all the same.
    return run_.launcher().signal(SIGKILL).ok() ? "" : "the launcher does not run";
  }
  const pid_t runtime = run_.runtimePid(cell_.task());
  const pid_t victim = cell_.ofAgent() ? run_.agentPid(cell_.task()) : runtime;
  if (victim <= 0 || ::kill(victim, SIGKILL) != 0) return "the victim does not run";
  const Waited gone = eventually([&] { return commandOf(runtime).empty(); }, kFaultRunPatience);
  if (!gone) return "the program outlived its agent: " + gone.trouble();
  ::kill(held, SIGCONT);
  return "";
}

std::string FaultRun::wakeOnceDead(pid_t held) {
  if (cell_.victim == cell_.coordinator()) {
    pollUntil({}, systemClock().now() + kDeadCoordinator);
  } else {
    const std::string line = fmt::format("{} has not been heard of for 5 s", cell_.victim);
    const Waited dead = eventually(
        [&] { return run_.taskLog(cell_.coordinator()).find(line) != std::string::npos; },
        kFaultRunPatience);
    if (!dead) return "the frozen task was never taken for dead: " + dead.trouble();
  }
  ::kill(held, SIGCONT);
  return "";
}

std::string FaultRun::nothingLeft() {
  if (run_.wait(kFaultRunPatience).code != -1) return "the launcher was not killed";
  const std::string dir = run_.dir().string();
  const Waited alone = eventually([&] { return processesWith(dir).empty(); }, kFaultRunPatience);
  if (!alone) return "processes left: " + alone.trouble();
  return listeningAmong(ports_, dir).empty() ? "" : "ports left";
}

void FaultRun::readEnd(const ProgramEnd& end) {
  const EpochLine line = lastEpochLine(run_.taskLog(cell_.coordinator()));
  result_.outcome = cell_.ofLauncher() ? "resumes" : outcomeOf(line);
  result_.first_step = line.first_step;
  result_.lost = repeatedSteps(run_, kWorkers);
  const std::string wanted = fmt::format("result: succeeded steps={} ", kFaultSteps);
  if (end.code != 0 || !end.lastLine().starts_with(wanted)) {
    result_.outcome = "fails";
    result_.problem = fmt::format("exit {}: {}", end.code, end.lastLine());
    return;
  }
  const nlohmann::json status = run_.json("status.json").at("status");
  result_.restarts = status.value("restarts", std::int64_t{0});
  result_.digest_equal = run_.digest() == undisturbed_;
  // What a launcher that is killed has lost nobody remembers; its first line says where it resumes.
  if (const std::int64_t said = printedLoss(end.output);
      !cell_.ofLauncher() && said != result_.lost)
    result_.problem = fmt::format("it says that {} steps were lost", said);
  const std::string dir = run_.dir().string();
  if (!processesWith(dir).empty()) result_.problem = "processes left";
  if (!listeningAmong(ports_, dir).empty()) result_.problem = "ports left";
}

std::string FaultRun::positionsProblem() const {
  std::int64_t used = 0;
  for (const auto& [position, count] : usesOfPositions(run_, kWorkers)) {
    if (count != 1) return fmt::format("position {} was used {} times", position, count);
    used += count;
  }
  // Who is killed right after a step leaves no record of it. Nor do ranks of a ring that gave a
  // step up which one of them has finished: they are given its weights.
  const int unrecorded = cell_.ofLauncher() ? kWorkers : cell_.ring ? kWorkers - 1 : 1;
  const int pushes = cell_.update.empty() ? kWorkers : 1;  // of a step
  const std::int64_t missing = std::int64_t{kFaultSteps} * pushes * kBatch - used;
  return missing > unrecorded * kBatch ? fmt::format("{} samples were left out", missing) : "";
}

std::string FaultRun::compare() const {
  if (result_.outcome != cell_.outcome) return "another outcome";
  const bool lost = result_.lost > 0;
  const auto at = parseNumber<std::int64_t>(splitFirst(cell_.place, '@').second);
  // Checkpoints go by the clock: the newest may be of the very step that it stopped at.
  const bool spared = cell_.lost == "since-checkpoint" && at == result_.first_step;
  if (lost != (cell_.lost != "0") && !spared) return "another number of lost steps";
  if (lost && (result_.first_step > 0) != (cell_.lost == "since-checkpoint")) {
    return fmt::format("it goes back to step {}", result_.first_step);
  }
  // Stopped at one step exactly, that many were complete.
  if (lost && at && result_.lost != *at - result_.first_step) {
    return fmt::format("{} steps were complete", *at);
  }
  if (cell_.ofLauncher()) {
    // Which of both words it uses depends on the step.
    const std::string from = fmt::format(" from step {}", result_.first_step);
    if (cell_.moment != "end" && run_.output().find(from) == std::string::npos) {
      return fmt::format("the second launch does not say \"{}\"", from);
    }
  }
  const auto [least, most] = splitFirst(cell_.restarts, '-');
  if (result_.restarts < parseNumber<int>(least).value_or(0) ||
      result_.restarts > parseNumber<int>(most.empty() ? least : most).value_or(0)) {
    return "another number of restarts";
  }
  if (!result_.digest_equal) return "another digest";
  return positionsProblem();
}

}  // namespace trainyard
