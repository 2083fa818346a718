// How well predicted probabilities tell samples of label 1 from those of label 0, put together from
// any number of parts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trainyard::runtime {

// A histogram of the logits of each label, of kClickBins bins of equal width over [-16, 16); what
// is beyond counts with the outermost, what is no number with the lowest. Whole numbers, so that
// sums depend on no order.
inline constexpr int kClickBins = 4096;

struct ClickScores {
  std::vector<std::uint64_t> negatives;  // by bin; empty: none was scored
  std::vector<std::uint64_t> positives;
  double predicted = 0;  // sum of the probabilities, each times the sample's weight
  double clicked = 0;    // sum of the weights of samples of label 1

  bool empty() const { return negatives.empty(); }
  // One sample, whose probability is the logistic function of its logit. Histograms count it once
  // whatever its weight.
  void add(float logit, bool label, float weight = 1);
  void add(const ClickScores& other);

  // Area under the ROC curve: the share of pairs of both labels in which the positive one has the
  // higher score, those of equal bins counting half. That rounding costs at most 1e-4 where logits
  // are spread over some units. Nothing: there are not both labels.
  std::optional<double> auc() const;
  // Predicted positives over those that there are, by weight; 1 is right. Nothing: there are none.
  std::optional<double> calibration() const;
};

}  // namespace trainyard::runtime
