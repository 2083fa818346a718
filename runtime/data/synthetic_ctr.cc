#include "runtime/data/internal/synthetic_ctr.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/core/check.h"
#include "base/core/rng.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/data/internal/field_range.h"
#include "runtime/data/internal/order.h"
#include "runtime/data/internal/zipf.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::uint64_t kClickKey = 0x636c'6963'6b5f'6b65;
constexpr double kMeanLogit = -1.5;
constexpr double kLogitVariance = 1.3 * 1.3;
// What of it comes from where; of what a job has no columns for goes to the others.
constexpr double kIdShare = 0.6;
constexpr double kPairShare = 0.2;
constexpr double kNumberShare = 0.2;
constexpr int kFactors = 4;
constexpr double kMaxDrift = 1000;

std::uint64_t keyOf(std::string_view what, std::string_view column) {
  return mixKey(mixKey(kClickKey, what), column);
}

// splitmix64's finaliser, as runtime/rows has it: no two ranks become one id.
std::uint64_t strewn(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// A standard normal variable (Box and Muller, 1958).
double normalOf(std::uint32_t a, std::uint32_t b) {
  const double radius = std::sqrt(-2 * std::log((a + 1.0) * 0x1p-32));
  return radius * std::cos(2 * std::numbers::pi * b * 0x1p-32);
}

// What an id means: its weight, then its factors.
using Truth = std::array<double, 1 + kFactors>;

// Over all ids each of mean 0 and variance 1.
Truth drawTruth(std::uint64_t key, std::uint64_t id) {
  const Philox4 bits = philox(key, id);
  Truth truth{normalOf(bits.v[0], bits.v[1])};
  for (int f = 0; f < kFactors; ++f) {
    const std::uint32_t half = bits.v[2 + f / 2] >> (16 * (f % 2)) & 0xffff;
    truth[1 + f] = std::numbers::sqrt3 * ((half + 0.5) * 0x1p-15 - 1);
  }
  return truth;
}

// A column's first ids are in many of the samples: whatever is drawn for them must not make the
// mean and the variance of the whole.
class IdColumn {
 public:
  // `replaced_per_sample`: how often a sample replaces an id.
  IdColumn(const Column& column, double replaced_per_sample)
      : ranks_(column.ids),
        draw_key_(keyOf("ids", column.name)),
        salt_(keyOf("salt", column.name)),
        truth_key_(keyOf("truth", column.name)),
        end_key_(keyOf("end", column.name)),
        replaced_per_sample_(replaced_per_sample) {
    standardise();
  }

  // Of sample `number`.
  std::int64_t rankOf(std::uint64_t number) const { return ranks_.draw(draw_key_, number); }
  // That has this rank at sample `number`.
  std::uint64_t idOf(std::int64_t rank, std::uint64_t number) const {
    return idOfRank(rank, replaced_per_sample_ > 0 ? replaced(rank, number) : 0);
  }
  // Over the samples each of mean 0 and variance 1; all 0 where there is one id only.
  Truth truthOf(std::int64_t rank) const {
    Truth truth = drawTruth(truth_key_, idOfRank(rank, 0));
    for (std::size_t i = 0; i < truth.size(); ++i) truth[i] = (truth[i] - mean_[i]) * scale_[i];
    return truth;
  }

 private:
  static constexpr std::int64_t kFirstRanks = 4096;  // the others are taken for their expectation

  static constexpr int kRankBits = 40;
  static_assert(Zipf::kMaxRanks < std::int64_t{1} << kRankBits);

  // The id of a rank after `replaced` others.
  std::uint64_t idOfRank(std::int64_t rank, std::uint64_t replaced) const {
    return strewn((static_cast<std::uint64_t>(rank) | replaced << kRankBits) ^ salt_);
  }

  std::uint64_t replaced(std::int64_t rank, std::uint64_t number) const {
    const double begun = toUnitFloat(philox(end_key_, static_cast<std::uint64_t>(rank)).v[0]);
    return static_cast<std::uint64_t>(begun + static_cast<double>(number) * replaced_per_sample_);
  }

  void standardise() {
    Truth squares{};
    double others = 1;
    for (std::int64_t rank = 1; rank <= std::min(ranks_.ranks(), kFirstRanks); ++rank) {
      const double share = ranks_.probability(rank);
      const Truth truth = drawTruth(truth_key_, idOfRank(rank, 0));
      others -= share;
      for (std::size_t i = 0; i < truth.size(); ++i) {
        mean_[i] += share * truth[i];
        squares[i] += share * truth[i] * truth[i];
      }
    }
    for (std::size_t i = 0; i < squares.size(); ++i) {
      const double variance = squares[i] + std::max(others, 0.0) - mean_[i] * mean_[i];
      scale_[i] = variance > 1e-6 ? 1 / std::sqrt(variance) : 0;
    }
  }

  const Zipf ranks_;
  const std::uint64_t draw_key_;
  const std::uint64_t salt_;
  const std::uint64_t truth_key_;
  const std::uint64_t end_key_;
  const double replaced_per_sample_;
  Truth mean_{};
  Truth scale_{};
};

struct NumberColumn {
  std::uint64_t draw_key;
  double weight;

  float numberOf(std::uint64_t number) const {
    return 2 * toUnitFloat(philox(draw_key, number).v[0]) - 1;
  }
};

// Before shareOut(): a sign, and at most three times as large as another's.
double numberWeight(std::string_view column) {
  const Philox4 bits = philox(keyOf("weight of a number", column), 0);
  const double size = 0.5 + toUnitFloat(bits.v[0]);
  return (bits.v[1] & 1) != 0 ? size : -size;
}

// One sample, before its label.
struct Drawn {
  std::vector<std::int64_t> ranks;  // of its ids
  std::vector<float> numbers;
};

class SyntheticCtrDataset : public SyntheticCtr {
 public:
  explicit SyntheticCtrDataset(SyntheticCtrSpec spec)
      : SyntheticCtr(spec.columns), spec_(std::move(spec)) {
    std::string text =
        fmt::format("trainyard synthetic ctr 1: {} from {}\n", spec_.samples, spec_.first);
    if (spec_.drift > 0)
      text += fmt::format("drift {} within {}\n", spec_.drift, spec_.pass_samples);
    for (const Column& column : spec_.columns) {
      text += hashedAs(column);
      add(column);
    }
    fingerprint_ = sha256Hex(text);
    label_key_ = keyOf("label", "");
    shareOut();
  }

  std::int64_t size() const override { return spec_.samples; }
  const std::string& fingerprint() const override { return fingerprint_; }

  void read(std::span<const std::int64_t> samples, std::span<const std::int64_t> keys,
            Batch& out) const override {
    prepareTable(columns(), samples, keys, size(), out);
    Drawn drawn;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::uint64_t number = numberOf(samples[i]);
      draw(number, drawn);
      for (std::size_t c = 0; c < ids_.size(); ++c)
        append(ids_[c].idOf(drawn.ranks[c], number), i, out.features[c]);
      std::copy(drawn.numbers.begin(), drawn.numbers.end(),
                out.numbers.begin() + static_cast<std::ptrdiff_t>(i * numbers_.size()));
      out.labels[i] = labelOf(number, logitOf(drawn));
    }
  }

  void readFeatures(std::span<const std::int64_t> samples,
                    std::vector<FeatureIds>& out) const override {
    prepareFeatures(columns(), samples, size(), out);
    for (std::size_t c = 0; c < ids_.size(); ++c) {
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const std::uint64_t number = numberOf(samples[i]);
        append(ids_[c].idOf(ids_[c].rankOf(number), number), i, out[c]);
      }
    }
  }

  double oracleLogit(std::int64_t sample) const override {
    Drawn drawn;
    draw(numberOf(sample), drawn);
    return logitOf(drawn);
  }

 private:
  void add(const Column& column) {
    if (column.kind == ColumnKind::kId) {
      const double passes = spec_.drift > 0 ? static_cast<double>(spec_.pass_samples) : 1;
      ids_.emplace_back(column, spec_.drift / passes);
    } else if (column.kind == ColumnKind::kNumber) {
      numbers_.push_back(
          {.draw_key = keyOf("numbers", column.name), .weight = numberWeight(column.name)});
    }
  }

  // Scales everything that is planted to its share of the logit's variance.
  void shareOut() {
    const auto columns = static_cast<double>(ids_.size());
    const double pairs = columns * (columns - 1) / 2;
    const double shares = (columns > 0 ? kIdShare : 0) + (pairs > 0 ? kPairShare : 0) +
                          (numbers_.empty() ? 0 : kNumberShare);
    const double unit = kLogitVariance / shares;
    if (columns > 0) weight_scale_ = std::sqrt(unit * kIdShare / columns);
    if (pairs > 0) pair_scale_ = std::sqrt(unit * kPairShare / (kFactors * pairs));
    double squares = 0;  // of the weights of the numbers, whose own variance is 1/3
    for (const NumberColumn& column : numbers_) squares += column.weight * column.weight / 3;
    for (NumberColumn& column : numbers_) column.weight *= std::sqrt(unit * kNumberShare / squares);
  }

  std::uint64_t numberOf(std::int64_t sample) const {
    return static_cast<std::uint64_t>(spec_.first + sample);
  }

  static void append(std::uint64_t id, std::size_t sample, FeatureIds& feature) {
    feature.ids.push_back(id);
    feature.ends[sample] = static_cast<std::int32_t>(feature.ids.size());
  }

  void draw(std::uint64_t number, Drawn& out) const {
    out.ranks.clear();
    out.numbers.clear();
    for (const IdColumn& column : ids_) out.ranks.push_back(column.rankOf(number));
    for (const NumberColumn& column : numbers_) out.numbers.push_back(column.numberOf(number));
  }

  double logitOf(const Drawn& drawn) const {
    double weights = 0;
    std::array<double, kFactors> sums{};
    double squares = 0;
    for (std::size_t c = 0; c < ids_.size(); ++c) {
      const Truth truth = ids_[c].truthOf(drawn.ranks[c]);
      weights += truth[0];
      for (int f = 0; f < kFactors; ++f) {
        sums[f] += truth[1 + f];
        squares += truth[1 + f] * truth[1 + f];
      }
    }
    // The products of each two: (the square of the sum - the sum of the squares) / 2.
    double pairs = -squares;
    for (const double sum : sums) pairs += sum * sum;
    double logit = kMeanLogit + weight_scale_ * weights + pair_scale_ * pairs / 2;
    for (std::size_t c = 0; c < numbers_.size(); ++c) {
      logit += numbers_[c].weight * drawn.numbers[c];
    }
    return logit;
  }

  std::int64_t labelOf(std::uint64_t number, double logit) const {
    const Philox4 bits = philox(label_key_, number);
    const std::uint64_t word = std::uint64_t{bits.v[0]} << 32 | bits.v[1];
    const double unit = static_cast<double>(word >> 11) * 0x1p-53;
    return unit < 1 / (1 + std::exp(-logit)) ? 1 : 0;
  }

  const SyntheticCtrSpec spec_;
  std::vector<IdColumn> ids_;
  std::vector<NumberColumn> numbers_;
  double weight_scale_ = 0;
  double pair_scale_ = 0;
  std::uint64_t label_key_ = 0;
  std::string fingerprint_;
};

// What changes with time needs samples that are read in the order of time.
Status checkDrift(const v1::DataSpec& spec) {
  if (!spec.has_drift()) return absl::OkStatus();
  if (spec.order() != "Sequential")
    return invalidInput("training.data.drift", "only with order Sequential");
  if (spec.drift() >= 0 && spec.drift() <= kMaxDrift) return absl::OkStatus();
  return invalidInput("training.data.drift",
                      fmt::format("{}, expected 0 to {}", spec.drift(), kMaxDrift));
}

}  // namespace

std::unique_ptr<SyntheticCtr> makeSyntheticCtr(SyntheticCtrSpec spec) {
  return std::make_unique<SyntheticCtrDataset>(std::move(spec));
}

StatusOr<SyntheticCtrSpec> readSyntheticCtrSpec(const v1::DataSpec& spec) {
  SyntheticCtrSpec out;
  TY_ASSIGN_OR_RETURN(out.columns, readColumns(spec));
  for (std::size_t i = 0; i < out.columns.size(); ++i) {
    const Column& column = out.columns[i];
    const std::string place = fmt::format("training.data.columns[{}]", i);
    const ColumnKind kind = column.kind;
    if (kind != ColumnKind::kId && kind != ColumnKind::kNumber && kind != ColumnKind::kLabel) {
      return invalidInput(place + ".kind",
                          fmt::format("\"{}\", expected Id, Number or Label", nameOf(column.kind)));
    }
    if (column.kind == ColumnKind::kId) {
      TY_RETURN_IF_ERROR(checkRange(place + ".ids", column.ids, 1, Zipf::kMaxRanks));
    }
  }
  TY_RETURN_IF_ERROR(checkSamples(spec));
  out.samples = spec.samples();
  out.pass_samples = spec.samples();
  TY_RETURN_IF_ERROR(checkDrift(spec));
  out.drift = spec.drift();
  return out;
}

}  // namespace trainyard::runtime::internal
