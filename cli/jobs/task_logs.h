// The logs of a job's tasks, each followed as it grows, put together by time.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/unique_fd.h"

namespace trainyard::cli {

// One file, line by line. A file that was replaced or cut short is read from its start; one that is
// not there yet holds nothing. Not thread-safe.
class GrowingFile {
 public:
  // Begins before the last `tail` lines; nothing: at the start.
  GrowingFile(std::filesystem::path path, std::optional<std::int64_t> tail);
  GrowingFile(GrowingFile&&) = default;

  // The next complete line without its end; nothing where there is none (yet).
  std::optional<std::string> next();
  // What follows the last line end.
  std::optional<std::string> rest();

 private:
  void open();
  bool fill();  // reads on; false at the end

  std::filesystem::path path_;
  std::optional<std::int64_t> tail_;  // for the first opening
  UniqueFd fd_;
  std::string pending_;
  std::size_t used_ = 0;  // of pending_
};

// "2026-01-31T13:05:09.123Z" of a log line in text or JSON; "" for one without.
std::string_view timeOf(std::string_view line);
// "[worker-0] 2026-01-31T13:05:09.123Z I agent: ..." of a line that names the task itself. A JSON
// object stays as it is.
std::string withPrefix(const std::string& task, std::string_view line);

// Which logs: all tasks of a job (and its launcher, when that writes one), or one of them.
struct LogChoice {
  std::filesystem::path dir;         // the run directory
  std::string task;                  // "ps-0", "worker-1", "launcher"; "": all
  std::optional<std::int64_t> tail;  // lines of each
};

// New tasks are taken up as their logs appear. Not thread-safe.
class TaskLogs {
 public:
  using Print = std::function<void(const std::string& task, const std::string& line)>;
  TaskLogs(LogChoice choice, Print print) : choice_(std::move(choice)), print_(std::move(print)) {}

  // Prints what came since the last call, in the order of the lines' times; a line without one
  // follows the one before it. `last`: also unfinished lines.
  void read(bool last);

 private:
  struct Source {
    std::string task;
    GrowingFile file;
    std::optional<std::string> head;  // read, not yet printed
    std::string time;                 // of the head, or of the last line that had one
  };
  void findSources();
  static void advance(Source& source);

  const LogChoice choice_;
  const Print print_;
  std::vector<Source> sources_;
  bool first_ = true;
};

}  // namespace trainyard::cli
