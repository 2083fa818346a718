#include "runtime/ps/link_estimate.h"

#include <algorithm>

namespace trainyard::runtime::ps {
namespace {

constexpr double kGain = 2;
constexpr double kSmoothing = 1.0 / 8;

}  // namespace

void LinkEstimate::observe(int lane, double bytes_per_second, Duration round_trip) {
  const auto [found, first] = lanes_.try_emplace(lane, Lane{bytes_per_second, round_trip});
  if (first) return;
  Lane& known = found->second;
  known.bytes_per_second += kSmoothing * (bytes_per_second - known.bytes_per_second);
  known.round_trip = round_trip;
}

double LinkEstimate::bytesPerSecond() const {
  double all = 0;
  for (const auto& [lane, known] : lanes_) all += known.bytes_per_second;
  return all;
}

Duration LinkEstimate::delay() const {
  if (lanes_.empty()) return Duration{};
  Duration shortest = lanes_.begin()->second.round_trip;
  for (const auto& [lane, known] : lanes_) shortest = std::min(shortest, known.round_trip);
  return shortest;
}

std::uint64_t LinkEstimate::windowBytes() const {
  return static_cast<std::uint64_t>(kGain * bytesPerSecond() * toSeconds(delay()));
}

}  // namespace trainyard::runtime::ps
