#include "tests/multiproc/faults/cell.h"

#include <algorithm>
#include <array>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr std::size_t kColumns = 8;
constexpr std::array<std::string_view, 4> kHow{"kill", "crash", "freeze", "hang"};
constexpr std::array<std::string_view, 4> kOutcomes{"goes-on", "goes-back", "from-seed", "resumes"};
constexpr std::array<std::string_view, 3> kLost{"0", "since-start", "since-checkpoint"};
constexpr std::array<std::string_view, 3> kRestarts{"0", "1", "0-1"};

template <std::size_t N>
bool isOneOf(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<std::string> wordsOf(std::string_view line) {
  std::vector<std::string> words;
  for (const std::string_view word : split(line, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

}  // namespace

std::string FaultCell::task() const {
  if (ofLauncher()) return "";
  return ofAgent() ? victim.substr(victim.find('/') + 1) : victim;
}

bool FaultCell::wantsCheckpoint() const {
  return moment != "start" && (moment == "checkpoint" || ofLauncher() || task() == coordinator());
}

int FaultCell::waits() const {
  if (how == "hang") return 3;
  if (moment == "end") return 2;
  return how == "freeze" ? 1 : 0;
}

StatusOr<std::vector<FaultCell>> parseFaultTable(std::string_view text) {
  std::vector<FaultCell> cells;
  int number = 0;
  bool ring = false;
  int ps = 2;
  std::string update;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    const std::vector<std::string> words = wordsOf(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    if (words[0] == "strategy" && words.size() == 2) {
      ring = words[1] == "AllReduce";
      continue;
    }
    if (words[0] == "update" && words.size() == 4 && words[2] == "ps") {
      update = words[1];
      ps = parseNumber<int>(words[3]).value_or(0);
      ring = false;
      continue;
    }
    if (words.size() != kColumns) {
      return absl::InvalidArgumentError(
          fmt::format("line {}: {} columns, not {}", number, words.size(), kColumns));
    }
    const auto [held, place] = splitFirst(words[2], ':');
    FaultCell cell{.victim = words[0],
                   .moment = words[1],
                   .held = std::string(held),
                   .place = std::string(place),
                   .how = words[3],
                   .outcome = words[4],
                   .lost = words[5],
                   .restarts = words[6],
                   .digest = words[7],
                   .line = number,
                   .ring = ring,
                   .ps = ps,
                   .update = update};
    // Only who is stopped or crashes by itself can be meant.
    const bool alone = cell.how == "kill" || cell.victim == cell.held;
    if (place.find('@') == std::string_view::npos || !alone || !isOneOf(cell.how, kHow) ||
        !isOneOf(cell.outcome, kOutcomes) || !isOneOf(cell.lost, kLost) ||
        !isOneOf(cell.restarts, kRestarts) || cell.digest != "equal" ||
        cell.ofLauncher() != (cell.outcome == "resumes")) {
      return absl::InvalidArgumentError(fmt::format("line {}: '{}'", number, line));
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace trainyard
