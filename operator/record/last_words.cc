#include "operator/record/last_words.h"

#include <vector>

#include "base/core/strings.h"
#include "nlohmann/json.hpp"

namespace trainyard::control {
namespace {

constexpr std::size_t kLongestLine = 200;  // in a cause

// "2026-01-31T13:05:09.123Z E worker-1: data.images: ..." -> "data.images: ..."
std::string errorInTextLine(std::string_view line) {
  const auto [time, rest] = splitFirst(line, ' ');
  const auto [level, message] = splitFirst(rest, ' ');
  if (level != "E" || time.find('T') == std::string_view::npos) return "";
  const auto [task, text] = splitFirst(message, ':');
  const bool has_task = task.starts_with("ps-") || task.starts_with("worker-");
  return std::string(trim(has_task ? text : message));
}

std::string errorInLine(std::string_view line) {
  if (!line.starts_with('{')) return errorInTextLine(line);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || json.value("level", "") != "error") return "";
  return json.value("message", "");
}

// A line of the agent: "2026-01-31T13:05:09.123Z I worker-1: agent: ...", or an object.
bool isOurs(std::string_view line) {
  if (line.starts_with('{')) return line.find("\"level\"") != std::string_view::npos;
  const auto [time, rest] = splitFirst(line, ' ');
  return time.size() > 20 && time[10] == 'T' && time.ends_with('Z');
}

}  // namespace

std::string lastErrorIn(std::string_view text) {
  const std::vector<std::string_view> lines = split(text, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (std::string error = errorInLine(*line); !error.empty()) return error;
  }
  return "";
}

std::string lastOutputIn(std::string_view text) {
  const std::vector<std::string_view> lines = split(text, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::string_view words = trim(*line);
    if (!words.empty() && !isOurs(words)) return std::string(words.substr(0, kLongestLine));
  }
  return "";
}

}  // namespace trainyard::control
