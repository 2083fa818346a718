#include "cli/jobs/task_logs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "fmt/format.h"
#include "operator/local/run_directory.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 64 << 10;
constexpr std::string_view kJsonTime = "{\"time\":\"";
constexpr std::size_t kTimeLength = 24;  // 2026-01-31T13:05:09.123Z
constexpr char kLauncher[] = "launcher";

// Offset of the last `lines` lines; a last line without an end counts as one.
off_t startOfTail(int fd, std::int64_t lines) {
  off_t end = ::lseek(fd, 0, SEEK_END);
  if (lines <= 0) return std::max<off_t>(end, 0);
  std::int64_t missing = lines;
  std::string block;
  bool at_end = true;
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(kBlock));
    block.resize(static_cast<std::size_t>(end - begin));
    const ssize_t n = ::pread(fd, block.data(), block.size(), begin);
    if (n != static_cast<ssize_t>(block.size())) return 0;
    for (off_t at = end; at-- > begin;) {
      if (block[static_cast<std::size_t>(at - begin)] != '\n') {
        at_end = false;
        continue;
      }
      if (!std::exchange(at_end, false) && --missing == 0) return at + 1;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

GrowingFile::GrowingFile(fs::path path, std::optional<std::int64_t> tail)
    : path_(std::move(path)), tail_(tail) {}

void GrowingFile::open() {
  fd_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  const auto tail = std::exchange(tail_, std::nullopt);
  if (fd_.valid() && tail) ::lseek(fd_.get(), startOfTail(fd_.get(), *tail), SEEK_SET);
}

bool GrowingFile::fill() {
  if (!fd_.valid()) open();
  if (!fd_.valid()) return false;
  pending_.erase(0, std::exchange(used_, 0));
  const std::size_t before = pending_.size();
  pending_.resize(before + kBlock);
  const ssize_t n = ::read(fd_.get(), pending_.data() + before, kBlock);
  pending_.resize(before + (n > 0 ? static_cast<std::size_t>(n) : 0));
  if (n > 0) return true;
  struct stat ours {
  }, named{};
  if (::fstat(fd_.get(), &ours) != 0 || ::stat(path_.c_str(), &named) != 0) return false;
  const bool replaced = ours.st_ino != named.st_ino || ours.st_dev != named.st_dev;
  if (replaced || ::lseek(fd_.get(), 0, SEEK_CUR) > named.st_size) {
    fd_.reset();
    pending_.clear();
    return fill();
  }
  return false;
}

std::optional<std::string> GrowingFile::next() {
  for (;;) {
    const std::size_t end = pending_.find('\n', used_);
    if (end != std::string::npos) {
      std::string line = pending_.substr(used_, end - used_);
      used_ = end + 1;
      return line;
    }
    if (!fill()) return std::nullopt;
  }
}

std::optional<std::string> GrowingFile::rest() {
  if (used_ >= pending_.size()) return std::nullopt;
  std::string line = pending_.substr(used_);
  pending_.clear();
  used_ = 0;
  return line;
}

std::string_view timeOf(std::string_view line) {
  if (line.starts_with(kJsonTime)) line.remove_prefix(kJsonTime.size());
  if (line.size() < kTimeLength || line[10] != 'T' || line[kTimeLength - 1] != 'Z') return "";
  return std::isdigit(static_cast<unsigned char>(line[0])) ? line.substr(0, kTimeLength) : "";
}

std::string withPrefix(const std::string& task, std::string_view line) {
  if (line.starts_with('{')) return std::string(line);
  // The task's own name stands behind time and level: "... I worker-0: data: ...".
  const std::string own = fmt::format(" {}: ", task);
  const std::size_t at = timeOf(line).empty() ? std::string_view::npos : line.find(own);
  if (at != kTimeLength + 2) return fmt::format("[{}] {}", task, line);
  return fmt::format("[{}] {} {}", task, line.substr(0, at), line.substr(at + own.size()));
}

void TaskLogs::findSources() {
  const control::RunPaths paths{choice_.dir};
  std::vector<std::pair<std::string, fs::path>> found;
  std::error_code ignored;
  if (fs::exists(paths.launcherLog(), ignored)) found.emplace_back(kLauncher, paths.launcherLog());
  std::vector<control::TaskKey> keys;
  for (const auto& entry : fs::directory_iterator(paths.tasks(), ignored)) {
    const auto key = control::parseTaskKey(entry.path().filename().string());
    if (key) keys.push_back(*key);
  }
  std::sort(keys.begin(), keys.end());
  for (const control::TaskKey& key : keys) {
    found.emplace_back(control::toString(key), paths.taskLog(key));
  }
  for (const auto& [task, path] : found) {
    if (!choice_.task.empty() && choice_.task != task) continue;
    const bool known = std::any_of(sources_.begin(), sources_.end(),
                                   [&](const Source& source) { return source.task == task; });
    // What appears later is new altogether.
    const auto tail = first_ ? choice_.tail : std::nullopt;
    if (!known) sources_.push_back({task, GrowingFile(path, tail), std::nullopt, ""});
  }
  first_ = false;
}

void TaskLogs::advance(Source& source) {
  source.head = source.file.next();
  if (!source.head) return;
  if (const std::string_view time = timeOf(*source.head); !time.empty()) source.time = time;
}

void TaskLogs::read(bool last) {
  findSources();
  for (Source& source : sources_) advance(source);
  for (;;) {
    Source* earliest = nullptr;
    for (Source& source : sources_) {
      if (source.head && (earliest == nullptr || source.time < earliest->time)) earliest = &source;
    }
    if (earliest == nullptr) break;
    print_(earliest->task, *earliest->head);
    advance(*earliest);
  }
  if (!last) return;
  for (Source& source : sources_) {
    if (const auto line = source.file.rest()) print_(source.task, *line);
  }
}

}  // namespace trainyard::cli
