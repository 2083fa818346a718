// How many ids a step is to be expected to look up.
#pragma once

#include <cstdint>

namespace trainyard::cli {

// Exponent of the frequencies of synthetic_ctr's ids: the k-th of them has a share proportional to
// k^-1.05 (runtime/data/internal/zipf.h).
inline constexpr double kIdExponent = 1.05;

// How many different ones are expected among `draws` independent draws from so many ids, the k-th
// of which has a probability proportional to k^-exponent: the sum over all k of 1 - (1 -
// p_k)^draws. To about four digits; any number of ids takes the same time. Precondition: ids >= 1,
// draws >= 0.
double expectedDistinct(std::int64_t ids, double exponent, std::int64_t draws);

}  // namespace trainyard::cli
