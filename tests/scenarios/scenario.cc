#include "tests/scenarios/scenario.h"

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::control {

std::string Command::text(const std::string& option, const std::string& otherwise) const {
  const auto it = options.find(option);
  return it == options.end() ? otherwise : it->second;
}

std::int64_t Command::number(const std::string& option, std::int64_t otherwise) const {
  return parseNumber<std::int64_t>(text(option)).value_or(otherwise);
}

bool Command::flag(const std::string& option, bool otherwise) const {
  return text(option, otherwise ? "true" : "false") == "true";
}

StatusOr<Command> parseCommand(std::string_view line) {
  std::vector<std::string> words;
  bool quoted = false, open = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      open = false;
    } else {
      if (!open) words.emplace_back();
      open = true;
      words.back() += c;
    }
  }
  if (quoted || words.empty()) return absl::InvalidArgumentError("an open quote, or no command");
  Command command;
  command.name = words[0];
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto [name, value] = splitFirst(words[i], '=');
    if (words[i].find('=') == std::string::npos) {
      command.words.push_back(words[i]);
    } else {
      command.options[std::string(name)] = std::string(value);
    }
  }
  return command;
}

Scenario::Scenario() {
  addJobCommands();
  addTaskCommands();
  addFaultCommands();
  startOperator();
}

void Scenario::startOperator() {
  controller_ = std::make_unique<Controller>(cluster_, progress_, clock_, ControllerOptions{});
  const Status status = controller_->takeUp();
  if (!status.ok()) out_ += fmt::format("start failed: {}\n", status.ToString());
}

StatusOr<std::string> Scenario::run(const Command& command) {
  const auto it = handlers_.find(command.name);
  if (it == handlers_.end()) {
    return absl::InvalidArgumentError(fmt::format("no command '{}'", command.name));
  }
  out_.clear();
  TY_RETURN_IF_ERROR(it->second(command));
  return out_;
}

void Scenario::note(const std::string& entry) {
  out_ += entry + "\n";
  for (const std::string_view line : split(entry, '\n')) {
    const std::string_view trimmed = trim(line);
    const auto arrow = trimmed.rfind("-> ");
    if (trimmed.starts_with("conditions.") && arrow != std::string_view::npos) {
      // conditions.Running: False (TasksNotReady) -> True (AllTasksReady)
      const std::string_view type = trimmed.substr(11, trimmed.find(':') - 11);
      const auto [value, reason] = splitFirst(trimmed.substr(arrow + 3), ' ');
      if (reason.size() < 2) continue;
      conditions_.insert(
          fmt::format("{} | {} | {}", type, value, reason.substr(1, reason.size() - 2)));
    }
    if (trimmed.starts_with("event ")) {
      const auto words = split(trimmed.substr(0, trimmed.find(':')), ' ');
      events_.insert(fmt::format("{} | {}", words[2], words[1]));
    }
  }
}

void Scenario::runDue() {
  const ReconcileCounts before = controller_->counts();
  controller_->runDue();
  for (const std::string& entry : cluster_.takeTrace()) note(entry);
  const ReconcileCounts after = controller_->counts();
  const auto tell = [this](std::string_view what, std::uint64_t times) {
    if (times > 0) out_ += fmt::format("{} failure x{}\n", what, times);
  };
  tell("conflict:", after.conflict - before.conflict);
  tell("passing", after.retry - before.retry);
  tell("permanent", after.permanent - before.permanent);
}

void Scenario::advance(Duration by) {
  const TimePoint end = clock_.now() + by;
  while (true) {
    const auto due = controller_->queue().nextDue();
    if (!due || *due > end) break;
    if (*due > clock_.now()) clock_.advance(*due - clock_.now());
    runDue();
  }
  clock_.advance(end - clock_.now());
  runDue();
}

std::string Scenario::describeStatus() {
  const auto observed = cluster_.observe(key_);
  if (!observed.ok()) return fmt::format("{}\n", observed.status().ToString());
  const v1::JobStatus& status = observed->job.status();
  std::string text =
      fmt::format("state {}, generation {}, restarts {}, disruptions {}, revision {}\n",
                  status.state(), status.observed_generation(), status.restarts(),
                  status.disruptions(), status.membership().revision());
  text += fmt::format("start {}, completion {}\n", status.start_time(), status.completion_time());
  for (const v1::Condition& condition : status.conditions()) {
    text += fmt::format("{} {} {} since {}: {}\n", condition.type(), condition.status(),
                        condition.reason(), condition.last_transition_time(), condition.message());
  }
  for (const TaskObservation& task : observed->tasks) {
    static constexpr std::string_view kPhases[] = {"pending", "running", "succeeded", "failed"};
    text += fmt::format("{} (created {}) {}{}{}\n", toString(task.key), task.created,
                        kPhases[static_cast<int>(task.phase)], task.ready ? ", ready" : "",
                        task.terminating ? ", terminating" : "");
  }
  return text;
}

namespace {

bool isBlank(std::string_view line) {
  return trim(line).empty();
}

}  // namespace

StatusOr<std::string> rewrite(std::string_view text, Scenario* scenario) {
  std::string result, printed;
  bool below = false;  // the line of dashes: what stands there is replaced
  int number = 0;
  std::vector<std::string_view> lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (const std::string_view line : lines) {
    ++number;
    if (isBlank(line)) {
      below = false;
      result += '\n';
      continue;
    }
    if (below) continue;
    result += fmt::format("{}\n", line);
    if (line.starts_with("#")) continue;
    if (line == "----") {
      result += printed.empty() ? "(nothing)\n" : printed;
      printed.clear();
      below = true;
      continue;
    }
    StatusOr<Command> command = parseCommand(line);
    if (!command.ok()) return annotate(command.status(), fmt::format("line {}", number));
    StatusOr<std::string> output = scenario->run(*command);
    if (!output.ok()) return annotate(output.status(), fmt::format("line {}", number));
    printed += *output;
  }
  return result;
}

}  // namespace trainyard::control
