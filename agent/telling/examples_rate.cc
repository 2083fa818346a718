#include "agent/telling/examples_rate.h"

#include <algorithm>

namespace trainyard::agent {
namespace {

constexpr Duration kWindow = std::chrono::seconds(10);
constexpr Duration kShortest = std::chrono::milliseconds(100);
// Of a program that tells every millisecond: what is nearer to the one before takes its place.
constexpr Duration kApart = std::chrono::milliseconds(50);

}  // namespace

void ExamplesRate::add(TimePoint at, std::uint64_t examples) {
  const std::size_t count = samples_.size();
  if (count > 1 && at - samples_[count - 2].at < kApart) samples_.pop_back();
  samples_.push_back({at, examples});
  // One that is older than the window stays, so that the whole window is covered.
  while (samples_.size() > 2 && samples_[1].at <= at - kWindow) samples_.pop_front();
}

std::optional<double> ExamplesRate::perSecond(TimePoint now) const {
  if (samples_.size() < 2) return std::nullopt;
  const Duration span = samples_.back().at - samples_.front().at;
  if (span < kShortest) return std::nullopt;
  if (now - samples_.back().at > std::max<Duration>(kWindow, 2 * span)) return std::nullopt;
  const std::uint64_t examples = samples_.back().examples - samples_.front().examples;
  return static_cast<double>(examples) / toSeconds(span);
}

}  // namespace trainyard::agent
