#include "agent/traffic/interface_meter.h"

#include <vector>

#include "base/core/strings.h"
#include "base/process/files.h"

namespace trainyard::agent {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;
// Of the numbers behind an interface's name.
constexpr std::size_t kReceived = 0, kTransmitted = 8;

std::vector<std::uint64_t> numbers(std::string_view text) {
  std::vector<std::uint64_t> found;
  for (const std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    const auto value = parseNumber<std::uint64_t>(word);
    if (!value) return {};
    found.push_back(*value);
  }
  return found;
}

std::optional<WireBytes> now(const std::filesystem::path& file) {
  const StatusOr<std::string> text = readFile(file, kMostBytes);
  return text.ok() ? bytesOfOnlyInterface(*text) : std::nullopt;
}

}  // namespace

std::optional<WireBytes> bytesOfOnlyInterface(std::string_view text) {
  std::optional<WireBytes> found;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;  // a heading
    const std::vector<std::uint64_t> counters = numbers(line.substr(colon + 1));
    if (trim(line.substr(0, colon)) == "lo" || counters.size() <= kTransmitted) continue;
    if (found) return std::nullopt;
    found = WireBytes{counters[kReceived], counters[kTransmitted]};
  }
  return found;
}

InterfaceMeter::InterfaceMeter(std::filesystem::path file)
    : file_(std::move(file)), first_(now(file_)) {}

std::optional<WireBytes> InterfaceMeter::read() const {
  const std::optional<WireBytes> bytes = now(file_);
  if (!bytes || !first_) return std::nullopt;
  return WireBytes{bytes->received - first_->received, bytes->transmitted - first_->transmitted};
}

}  // namespace trainyard::agent
