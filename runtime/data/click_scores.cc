#include "runtime/data/click_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainyard::runtime {
namespace {

constexpr double kMostLogit = 16;

std::size_t binOf(float logit) {
  if (std::isnan(logit)) return 0;  // of a model that is broken, whose loss says so
  const double at = (static_cast<double>(logit) + kMostLogit) * (kClickBins / (2 * kMostLogit));
  return static_cast<std::size_t>(std::clamp(std::floor(at), 0.0, double{kClickBins - 1}));
}

std::uint64_t sumOf(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

void ClickScores::add(float logit, bool label, float weight) {
  negatives.resize(kClickBins);
  positives.resize(kClickBins);
  ++(label ? positives : negatives)[binOf(logit)];
  predicted += weight / (1 + std::exp(-static_cast<double>(logit)));
  if (label) clicked += weight;
}

void ClickScores::add(const ClickScores& other) {
  if (other.empty()) return;
  negatives.resize(kClickBins);
  positives.resize(kClickBins);
  for (std::size_t bin = 0; bin < negatives.size(); ++bin) {
    negatives[bin] += other.negatives[bin];
    positives[bin] += other.positives[bin];
  }
  predicted += other.predicted;
  clicked += other.clicked;
}

std::optional<double> ClickScores::auc() const {
  const auto all_negatives = static_cast<double>(sumOf(negatives));
  const auto all_positives = static_cast<double>(sumOf(positives));
  if (all_negatives == 0 || all_positives == 0) return std::nullopt;
  double pairs = 0;
  double below = 0;  // negatives with lower scores
  for (std::size_t bin = 0; bin < negatives.size(); ++bin) {
    const auto here = static_cast<double>(negatives[bin]);
    pairs += static_cast<double>(positives[bin]) * (below + here / 2);
    below += here;
  }
  return pairs / (all_negatives * all_positives);
}

std::optional<double> ClickScores::calibration() const {
  if (clicked == 0) return std::nullopt;
  return predicted / clicked;
}

}  // namespace trainyard::runtime
