#include "runtime/checkpoint/names.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::runtime {
namespace {

// "PREFIX<number>" as written by us: no sign, no leading zero.
std::optional<std::int64_t> numberAfter(std::string_view prefix, std::string_view text) {
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  const std::string_view digits = text.substr(prefix.size());
  const auto number = parseNumber<std::int64_t>(digits);
  if (!number || *number < 0 || fmt::format("{}", *number) != digits) return std::nullopt;
  return number;
}

}  // namespace

std::optional<StepName> parseManifestName(std::string_view name) {
  const std::vector<std::string_view> parts = split(name, '.');
  if (parts.size() != 3 || parts[2] != "json") return std::nullopt;
  const auto step = numberAfter("step-", parts[0]);
  const auto epoch = numberAfter("e", parts[1]);
  if (!step || !epoch) return std::nullopt;
  return StepName{*step, *epoch};
}

std::optional<StepName> findStepName(std::string_view name) {
  const std::vector<std::string_view> parts = split(name, '.');
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    const auto step = numberAfter("step-", parts[i]);
    const auto epoch = numberAfter("e", parts[i + 1]);
    if (step && epoch) return StepName{*step, *epoch};
  }
  return std::nullopt;
}

bool isPlainFileName(std::string_view name) {
  if (name.empty() || name.size() > 255 || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

std::optional<TensorName> parseTensorName(std::string_view name) {
  const std::size_t open = name.rfind('[');
  if (open == std::string_view::npos || open == 0) return std::nullopt;
  const std::size_t close = name.find(']', open);
  if (close == std::string_view::npos) return std::nullopt;
  const auto [first, second] = splitFirst(name.substr(open + 1, close - open - 1), ':');
  const auto begin = numberAfter("", first);
  const auto end = numberAfter("", second);
  if (!begin || !end || *begin >= *end) return std::nullopt;
  TensorName result{std::string(name.substr(0, open)), "", *begin, *end};
  const std::string_view rest = name.substr(close + 1);
  if (rest.empty()) return result;
  if (rest[0] != '/' || rest.size() == 1) return std::nullopt;
  result.slot = std::string(rest.substr(1));
  return result;
}

std::string shardTensorName(std::string_view variable, std::string_view slot, std::int64_t begin,
                            std::int64_t end) {
  return fmt::format("{}[{}:{}]{}{}", variable, begin, end, slot.empty() ? "" : "/", slot);
}

std::string Manifest::fileName() const {
  return fmt::format("step-{}.e{}.json", step, epoch);
}

std::int64_t elements(const ManifestVariable& variable) {
  std::int64_t n = 1;
  for (const std::int64_t d : variable.shape) n *= d;
  return n;
}

}  // namespace trainyard::runtime
