#include "cli/plan/distinct_ids.h"

#include <algorithm>
#include <cmath>

namespace trainyard::cli {
namespace {

// Ranks that are looked at one by one; of the others a hundredth more than there are before them at
// once, as if each were the middle one.
constexpr std::int64_t kSingly = 4096;

// The sum of `value(rank)` over ranks 1 .. ids.
template <typename Value>
double sumOverRanks(std::int64_t ids, Value value) {
  double sum = 0;
  std::int64_t rank = 1;
  for (; rank <= std::min(ids, kSingly); ++rank) sum += value(static_cast<double>(rank));
  while (rank <= ids) {
    const std::int64_t count = std::min(ids - rank + 1, rank / 100);
    sum += static_cast<double>(count) *
           value(static_cast<double>(rank) + static_cast<double>(count - 1) / 2);
    rank += count;
  }
  return sum;
}

}  // namespace

double expectedDistinct(std::int64_t ids, double exponent, std::int64_t draws) {
  const auto weight = [&](double rank) { return std::pow(rank, -exponent); };
  const double all = sumOverRanks(ids, weight);
  const auto times = static_cast<double>(draws);
  // Of one id the whole weight: it is there from the first draw on.
  return sumOverRanks(ids, [&](double rank) {
    const double share = std::min(weight(rank) / all, 1.0);
    return draws == 0 ? 0 : -std::expm1(times * std::log1p(-share));
  });
}

}  // namespace trainyard::cli
