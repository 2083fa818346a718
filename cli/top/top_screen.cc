#include "cli/top/top_screen.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/core/units.h"
#include "cli/live/text.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr std::array<const char*, 8> kLevels = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
// A worker that computes so much longer than the others is called a straggler.
constexpr double kStraggler = 1.2;
constexpr int kName = 11;
constexpr int kSpark = 20;

struct Part {
  std::string text;
  Tone tone = Tone::kPlain;
};

// Parts from left to right while they fit.
std::string lineOf(const std::vector<Part>& parts, const TableStyle& style) {
  std::string line;
  int used = 0;
  for (const Part& part : parts) {
    if (part.text.empty()) continue;
    const int gap = used == 0 ? 0 : 2;
    const int left = style.columns - used - gap;
    if (used > 0 && textWidth(part.text) > left) break;
    const std::string text = fit(part.text, left);
    line += std::string(static_cast<std::size_t>(gap), ' ') + paint(text, part.tone, style.colour);
    used += gap + textWidth(text);
  }
  return line;
}

std::string counted(double value) {
  return formatCount(std::llround(value));
}

std::string headLine(const TopJob& job, const TableStyle& style) {
  const bool good = job.state == "Running" || job.state == "Succeeded";
  std::vector<Part> parts = {{job.name, Tone::kBold},
                             {job.state, good ? Tone::kGood : Tone::kWarn}};
  if (job.step && job.steps)
    parts.push_back({fmt::format("step {}/{}", counted(*job.step), counted(*job.steps)), {}});
  else if (job.step)
    parts.push_back({"step " + counted(*job.step), {}});
  if (job.examples_per_second)
    parts.push_back({formatRate(*job.examples_per_second) + " examples/s", {}});
  if (job.loss) parts.push_back({"loss " + formatMeasure(*job.loss), {}});
  if (job.accuracy) parts.push_back({"accuracy " + formatMeasure(*job.accuracy), {}});
  if (job.eta_seconds) parts.push_back({"eta " + formatSeconds(*job.eta_seconds), Tone::kAccent});
  return lineOf(parts, style);
}

void addJob(std::vector<std::string>& lines, const TopJob& job, const TableStyle& style) {
  lines.push_back(headLine(job, style));
  if (job.step && job.steps) {
    const double done = std::clamp(*job.step / *job.steps, 0.0, 1.0);
    const std::string percent = fmt::format(" {:3.0f}%", done * 100);
    lines.push_back(
        progressBar(done, std::max(1, style.columns - textWidth(percent)), style.colour) + percent);
  }
  std::vector<Part> parts;
  if (!job.throughput.empty())
    parts.push_back({"examples/s " + sparkline(job.throughput, kSpark, Floor::kZero), Tone::kGood});
  if (!job.losses.empty())
    parts.push_back({"loss " + sparkline(job.losses, kSpark, Floor::kLeast), Tone::kAccent});
  if (job.checkpoint_age_seconds)
    parts.push_back(
        {"checkpoint " + formatSeconds(*job.checkpoint_age_seconds) + " ago", Tone::kDim});
  if (job.lost_steps.value_or(0) > 0)
    parts.push_back({"steps repeated " + counted(*job.lost_steps), Tone::kWarn});
  if (!parts.empty()) lines.push_back(lineOf(parts, style));
}

std::string stateOf(const TopTask& task) {
  if (!task.reached) return "no answer";
  return task.ready ? "ready" : "not ready";
}

Part restartsOf(const TopTask& task) {
  return {task.restarts > 0 ? fmt::format("restarts {}", task.restarts) : "", Tone::kWarn};
}

std::string workerLine(const TopTask& worker, const TableStyle& style) {
  const bool well = worker.reached && worker.ready;
  const bool straggles = worker.slowdown.value_or(0) >= kStraggler;
  std::vector<Part> parts = {{padRight(worker.name, kName), straggles ? Tone::kWarn : Tone::kBold},
                             {padRight(stateOf(worker), 9), well ? Tone::kGood : Tone::kBad}};
  if (worker.examples_per_second)
    parts.push_back({padLeft(formatRate(*worker.examples_per_second), 9) + " ex/s", {}});
  if (worker.busy_per_step)
    parts.push_back({padLeft(formatSeconds(*worker.busy_per_step), 8) + "/step", {}});
  if (worker.slowdown)
    parts.push_back({padLeft(fmt::format("{:.2f}x", *worker.slowdown), 6),
                     straggles ? Tone::kWarn : Tone::kDim});
  if (worker.waiting)
    parts.push_back({fmt::format("waits {:3.0f}%", *worker.waiting * 100), Tone::kDim});
  if (worker.hidden)
    parts.push_back({fmt::format("hidden {:3.0f}%", *worker.hidden * 100), Tone::kDim});
  if (worker.received_per_second)
    parts.push_back({"in " + formatBytes(*worker.received_per_second) + "/s", {}});
  if (worker.transmitted_per_second)
    parts.push_back({"out " + formatBytes(*worker.transmitted_per_second) + "/s", {}});
  parts.push_back(restartsOf(worker));
  if (!worker.history.empty())
    parts.push_back({sparkline(worker.history, kSpark, Floor::kZero), Tone::kGood});
  return lineOf(parts, style);
}

std::string serverLine(const TopTask& server, double busiest, const TableStyle& style) {
  const bool well = server.reached && server.ready;
  std::vector<Part> parts = {{padRight(server.name, kName), Tone::kBold},
                             {padRight(stateOf(server), 9), well ? Tone::kGood : Tone::kBad}};
  const int bar = std::clamp(style.columns - 92, 8, 40);
  if (server.share) {
    const double part = busiest > 0 ? server.bytesPerSecond() / busiest : 0;
    parts.push_back({trafficBar(part, bar), Tone::kAccent});
    parts.push_back({fmt::format("{:3.0f}%", *server.share * 100), {}});
  }
  if (server.received_per_second)
    parts.push_back({"in " + padLeft(formatBytes(*server.received_per_second), 8) + "/s", {}});
  if (server.transmitted_per_second)
    parts.push_back({"out " + padLeft(formatBytes(*server.transmitted_per_second), 8) + "/s", {}});
  if (server.rows_per_second)
    parts.push_back({padLeft(formatRate(*server.rows_per_second), 9) + " rows/s", {}});
  if (server.hot_rows)
    parts.push_back({fmt::format("hot {:3.0f}%", *server.hot_rows * 100), Tone::kDim});
  parts.push_back(restartsOf(server));
  if (!server.history.empty())
    parts.push_back({sparkline(server.history, kSpark, Floor::kZero), Tone::kAccent});
  return lineOf(parts, style);
}

// "3 workers, slowest first; all-reduce sends 120 MB/s, 87% of its time hidden; slowest worker-1
// 1.35x"
std::string workersTitle(const TopJob& job) {
  std::string title = fmt::format("{} workers, slowest first", job.workers.size());
  if (!job.all_reduce) return title;
  const TopAllReduce& ring = *job.all_reduce;
  title += fmt::format("; all-reduce sends {}/s", formatBytes(ring.sent_per_second));
  if (ring.hidden) title += fmt::format(", {:.0f}% of its time hidden", *ring.hidden * 100);
  if (!ring.slowest.empty()) title += "; slowest " + ring.slowest;
  if (!ring.slowest.empty() && ring.slowdown) title += fmt::format(" {:.2f}x", *ring.slowdown);
  return title;
}

// "2 parameter servers, busiest first; hot share 60%, even would be 50%; tables 120,000 rows/s, 43%
// of hot ids"
std::string serversTitle(const TopJob& job) {
  std::string title = fmt::format("{} parameter servers, busiest first", job.servers.size());
  if (job.servers.front().share)
    title +=
        fmt::format("; hot share {:.0f}%, even would be {:.0f}%", *job.servers.front().share * 100,
                    100.0 / static_cast<double>(job.servers.size()));
  if (!job.rows_per_second) return title;
  title += fmt::format("; tables {} rows/s", formatRate(*job.rows_per_second));
  return job.hot_rows ? title + fmt::format(", {:.0f}% of hot ids", *job.hot_rows * 100) : title;
}

// `lines` and as many of `more` as the screen has room for, with a word on the others.
void addSome(std::vector<std::string>& lines, const std::vector<std::string>& more,
             std::size_t room) {
  if (more.size() <= room) {
    lines.insert(lines.end(), more.begin(), more.end());
    return;
  }
  const std::size_t shown = room == 0 ? 0 : room - 1;
  lines.insert(lines.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(shown));
  if (room > 0) lines.push_back(fmt::format("and {} more", more.size() - shown));
}

}  // namespace

std::string sparkline(const History& values, int width, Floor floor) {
  const auto count = std::min(values.size(), static_cast<std::size_t>(std::max(0, width)));
  if (count == 0) return "";
  const auto begin = values.end() - static_cast<std::ptrdiff_t>(count);
  const auto [least, most] = std::minmax_element(begin, values.end());
  const double low = floor == Floor::kZero ? 0 : *least;
  const double span = *most - low;
  std::string text;
  for (auto it = begin; it != values.end(); ++it) {
    const double part = span > 0 ? (*it - low) / span : floor == Floor::kZero ? 0 : 0.5;
    text += kLevels[static_cast<std::size_t>(std::clamp(part * 8, 0.0, 7.0))];
  }
  return text;
}

std::string trafficBar(double part, int width) {
  const int eighths = static_cast<int>(std::lround(std::clamp(part, 0.0, 1.0) * width * 8));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  if (eighths % 8 > 0) text += kEighths[static_cast<std::size_t>(eighths % 8)];
  return padRight(text, width);
}

std::vector<std::string> renderTop(const TopJob& job, const TableStyle& style) {
  std::vector<std::string> lines;
  addJob(lines, job, style);
  std::vector<std::string> workers, servers;
  for (const TopTask& worker : job.workers) workers.push_back(workerLine(worker, style));
  double busiest = 0;
  for (const TopTask& server : job.servers) busiest = std::max(busiest, server.bytesPerSecond());
  for (const TopTask& server : job.servers) servers.push_back(serverLine(server, busiest, style));
  // A heading or two with an empty line before each; servers get what workers leave, and half at
  // least.
  const std::size_t fixed = lines.size() + (servers.empty() ? 2 : 4);
  const auto rows = static_cast<std::size_t>(style.rows);
  const std::size_t room = style.rows == 0 ? SIZE_MAX / 2 : rows > fixed ? rows - fixed : 0;
  const std::size_t for_servers =
      std::min(servers.size(), std::max(room / 2, room - std::min(room, workers.size())));
  lines.emplace_back();
  lines.push_back(lineOf({{workersTitle(job), Tone::kDim}}, style));
  addSome(lines, workers, room - std::min(room, for_servers));
  if (servers.empty()) return lines;
  lines.emplace_back();
  lines.push_back(lineOf({{serversTitle(job), Tone::kDim}}, style));
  addSome(lines, servers, for_servers);
  return lines;
}

}  // namespace trainyard::cli
