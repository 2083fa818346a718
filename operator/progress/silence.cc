#include "operator/progress/internal/silence.h"

#include <algorithm>
#include <string_view>

#include "operator/progress/internal/poll_round.h"

namespace trainyard::control {

namespace {

// Words of the same kind of failure vary; and between a busy operator and an agent that is away
// calls fail in the one way and the other, of which silence says the less.
bool isNews(std::string_view known, std::string_view reason) {
  return reason != known && (known.empty() || reason != kNoAnswer);
}

}  // namespace

bool tellOfSilent(const std::vector<Silence>& silent, bool more, TimePoint now, Duration after,
                  std::map<TaskKey, JobReport::Unreachable>& told) {
  const auto isDue = [&](const Silence& of) { return now - of.since >= after; };
  const auto isOverdue = [&](const Silence& of) { return now - of.since >= 2 * after; };
  const bool grows = more || !std::ranges::all_of(silent, isDue);
  if (told.empty() && grows && std::ranges::none_of(silent, isOverdue)) return false;
  bool news = false;
  for (const Silence& of : silent) {
    if (!isDue(of)) continue;
    JobReport::Unreachable& known = told[of.key];
    if (known.created == of.created && !isNews(known.why.reason, of.why.reason)) continue;
    known = {of.created, of.why};
    news = true;
  }
  return news;
}

}  // namespace trainyard::control
