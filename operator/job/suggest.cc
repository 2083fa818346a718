#include <algorithm>
#include <cctype>
#include <numeric>

#include "operator/job/internal/validate.h"

namespace trainyard::control::internal {
namespace {

// learning_rate, learning-rate and learningRate are one.
std::string folded(std::string_view word) {
  std::string result;
  for (const unsigned char c : word) {
    if (c != '_' && c != '-') result.push_back(static_cast<char>(std::tolower(c)));
  }
  return result;
}

// Insertions, deletions and replacements that make `b` of `a` (Levenshtein), row by row.
std::size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongestWord = 64;
  if (word.size() > kLongestWord) return std::nullopt;
  const std::string meant = folded(word);
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, meant.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = editDistance(meant, folded(candidate));
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace trainyard::control::internal
