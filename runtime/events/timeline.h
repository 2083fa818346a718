// What a process did when, in a file that chrome://tracing and https://ui.perfetto.dev open: the
// JSON array format of the Trace Event Format, whose last bracket may be missing.
//
// All workers of a job write into one file, each its own process in the picture: whole lines, each
// appended by one write. On one machine they stay whole; file systems of a network may mix lines
// that come at the same moment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard::runtime {

// The threads of a worker.
enum class Lane { kTrainer = 1, kExchange = 2 };

struct Span {
  Lane lane = Lane::kTrainer;
  std::string_view name;
  std::int64_t step = 0;
  TimePoint start;
  TimePoint end;
};

// Thread-safe.
class Timeline {
 public:
  // Makes the file where there is none. `process`: its number in the picture, `name`: what it is
  // called. Errors name the path.
  static StatusOr<std::unique_ptr<Timeline>> open(const std::filesystem::path& path, int process,
                                                  const std::string& name, const Clock& clock);

  // The first failure is logged, and nothing is written any more; nor after kMaxSpans.
  void add(const Span& span);

  static constexpr int kMaxSpans = 200'000;

 private:
  Timeline(UniqueFd fd, std::filesystem::path path, int process, std::int64_t offset_us)
      : fd_(std::move(fd)), path_(std::move(path)), process_(process), offset_us_(offset_us) {}
  void write(const std::string& line);

  const UniqueFd fd_;
  const std::filesystem::path path_;
  const int process_;
  const std::int64_t offset_us_;  // of the clock to the machine's time, so that machines compare
  std::mutex mutex_;
  int spans_ = 0;
  bool ended_ = false;
};

}  // namespace trainyard::runtime
