#include "cli/report/ranks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/core/strings.h"
#include "cli/report/json_fields.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

constexpr double kMicros = 1e-6;
// Threads of a worker in the timeline.
constexpr int kStepsLane = 1, kAllReduceLane = 2;

struct Stretch {
  double begin = 0, end = 0;  // microseconds
};

struct RankSpans {
  RankWork work;
  std::vector<Stretch> waits, reduces;
};

void addSpan(const nlohmann::json& json, RankSpans* rank) {
  const double begin = numberField(json, "ts").value_or(0);
  const double took = numberField(json, "dur").value_or(0);
  const Stretch stretch{begin, begin + took};
  if (numberField(json, "tid") == kAllReduceLane) {
    rank->reduces.push_back(stretch);
    rank->work.reduce_seconds += took * kMicros;
    return;
  }
  const std::string what = textField(json, "name");
  if (what == "wait") rank->waits.push_back(stretch);
  if (what == "data" || what == "compute") rank->work.busy_seconds += took * kMicros;
  if (what == "compute") ++rank->work.steps;
}

// How long both of two kinds of stretches last; those of one kind do not overlap.
double together(std::vector<Stretch> a, std::vector<Stretch> b) {
  const auto earlier = [](const Stretch& x, const Stretch& y) { return x.begin < y.begin; };
  std::sort(a.begin(), a.end(), earlier);
  std::sort(b.begin(), b.end(), earlier);
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    (a[i].end < b[j].end ? i : j) += 1;
  }
  return sum;
}

}  // namespace

std::vector<RankWork> parseTimeline(const std::string& text) {
  std::map<int, RankSpans> ranks;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with(',')) line.remove_suffix(1);
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    const auto number = numberField(json, "pid");
    if (!number) continue;
    RankSpans& rank = ranks[static_cast<int>(*number)];
    const std::string kind = textField(json, "ph");
    if (kind == "X") addSpan(json, &rank);
    const auto args = json.find("args");
    if (kind == "M" && textField(json, "name") == "process_name" && args != json.end())
      rank.work.name = textField(*args, "name");
  }
  std::vector<RankWork> works;
  for (auto& [number, rank] : ranks) {
    if (rank.work.steps == 0 || rank.reduces.empty()) continue;
    rank.work.waited_seconds = together(std::move(rank.waits), std::move(rank.reduces)) * kMicros;
    works.push_back(std::move(rank.work));
  }
  std::stable_sort(works.begin(), works.end(), [](const RankWork& a, const RankWork& b) {
    return a.busyPerStep() > b.busyPerStep();
  });
  return works;
}

}  // namespace trainyard::cli
