#include "tests/multiproc/faults/held_run.h"

#include <signal.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

// Bounds against hangs only.
constexpr Duration kHeldRunPatience = std::chrono::seconds(300);
constexpr Duration kLook = std::chrono::milliseconds(5);
// Most strokes are in these steps. Behind them steps are so slow that the others, too, come before
// the job's end, also where the checkpoints at which they are due come late.
constexpr std::int64_t kFastSteps = 60;

// The failpoint that a task's log names last.
std::string lastFailpoint(const std::string& log) {
  constexpr std::string_view kWord = "failpoint ";
  const std::size_t at = log.rfind(kWord);
  if (at == std::string::npos) return "";
  return std::string(splitFirst(std::string_view(log).substr(at + kWord.size()), ' ').first);
}

}  // namespace

std::string Stroke::task() const {
  return ofAgent() ? victim.substr(victim.find('/') + 1) : victim;
}

bool Stroke::atTheEnd() const {
  return point == "worker.finished" || point == "worker.left" || point == "coordinator.finish";
}

std::string failpointsOf(const Strokes& strokes) {
  std::map<std::string, std::pair<int, int>> lives;  // how often created, and started since
  std::string text;
  for (const Stroke& stroke : strokes) {
    auto& [created, start] = lives.try_emplace(stroke.task(), 1, 1).first->second;
    text += fmt::format("{}=pause@{}-{},task={},life={}.{};", stroke.point, stroke.from,
                        std::numeric_limits<std::int64_t>::max(), stroke.task(), created, start);
    created += stroke.ofAgent() ? 1 : 0;
    start = stroke.ofAgent() ? 1 : start + 1;
  }
  return text;
}

HeldRun::HeldRun(const std::filesystem::path& dir, const std::string& yaml,
                 const std::vector<std::string>& flags, int workers, const Strokes& strokes)
    : run_(dir, yaml, flags, workers) {
  for (auto stroke = strokes.rbegin(); stroke != strokes.rend(); ++stroke)
    left_[stroke->task()].push_back(*stroke);
}

std::optional<HeldRun::Held> HeldRun::findHeld() const {
  std::optional<Held> found;
  for (const auto& [task, strokes] : left_) {
    if (strokes.empty() || (found && task != last_task_)) continue;
    const pid_t pid = run_.job().runtimePid(task);
    if (pid > 0 && stateOf(pid) == 'T') found = Held{task, pid};
  }
  return found;
}

// A place without a number is one that he passes as he comes back. In later epochs he would come to
// it only while the job gets over somebody else's death. Who is at the end would not stop again,
// and no step will show that the job got over the last death.
bool HeldRun::mayDie(const Stroke& stroke) {
  if (stroke.atTheEnd()) return true;
  if (!run_.recovered()) return false;
  const auto last = left_.find(last_task_);
  const bool on_his_way =
      last != left_.end() && !last->second.empty() && last->second.back().from == 0;
  return !on_his_way || run_.cameBack();
}

// Who dies again while he comes back does not wait for a step: his replicas are where they were.
std::string HeldRun::meet(const Held& held) {
  const Stroke stroke = left_[held.task].back();
  if (held.task != last_task_ && !mayDie(stroke)) {
    ::kill(held.pid, SIGCONT);
    return "";
  }
  const std::string point = lastFailpoint(run_.job().taskLog(held.task));
  if (point != stroke.point)
    return fmt::format("{} stands at '{}', not at {}", held.task, point, stroke.point);
  left_[held.task].pop_back();
  last_task_ = held.task;
  return run_.kill(stroke.victim, stroke.point);
}

std::string HeldRun::missing() const {
  std::string text;
  for (const auto& [task, strokes] : left_) {
    if (!strokes.empty()) text += fmt::format("{} never came to {}; ", task, strokes.back().point);
  }
  return text;
}

bool HeldRun::onlyTheEndIsLeft() const {
  return std::ranges::all_of(
      left_, [](const auto& task) { return std::ranges::all_of(task.second, &Stroke::atTheEnd); });
}

std::string HeldRun::run(const std::string& failpoints, std::int64_t steps,
                         const std::string& digest, int spare) {
  run_.job().launch(fmt::format("{}worker.compute=delay(20)@0-{};{}", failpoints, kFastSteps - 1,
                                run_.job().slowSteps(kFastSteps)));
  const TimePoint limit = systemClock().now() + kHeldRunPatience;
  std::string problem;
  while (problem.empty() && !missing().empty()) {
    if (onlyTheEndIsLeft()) run_.job().releaseSteps();
    const auto ended = run_.job().launcher().poll();
    if (!ended.ok() || ended->has_value()) {
      problem = missing();
    } else if (systemClock().now() >= limit) {
      problem = missing() + Waited::timedOut(kHeldRunPatience, "that").trouble();
    } else if (const auto held = findHeld()) {
      problem = meet(*held);
    } else {
      run_.recovered();
      pollUntil({}, systemClock().now() + kLook);
    }
  }
  run_.job().releaseSteps();
  if (problem.empty()) problem = run_.end(steps, digest, spare);
  if (!problem.empty()) run_.job().printLogs();
  return problem;
}

}  // namespace trainyard
