// `trainyard top`: a job as it trains.
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/process/poll.h"
#include "base/process/signals.h"
#include "cli/command.h"
#include "cli/jobs/choose_source.h"
#include "cli/jobs/flags.h"
#include "cli/jobs/job_text.h"
#include "cli/live/text.h"
#include "cli/top/collect_pages.h"
#include "cli/top/top_model.h"
#include "cli/top/top_screen.h"
#include "fmt/format.h"
#include "operator/cluster/task_keys.h"

namespace trainyard::cli {
namespace {

constexpr int kExitInterrupted = 130;

struct TopFlags {
  JobFlags job;
  double interval = 2;
  int frames = 0;  // 0: on a terminal until the end, else one
};

// The other screen of a terminal, without cursor and echo; as it was when this ends.
class FullScreen {
 public:
  explicit FullScreen(const Console& console) : console_(console) {
    console_.out << "\x1b[?1049h\x1b[?25l" << std::flush;
    if (console_.in == nullptr || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet) == 0;
  }
  ~FullScreen() {
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    console_.out << "\x1b[?25h\x1b[?1049l" << std::flush;
  }

  void draw(const std::vector<std::string>& lines) {
    std::string text = "\x1b[H";
    for (std::size_t i = 0; i < lines.size(); ++i)
      text += (i > 0 ? "\r\n" : "") + lines[i] + "\x1b[K";
    console_.out << text << "\x1b[J" << std::flush;
  }
  // Of keys that end it; -1: there are none.
  int keys() const { return keys_ ? STDIN_FILENO : -1; }

 private:
  const Console& console_;
  termios before_{};
  bool keys_ = false;
};

TableStyle styleNow(const Console& console) {
  TableStyle style{console.columns, 0, console.colour};
  winsize size{};
  if (console.out_is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0) {
    style.columns = size.ws_col;
    style.rows = size.ws_row;
  }
  if (!console.out_is_terminal) style.columns = 200;  // nothing is cut off
  return style;
}

// What is looked at: one job that runs, else a table.
class Top {
 public:
  Top(JobSource& source, const TopFlags& flags, const Console& console)
      : source_(source), flags_(flags), console_(console), clock_(*console.clock) {}

  // Looks again. NOT_FOUND, for a job that was there: it is gone.
  Status look();
  // Rates are known, or there is nothing to know.
  bool settled() const { return !model_ || model_->hasRates(); }
  bool over() const { return over_; }
  std::vector<std::string> lines(const TableStyle& style) const;

 private:
  Status lookAt(const std::string& job);

  JobSource& source_;
  const TopFlags& flags_;
  const Console& console_;
  const Clock& clock_;
  std::optional<TopModel> model_;
  std::string table_;  // of several jobs, or of one that does not run
  std::string note_;
  bool over_ = false;
};

Status Top::look() {
  if (!flags_.job.job.empty()) return lookAt(flags_.job.job);
  TY_ASSIGN_OR_RETURN(const JobList list, source_.list());
  std::vector<JobView> running;
  for (const JobView& job : list.jobs) {
    if (job.attended() && !job.finished()) running.push_back(job);
  }
  if (running.size() == 1 && !flags_.job.cluster.all_namespaces) return lookAt(running[0].name);
  model_.reset();
  note_ = running.empty() ? fmt::format("No job runs in {}.", source_.place()) : "";
  table_ = running.empty()
               ? ""
               : jobsTable(running, false, clock_.unixMillis(), flags_.job.cluster.all_namespaces);
  return absl::OkStatus();
}

Status Top::lookAt(const std::string& name) {
  TY_ASSIGN_OR_RETURN(const JobView job, source_.read(name));
  over_ = job.finished() || !job.attended();
  if (over_) {  // it has no tasks that could tell
    model_.reset();
    table_ = jobsTable({job}, false, clock_.unixMillis(), flags_.job.cluster.all_namespaces);
    note_ = fmt::format("{} does not run.", job.name);
    return absl::OkStatus();
  }
  if (!model_) model_.emplace(job.name);
  const StatusOr<TaskPages> pages = source_.metrics(job);
  note_ = pages.ok() ? "" : std::string(pages.status().message());
  model_->update(job.state, control::wantedTasks(job.job), pages.ok() ? *pages : TaskPages(),
                 clock_.now(), clock_.unixMillis());
  return absl::OkStatus();
}

std::vector<std::string> Top::lines(const TableStyle& style) const {
  std::vector<std::string> lines;
  if (model_) {
    lines = renderTop(model_->view(), style);
  } else {
    std::size_t begin = 0;
    for (std::size_t end = table_.find('\n'); end != std::string::npos;
         begin = end + 1, end = table_.find('\n', begin)) {
      lines.push_back(fit(std::string_view(table_).substr(begin, end - begin), style.columns));
    }
  }
  if (!note_.empty()) lines.push_back(paint(fit(note_, style.columns), Tone::kWarn, style.colour));
  if (style.rows > 0 && lines.size() > static_cast<std::size_t>(style.rows))
    lines.resize(static_cast<std::size_t>(style.rows));
  return lines;
}

// False: the user wants to leave.
bool waitFor(SignalWaiter& signals, int keys, TimePoint until) {
  pollfd fds[] = {{signals.fd(), POLLIN, 0}, {keys, POLLIN, 0}};
  if (pollUntil(std::span(fds, keys < 0 ? 1 : 2), until) == 0) return true;
  if (signals.next()) return false;
  char key = 0;
  return keys < 0 || (fds[1].revents & POLLIN) == 0 || ::read(keys, &key, 1) != 1 ||
         (key != 'q' && key != 'Q');
}

int watch(Top& top, const TopFlags& flags, const Console& console, SignalWaiter& signals) {
  std::optional<Status> end;
  {
    FullScreen screen(console);
    for (int frame = 0; flags.frames == 0 || frame < flags.frames; ++frame) {
      const TimePoint next = console.clock->now() + fromSeconds(flags.interval);
      if (const Status looked = top.look(); !looked.ok()) {
        end = looked;
        break;
      }
      screen.draw(top.lines(styleNow(console)));
      if (!waitFor(signals, screen.keys(), next)) break;
    }
  }
  return end ? failVerb(console, "top", *end) : kExitOk;
}

int print(Top& top, const TopFlags& flags, const Console& console, SignalWaiter& signals) {
  int printed = 0;
  while (printed < std::max(1, flags.frames)) {
    const TimePoint next = console.clock->now() + fromSeconds(flags.interval);
    if (const Status looked = top.look(); !looked.ok()) return failVerb(console, "top", looked);
    if (top.settled() || top.over()) {
      if (printed++ > 0) console.out << "\n";
      for (const std::string& line : top.lines(styleNow(console))) console.out << line << "\n";
      console.out.flush();
      if (top.over()) break;
      if (printed >= std::max(1, flags.frames)) break;
    }
    if (!waitFor(signals, -1, next)) return kExitInterrupted;
  }
  return kExitOk;
}

int runTop(const TopFlags& flags, const Console& console) {
  auto signals = SignalWaiter::create({SIGINT, SIGTERM});
  if (!signals.ok()) return failVerb(console, "top", signals.status());
  const auto source = chooseSource(flags.job, console);
  if (!source.ok()) return failVerb(console, "top", source.status());
  Top top(**source, flags, console);
  return console.out_is_terminal ? watch(top, flags, console, *signals)
                                 : print(top, flags, console, *signals);
}

constexpr char kTopFooter[] =
    "Workers that hold up the others come first: each shows the time that it computes for a step, "
    "and how\n"
    "many times as long that is as usual among the workers. Parameter servers show the bytes that "
    "they receive\n"
    "and send, over TCP or through shared memory, and their share of all; with embedding tables "
    "the "
    "rows that\n"
    "workers pull and which part of them goes to 1,024 busy ids. Of a job without servers "
    "the workers show\n"
    "which part of the time of all-reduce is hidden behind their computing. q or Ctrl-C leaves. "
    "Without a terminal\n"
    "it prints one look, and --frames N of them.\n"
    "In a cluster it reads the tasks' metrics through the apiserver, which takes the right to get "
    "pods/proxy.\n\n"
    "Examples:\n"
    "  trainyard top                      # the job that runs below ./runs; several: a table\n"
    "  trainyard top fashion\n"
    "  trainyard top fashion -n lab       # a job of a cluster\n"
    "  trainyard top fashion | cat        # as text, once";

}  // namespace

void registerTop(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<TopFlags>();
  CLI::App* verb = app.add_subcommand(
      "top", "Watch a job: stragglers, traffic of each parameter server, pace, loss");
  verb->add_option("JOB", flags->job.job, "Its name, or its directory; default: the one that runs");
  verb->add_option("--interval", flags->interval, "Seconds between two looks")
      ->check(CLI::Range(0.2, 3600.0))
      ->capture_default_str();
  verb->add_option("--frames", flags->frames, "Looks to show; then it ends")
      ->check(CLI::PositiveNumber);
  addRunsFlag(*verb, flags->job);
  addClusterFlags(*verb, flags->job.cluster, true);
  verb->footer(kTopFooter);
  verb->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return runTop(*flags, console); };
  });
}

}  // namespace trainyard::cli
