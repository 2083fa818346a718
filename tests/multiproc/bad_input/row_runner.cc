#include "tests/multiproc/bad_input/row_runner.h"

#include <signal.h>
#include <unistd.h>

#include "base/core/strings.h"
#include "base/process/child_process.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "re2/re2.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

// Bounds against hangs only; the machine may be busy.
constexpr Duration kRowBound = std::chrono::seconds(90);
constexpr Duration kGoneBound = std::chrono::seconds(15);
constexpr std::size_t kMaxOutput = 64 << 20;

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) {
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}

// Folders and regular files: sockets of a former run are left behind.
void copyTree(const fs::path& from, const fs::path& to) {
  fs::create_directory(to, from);
  for (const auto& entry : fs::directory_iterator(from)) {
    const fs::path target = to / entry.path().filename();
    if (entry.is_directory()) copyTree(entry.path(), target);
    if (entry.is_regular_file()) fs::copy_file(entry.path(), target);
  }
}

std::string quoted(const std::string& text) {
  return fmt::format("\"{}\"", text.substr(0, 600));
}

}  // namespace

std::vector<pid_t> processesIn(const fs::path& folder) {
  std::vector<pid_t> found = processesWith(folder.string());
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = parseNumber<pid_t>(entry.path().filename().string());
    if (!pid || *pid == ::getpid()) continue;
    const fs::path cwd = fs::read_symlink(entry.path() / "cwd", ignored);
    if (cwd.string().starts_with(folder.string())) found.push_back(*pid);
  }
  return found;
}

std::vector<std::string> errorLines(const std::string& err) {
  static const RE2 kNews("[0-9T:.-]+Z [ID] .*");
  std::vector<std::string> lines = linesOf(err);
  std::erase_if(lines, [](const std::string& line) { return RE2::FullMatch(line, kNews); });
  return lines;
}

RowAnswer RowRunner::shell(const fs::path& folder, const std::string& script) const {
  SpawnOptions spawn;
  spawn.argv = {"/bin/bash", "-c", fmt::format("{{ {}\n}} >.out 2>.err", script)};
  spawn.cwd = folder.string();
  spawn.new_process_group = true;
  spawn.die_with_spawning_thread = true;
  spawn.env.emplace();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("PATH=")) spawn.env->emplace_back(*entry);
  }
  for (const auto& [name, value] : variables_) spawn.env->push_back(name + "=" + value);
  RowAnswer answer;
  auto child = ChildProcess::spawn(spawn);
  if (!child.ok()) {
    answer.end = std::string(child.status().message());
    return answer;
  }
  const auto exit = child->wait(systemClock().now() + kRowBound);
  if (!exit.ok()) (void)child->signalGroup(SIGKILL);  // it has hung, which the code -1 tells
  if (exit.ok() && exit->signal == 0) answer.code = exit->code;
  answer.end = exit.ok() ? toString(*exit) : std::string(exit.status().message());
  answer.out = readFile(folder / ".out", kMaxOutput).value_or("");
  answer.err = readFile(folder / ".err", kMaxOutput).value_or("");
  return answer;
}

void RowRunner::checkAnswer(const BadInputRow& row, const RowAnswer& answer,
                            std::vector<std::string>* wrong) const {
  if (answer.code != row.exit_code) {
    wrong->push_back(answer.end);
  }
  const std::vector<std::string> errors = errorLines(answer.err);
  const std::vector<std::string> lines = linesOf(answer.out);
  const std::size_t expected = row.answer_in == AnswerIn::kError ? 1 : 0;
  if (errors.size() != expected) {
    wrong->push_back(
        fmt::format("{} lines on standard error: {}", errors.size(), quoted(join(errors, "\n"))));
  }
  const auto matches = [&](const std::string& line) { return RE2::FullMatch(line, row.answer); };
  bool found = false;
  if (row.answer_in == AnswerIn::kError) found = !errors.empty() && matches(errors.back());
  if (row.answer_in == AnswerIn::kResult) found = !lines.empty() && matches(lines.back());
  if (row.answer_in == AnswerIn::kSays) found = std::any_of(lines.begin(), lines.end(), matches);
  if (!found) {
    wrong->push_back(fmt::format(
        "no match, said {}", quoted(row.answer_in == AnswerIn::kError ? answer.err : answer.out)));
  }
}

void RowRunner::checkDigest(const BadInputRow& row, const fs::path& folder,
                            std::vector<std::string>* wrong) const {
  if (row.keeps < 0) return;
  const ProgramEnd end = runProgram({"trainyard", "checkpoint", "digest", (folder / "run").string(),
                                     "--step", std::to_string(row.keeps)});
  if (end.code != 0 || end.lastLine() != digests_.at(row.keeps)) {
    wrong->push_back(fmt::format("the checkpoint of step {} is not what it was: {}", row.keeps,
                                 quoted(end.output)));
  }
}

std::vector<std::string> RowRunner::perform(const BadInputRow& row, RowAnswer* answer) {
  const fs::path folder = work_ / fmt::format("row-{}", ++performed_);
  copyTree(model_, folder);
  std::vector<std::string> wrong;
  if (!row.preparation.empty()) {
    const RowAnswer made = shell(folder, "set -eu; " + join(row.preparation, "\n"));
    if (made.code != 0) wrong.push_back("its preparation fails: " + quoted(made.err));
  }
  *answer = shell(folder, row.command);
  checkAnswer(row, *answer, &wrong);
  if (!eventually([&] { return processesIn(folder).empty(); }, kGoneBound)) {
    for (const pid_t pid : processesIn(folder)) {
      wrong.push_back(fmt::format("left running: {}", commandOf(pid)));
      ::kill(pid, SIGKILL);
    }
  }
  checkDigest(row, folder, &wrong);
  std::error_code ignored;
  if (wrong.empty()) fs::remove_all(folder, ignored);
  return wrong;
}

}  // namespace trainyard
