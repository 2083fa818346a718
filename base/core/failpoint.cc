#include "base/core/failpoint.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/core/clock.h"
#include "base/core/log.h"
#include "base/core/strings.h"

namespace trainyard {
namespace internal {
std::atomic<bool> failpoints_on{false};
}  // namespace internal
namespace {

// A delay of which the log says that it begins.
constexpr std::int64_t kToldMillis = 10'000;
// How often a delay looks whether its file is still there.
constexpr std::int64_t kLookMillis = 10;

struct Failpoint {
  std::string name;
  std::string action;
  std::int64_t millis = 0;
  std::int64_t from = std::numeric_limits<std::int64_t>::min();
  std::int64_t to = std::numeric_limits<std::int64_t>::max();
  std::int64_t times = std::numeric_limits<std::int64_t>::max();
  std::string file;  // empty: always
};

std::mutex mutex;
std::vector<Failpoint>& table() {
  static std::vector<Failpoint> instance;
  return instance;
}

Status badPart(std::string_view part) {
  return invalidInput(
      "failpoints", fmt::format("'{}' is not NAME=ACTION[@FROM[-TO]][,task=T][,life=C.S][,times=N]"
                                "[,while=FILE]",
                                part));
}

template <typename T>
bool readNumber(std::string_view text, T& out) {
  const auto number = parseNumber<T>(text);
  if (number) out = *number;
  return number.has_value();
}

Status parseAction(std::string_view text, Failpoint& out) {
  const std::size_t open = text.find('(');
  out.action = text.substr(0, open);
  if (out.action != "delay") {
    const bool known = text == "pause" || text == "nan" || text == "crash" || text == "error";
    return known ? absl::OkStatus() : badPart(text);
  }
  if (open == std::string_view::npos || text.back() != ')') return badPart(text);
  if (!readNumber(text.substr(open + 1, text.size() - open - 2), out.millis)) return badPart(text);
  return absl::OkStatus();
}

Status parseRange(std::string_view text, Failpoint& out) {
  const auto [from, to] = splitFirst(text, '-');
  if (!readNumber(from, out.from)) return badPart(text);
  out.to = out.from;
  if (from.size() < text.size() && !readNumber(to, out.to)) return badPart(text);
  return absl::OkStatus();
}

bool fileIsGone(const Failpoint& point) {
  return !point.file.empty() && ::access(point.file.c_str(), F_OK) != 0;
}

void sleepAt(const Failpoint& point) {
  const TimePoint end = systemClock().now() + std::chrono::milliseconds(point.millis);
  const std::chrono::milliseconds look(point.file.empty() ? point.millis : kLookMillis);
  for (TimePoint now = systemClock().now(); now < end && !fileIsGone(point);
       now = systemClock().now()) {
    std::this_thread::sleep_for(std::min<Duration>(look, end - now));
  }
}

struct Process {
  std::string_view task;
  std::string_view life;
};

// Sets `mine` to false when the entry is for another task or another life of it.
Status parseEntry(std::string_view entry, const Process& process, Failpoint& out, bool& mine) {
  const std::vector<std::string_view> parts = split(entry, ',');
  const auto [name, rest] = splitFirst(parts[0], '=');
  if (name.empty() || rest.empty()) return badPart(entry);
  out.name = std::string(name);
  const auto [action, range] = splitFirst(rest, '@');
  TY_RETURN_IF_ERROR(parseAction(action, out));
  if (!range.empty()) TY_RETURN_IF_ERROR(parseRange(range, out));
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = splitFirst(parts[i], '=');
    if (key == "task") {
      mine = mine && value == process.task;
    } else if (key == "life") {
      mine = mine && value == process.life;
    } else if (key == "while") {
      out.file = std::string(value);
    } else if (key != "times" || !readNumber(value, out.times)) {
      return badPart(entry);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status configureFailpoints(std::string_view config, std::string_view task, std::string_view life) {
  std::vector<Failpoint> parsed;
  for (std::string_view entry : split(config, ';')) {
    entry = trim(entry);
    if (entry.empty()) continue;
    Failpoint point;
    bool mine = true;
    TY_RETURN_IF_ERROR(parseEntry(entry, {task, life}, point, mine));
    if (mine) parsed.push_back(std::move(point));
  }
  std::lock_guard lock(mutex);
  table() = std::move(parsed);
  internal::failpoints_on.store(!table().empty());
  return absl::OkStatus();
}

FailAction internal::hitFailpointSlow(std::string_view name, std::int64_t number) {
  Failpoint hit;
  {
    std::lock_guard lock(mutex);
    for (Failpoint& point : table()) {
      if (point.name != name || number < point.from || number > point.to || point.times <= 0)
        continue;
      if (fileIsGone(point)) continue;
      --point.times;
      hit = point;
      break;
    }
  }
  if (hit.name.empty()) return FailAction::kNone;
  if (hit.action == "crash") {
    TY_WARN("failpoint {} at {}: crash", name, number);
    ::kill(::getpid(), SIGKILL);
  }
  if (hit.action == "pause") {
    TY_WARN("failpoint {} at {}: pause", name, number);
    ::raise(SIGSTOP);
  }
  if (hit.millis >= kToldMillis) TY_WARN("failpoint {} at {}: {} ms", name, number, hit.millis);
  sleepAt(hit);
  if (hit.action == "nan") return FailAction::kNan;
  return hit.action == "error" ? FailAction::kError : FailAction::kNone;
}

}  // namespace trainyard
