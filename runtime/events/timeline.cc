#include "runtime/events/timeline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/new_file.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLaneNames[] = {"", "steps", "all-reduce"};

std::int64_t micros(Duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

// Appears with its first line in it, so that nobody else's line comes before that.
Status create(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const NewFile made, createBeside(path));
  const auto fails = [](bool well) { return well ? 0 : errno; };
  int error = fails(::fchmod(made.fd.get(), 0644) == 0 && ::write(made.fd.get(), "[\n", 2) == 2);
  if (error == 0) error = fails(::link(made.path.c_str(), path.c_str()) == 0 || errno == EEXIST);
  ::unlink(made.path.c_str());
  return error == 0 ? absl::OkStatus() : errnoStatus(error, path.native());
}

}  // namespace

StatusOr<std::unique_ptr<Timeline>> Timeline::open(const fs::path& path, int process,
                                                   const std::string& name, const Clock& clock) {
  TY_RETURN_IF_ERROR(create(path));
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd.valid()) return errnoStatus(errno, path.native());
  const std::int64_t offset = clock.unixMillis() * 1000 - micros(clock.now().time_since_epoch());
  std::unique_ptr<Timeline> timeline(new Timeline(std::move(fd), path, process, offset));
  const auto metadata = [&](int lane, const char* what, const nlohmann::json& args) {
    timeline->write(
        nlohmann::json{{"ph", "M"}, {"pid", process}, {"tid", lane}, {"name", what}, {"args", args}}
            .dump());
  };
  metadata(0, "process_name", {{"name", name}});
  metadata(0, "process_sort_index", {{"sort_index", process}});
  for (const int lane : {1, 2}) metadata(lane, "thread_name", {{"name", kLaneNames[lane]}});
  return timeline;
}

void Timeline::add(const Span& span) {
  const std::string line = fmt::format(
      R"({{"ph":"X","pid":{},"tid":{},"name":"{}","ts":{},"dur":{},"args":{{"step":{}}}}})",
      process_, static_cast<int>(span.lane), span.name,
      offset_us_ + micros(span.start.time_since_epoch()), micros(span.end - span.start), span.step);
  std::lock_guard lock(mutex_);
  if (ended_) return;
  if (++spans_ > kMaxSpans) {
    ended_ = true;
    TY_INFO("{}: is full", path_.native());
    return;
  }
  write(line);
}

void Timeline::write(const std::string& line) {
  const std::string text = line + ",\n";
  const ssize_t written = ::write(fd_.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  ended_ = true;
  const Status failed = errnoStatus(written < 0 ? errno : ENOSPC, path_.native());
  TY_WARN("the timeline ends: {}", fromAbsl(failed.message()));
}

}  // namespace trainyard::runtime
