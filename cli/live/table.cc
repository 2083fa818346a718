#include "cli/live/table.h"

#include <algorithm>
#include <string_view>

#include "base/core/units.h"
#include "cli/live/text.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

struct Cell {
  std::string text;
  Tone tone = Tone::kPlain;
};

struct Column {
  std::string title;
  bool left = false;
  std::vector<Cell> cells;
  int width() const {
    int widest = textWidth(title);
    for (const Cell& cell : cells) widest = std::max(widest, textWidth(cell.text));
    return widest;
  }
};

constexpr int kGap = 2;
// Beyond this a line is no easier to read.
constexpr int kWidest = 110;

Tone toneOfTask(const std::string& state) {
  if (state == "failed") return Tone::kBad;
  if (state == "training" || state == "serving" || state == "evaluating" || state == "done" ||
      state == "running" || state == "succeeded") {
    return Tone::kGood;
  }
  return Tone::kWarn;
}

Tone toneOfJob(const std::string& state) {
  if (state == "Failed") return Tone::kBad;
  return state == "Running" || state == "Succeeded" ? Tone::kGood : Tone::kWarn;
}

Cell rate(const std::optional<double>& value) {
  if (!value) return {"-", Tone::kDim};
  return {formatRate(*value), Tone::kPlain};
}

Cell bytes(const std::optional<double>& value) {
  if (!value) return {"-", Tone::kDim};
  return {formatBytes(*value) + "/s", Tone::kPlain};
}

std::vector<Column> columnsOf(const RunSnapshot& run) {
  std::vector<Column> columns = {
      {"task", true, {}}, {"state", true, {}}, {"step", false, {}},    {"examples/s", false, {}},
      {"in", false, {}},  {"out", false, {}},  {"restarts", false, {}}};
  for (const TaskRow& task : run.tasks) {
    columns[0].cells.push_back({task.name, Tone::kBold});
    columns[1].cells.push_back({task.state, toneOfTask(task.state)});
    columns[2].cells.push_back(task.step ? Cell{formatCount(*task.step), Tone::kPlain}
                                         : Cell{"-", Tone::kDim});
    columns[3].cells.push_back(task.is_ps ? Cell{} : rate(task.examples_per_second));
    const bool serves = task.is_ps || run.foreign;
    columns[4].cells.push_back(serves ? bytes(task.received_per_second) : Cell{});
    columns[5].cells.push_back(serves ? bytes(task.transmitted_per_second) : Cell{});
    columns[6].cells.push_back({task.restarts ? std::to_string(task.restarts) : "",
                                task.restarts ? Tone::kWarn : Tone::kPlain});
  }
  if (run.restarts == 0) columns.pop_back();
  if (!run.hasSteps()) columns.erase(columns.begin() + 2, columns.begin() + 4);
  return columns;
}

int widthOf(const std::vector<Column>& columns) {
  int width = kGap * (static_cast<int>(columns.size()) - 1);
  for (const Column& column : columns) width += column.width();
  return width;
}

std::string rowText(const std::vector<Column>& columns, int row, const TableStyle& style) {
  std::string line;
  int left = style.columns;
  for (std::size_t i = 0; i < columns.size() && left > 0; ++i) {
    if (i > 0) line += std::string(std::min(kGap, left), ' ');
    left -= i > 0 ? kGap : 0;
    const Cell cell = row < 0 ? Cell{columns[i].title, Tone::kDim} : columns[i].cells[row];
    const int width = std::min(columns[i].width(), left);
    const std::string text = fit(cell.text, width);
    const int padding = width - textWidth(text);
    const std::string painted = paint(text, cell.tone, style.colour);
    const bool last = i + 1 == columns.size();
    if (columns[i].left) {
      line += painted + (last ? "" : std::string(std::max(0, padding), ' '));
    } else {
      line += std::string(std::max(0, padding), ' ') + painted;
    }
    left -= width;
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

// Parts of a line, the most important first; those that do not fit are left out.
std::string partsText(const std::vector<Cell>& parts, const TableStyle& style) {
  std::string line;
  int used = 0;
  for (const Cell& part : parts) {
    if (part.text.empty()) continue;
    const int gap = used == 0 ? 0 : kGap;
    const int left = style.columns - used - gap;
    if (used > 0 && textWidth(part.text) > left) continue;
    const std::string text = fit(part.text, left);
    line += std::string(gap, ' ') + paint(text, part.tone, style.colour);
    used += gap + textWidth(text);
  }
  return line;
}

std::string headLine(const RunSnapshot& run, const TableStyle& style) {
  std::vector<Cell> parts = {{run.job, Tone::kBold}};
  parts.push_back(run.stopping ? Cell{"stopping", Tone::kWarn}
                               : Cell{run.state, toneOfJob(run.state)});
  if (run.steps > 0) {
    parts.push_back({fmt::format("step {}/{}", formatCount(run.step), formatCount(run.steps)), {}});
  } else if (run.told) {
    parts.push_back({"step " + formatCount(run.step), {}});
  }
  if (run.examples_per_second) {
    parts.push_back({formatRate(*run.examples_per_second) + " examples/s", {}});
  }
  if (run.loss) parts.push_back({"loss " + formatMeasure(*run.loss), {}});
  if (run.eta_seconds) parts.push_back({"eta " + formatSeconds(*run.eta_seconds), Tone::kAccent});
  if (run.accuracy) {
    parts.push_back({fmt::format("accuracy {} (step {})", formatMeasure(*run.accuracy),
                                 formatCount(run.accuracy_step)),
                     {}});
  }
  return partsText(parts, style);
}

std::string barLine(const RunSnapshot& run, const TableStyle& style) {
  const std::string percent = fmt::format(" {:3.0f}%", run.done() * 100);
  const int width = style.columns - textWidth(percent);
  if (width < 5) return fit(percent, style.columns);
  return progressBar(run.done(), width, style.colour) + percent;
}

std::vector<std::string> footLines(const RunSnapshot& run, const TableStyle& style) {
  std::vector<std::string> lines;
  std::vector<Cell> parts;
  parts.push_back({"running for " + formatSeconds(run.elapsed_seconds), Tone::kDim});
  if (run.checkpoint_step) {
    parts.push_back({"checkpoint at step " + formatCount(*run.checkpoint_step), Tone::kDim});
  }
  if (run.restarts > 0) parts.push_back({fmt::format("restarts {}", run.restarts), Tone::kWarn});
  if (run.lost_steps > 0) {
    parts.push_back({fmt::format("steps repeated {}", run.lost_steps), Tone::kWarn});
  }
  if (run.unguarded_parts > 0) {
    parts.push_back({fmt::format("no second copy of {} parts of tables yet", run.unguarded_parts),
                     Tone::kWarn});
  }
  lines.push_back(partsText(parts, style));
  if (!run.waiting_for.empty()) {
    lines.push_back(partsText({{"waiting for " + run.waiting_for, Tone::kWarn}}, style));
  }
  for (const TaskRow& task : run.tasks) {
    if (task.message.empty() || !run.waiting_for.empty()) continue;
    lines.push_back(partsText({{task.name + ": " + task.message, Tone::kWarn}}, style));
  }
  return lines;
}

}  // namespace

std::vector<std::string> renderTable(const RunSnapshot& run, const TableStyle& wanted) {
  TableStyle style = wanted;
  style.columns = std::clamp(wanted.columns, 1, kWidest);
  std::vector<std::string> lines = {headLine(run, style)};
  if (!run.foreign || run.steps > 0) lines.push_back(barLine(run, style));
  std::vector<Column> columns = columnsOf(run);
  // Of a table that is too wide the last columns go, but never the task and its state.
  while (columns.size() > 2 && widthOf(columns) > style.columns) columns.pop_back();
  lines.push_back(rowText(columns, -1, style));
  std::vector<std::string> foot = footLines(run, style);
  std::size_t shown = run.tasks.size();
  const std::size_t others = lines.size() + foot.size();
  const auto rows = static_cast<std::size_t>(std::max(0, style.rows));
  if (rows > 0 && others + shown > rows) shown = rows > others + 1 ? rows - others - 1 : 0;
  for (std::size_t row = 0; row < shown; ++row) {
    lines.push_back(rowText(columns, static_cast<int>(row), style));
  }
  if (shown < run.tasks.size()) {
    const std::string more = fmt::format("… and {} more", run.tasks.size() - shown);
    lines.push_back(paint(fit(more, style.columns), Tone::kDim, style.colour));
  }
  for (std::string& line : foot) lines.push_back(std::move(line));
  return lines;
}

std::string Screen::clear() {
  if (height_ == 0) return "";
  std::string out = fmt::format("\x1b[{}A\r\x1b[J", height_);
  height_ = 0;
  return out;
}

std::string Screen::draw(const std::vector<std::string>& lines) {
  std::string out;
  if (height_ > 0) out = fmt::format("\x1b[{}A\r", height_);
  // Line by line and not all at once: the screen never shows an empty frame.
  for (const std::string& line : lines) out += line + "\x1b[K\n";
  out += "\x1b[J";
  height_ = lines.size();
  return out;
}

std::string Screen::print(const std::string& line) {
  return clear() + line + "\n";
}

}  // namespace trainyard::cli
