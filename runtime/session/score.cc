#include "runtime/session/score.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fmt/format.h"
#include "runtime/session/body.h"
#include "runtime/session/message.h"

namespace trainyard::runtime::session {
namespace {

// Most bins are empty: a pair for each of the others.
void write(const std::vector<std::uint64_t>& counts, BodyWriter& writer) {
  std::vector<std::uint32_t> bins;
  std::vector<std::uint64_t> found;
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    if (counts[bin] == 0) continue;
    bins.push_back(static_cast<std::uint32_t>(bin));
    found.push_back(counts[bin]);
  }
  writer.numbers(std::span<const std::uint32_t>(bins));
  writer.numbers(std::span<const std::uint64_t>(found));
}

// Takes what they are from `left`, of which there must be as many.
bool read(BodyReader& reader, std::vector<std::uint64_t>& counts, std::uint64_t& left) {
  const auto bins = reader.numbers<std::uint32_t>();
  const auto found = reader.numbers<std::uint64_t>();
  const bool ascending = std::ranges::adjacent_find(bins, std::greater_equal<>()) == bins.end();
  if (bins.size() != found.size() || !ascending) return false;
  if (!bins.empty() && bins.back() >= static_cast<std::uint32_t>(kClickBins)) return false;
  counts.assign(kClickBins, 0);
  for (std::size_t i = 0; i < bins.size(); ++i) {
    if (found[i] == 0 || found[i] > left) return false;
    left -= found[i];
    counts[bins[i]] = found[i];
  }
  return true;
}

bool readClicks(BodyReader& reader, Score& score) {
  score.clicks.predicted = reader.number<double>();
  auto left = static_cast<std::uint64_t>(score.samples);
  const bool read_all = std::isfinite(score.clicks.predicted) && score.clicks.predicted >= 0 &&
                        read(reader, score.clicks.negatives, left) &&
                        read(reader, score.clicks.positives, left);
  // A program's samples have no weights.
  for (const std::uint64_t count : score.clicks.positives)
    score.clicks.clicked += static_cast<double>(count);
  return read_all;
}

// What it adds to log loss; at most 1 is raised to a power: nothing overflows.
double lossOf(double logit, bool label) {
  const double against = label ? -logit : logit;
  return std::max(against, 0.0) + std::log1p(std::exp(-std::fabs(logit)));
}

}  // namespace

std::string encode(const Score& score) {
  BodyWriter writer;
  writer.number(score.hits).number(score.samples).number(score.loss_sum);
  writer.number(static_cast<std::uint8_t>(score.clicks.empty() ? 0 : 1));
  if (score.clicks.empty()) return writer.take();
  writer.number(score.clicks.predicted);
  write(score.clicks.negatives, writer);
  write(score.clicks.positives, writer);
  return writer.take();
}

StatusOr<Score> decodeScore(std::string_view body) {
  BodyReader reader(body);
  Score score;
  score.hits = reader.number<std::int64_t>();
  score.samples = reader.number<std::int64_t>();
  score.loss_sum = reader.number<double>();
  const auto tells = reader.number<std::uint8_t>();
  if (score.hits < 0 || score.samples < score.hits || tells > 1) return damaged(Kind::kEvaluated);
  const bool read = tells == 0 || readClicks(reader, score);
  if (!read || !reader.whole()) return damaged(Kind::kEvaluated);
  return score;
}

StatusOr<Score> scoreOfClicks(std::span<const float> logits, std::span<const std::uint8_t> labels) {
  Score score;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double logit = logits[i];
    if (labels[i] > 1) {
      return absl::InvalidArgumentError(
          fmt::format("label {} of sample {}, expected 0 or 1", labels[i], i));
    }
    if (!std::isfinite(logit))
      return absl::InvalidArgumentError(fmt::format("the logit of sample {} is {}", i, logit));
    const bool label = labels[i] == 1;
    score.hits += (logit > 0) == label ? 1 : 0;
    score.loss_sum += lossOf(logit, label);
    score.clicks.add(logits[i], label);
  }
  score.samples = static_cast<std::int64_t>(logits.size());
  return score;
}

}  // namespace trainyard::runtime::session
