#include "cli/report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/core/units.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

// The drawing in its own units; a style sheet scales it to the width of the page, on a phone to
// about three quarters.
constexpr double kWidth = 480, kHeight = 230;
constexpr double kLeft = 62, kRight = 12, kTop = 10, kBottom = 34;
constexpr std::size_t kMostPoints = 400;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
  void widen() {
    if (high > low) return;
    const double by = low == 0 ? 1 : std::fabs(low) * 0.1;
    low -= by;
    high += by;
  }
};

struct Axes {
  Range x, y;
  double px(double v) const {
    return kLeft + (v - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double py(double v) const {
    const double inside = std::min(v, y.high);  // peaks end at the upper edge
    return kHeight - kBottom - (inside - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

// The y value that all but the highest 5 % stay below, doubled.
double highWithoutPeaks(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 95 / 100);
  std::nth_element(values.begin(), at, values.end());
  return *at * 2;
}

Axes axesOf(const Chart& chart) {
  Axes axes;
  std::vector<double> values;
  for (const Series& series : chart.series) {
    for (const auto& piece : series.pieces) {
      for (const auto& [x, y] : piece) {
        if (!std::isfinite(x) || !std::isfinite(y)) continue;
        axes.x.add(x);
        axes.y.add(y);
        values.push_back(y);
      }
    }
  }
  if (axes.x.empty()) return axes;
  if (chart.clip_peaks) axes.y.high = std::min(axes.y.high, highWithoutPeaks(std::move(values)));
  if (chart.from_zero) axes.y.add(0);
  axes.x.widen();
  axes.y.widen();
  const double margin = (axes.y.high - axes.y.low) * 0.05;
  axes.y.high += margin;
  if (!chart.from_zero) axes.y.low -= margin;
  return axes;
}

std::string grid(const Chart& chart, const Axes& axes) {
  std::string out;
  for (const double tick : niceTicks(axes.y.low, axes.y.high, 5)) {
    const double y = axes.py(tick);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
        kWidth - kRight, y, y);
    out +=
        fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                    kLeft - 6, y + 4, escapeHtml(chart.y_text(tick)));
  }
  for (const double tick : niceTicks(axes.x.low, axes.x.high, 6)) {
    out += fmt::format(
        "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
        axes.px(tick), kHeight - kBottom + 15, formatCount(std::llround(tick)));
  }
  out +=
      fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                  kWidth - kRight, kHeight - 4, escapeHtml(chart.x_label));
  return out;
}

const char* lineClass(Series::Line line) {
  switch (line) {
    case Series::Line::kDashed:
      return "line dashed";
    case Series::Line::kFaint:
      return "line faint";
    case Series::Line::kDots:
    case Series::Line::kSolid:
      break;
  }
  return "line";
}

std::string drawSeries(const Series& series, const Axes& axes) {
  std::string out;
  for (const auto& piece : series.pieces) {
    std::string points;
    for (const auto& [x, y] : thinOut(piece, kMostPoints)) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      points += fmt::format("{:.1f},{:.1f} ", axes.px(x), axes.py(y));
      if (series.line == Series::Line::kDots) {
        out += fmt::format("<circle class=\"dot c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>",
                           series.colour % 8, axes.px(x), axes.py(y));
      }
    }
    if (points.empty()) continue;
    points.pop_back();
    out += fmt::format("<polyline class=\"{} c{}\" points=\"{}\"/>\n", lineClass(series.line),
                       series.colour % 8, points);
  }
  return out;
}

std::string legend(const Chart& chart) {
  std::string items;
  for (const Series& series : chart.series) {
    if (series.name.empty()) continue;
    items +=
        fmt::format("<span><i class=\"key b{}{}\"></i>{}</span>", series.colour % 8,
                    series.line == Series::Line::kDashed ? " open" : "", escapeHtml(series.name));
  }
  return items.empty() ? "" : "<div class=\"legend\">" + items + "</div>";
}

}  // namespace

std::string renderChart(const Chart& chart) {
  std::string out = fmt::format("<figure class=\"card\"><figcaption>{}</figcaption>{}\n",
                                escapeHtml(chart.title), legend(chart));
  const Axes axes = axesOf(chart);
  if (axes.x.empty()) return out + "<p class=\"quiet\">nothing was recorded</p></figure>\n";
  out += fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n", kWidth,
                     kHeight, escapeHtml(chart.title));
  out += grid(chart, axes);
  for (const Series& series : chart.series) out += drawSeries(series, axes);
  return out + "</svg></figure>\n";
}

std::vector<double> niceTicks(double low, double high, int count) {
  if (!(high > low) || count < 1) return {low};
  const double raw = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * 0.999) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k) {
    ticks.push_back(k * step + 0.0);
  }
  return ticks;
}

std::vector<std::pair<double, double>> thinOut(const std::vector<std::pair<double, double>>& points,
                                               std::size_t most) {
  if (points.size() <= most || most == 0) return points;
  std::vector<std::pair<double, double>> result;
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t begin = i * points.size() / most, end = (i + 1) * points.size() / most;
    double x = 0, y = 0;
    for (std::size_t k = begin; k < end; ++k) {
      x += points[k].first;
      y += points[k].second;
    }
    const auto n = static_cast<double>(end - begin);
    result.emplace_back(x / n, y / n);
  }
  return result;
}

std::string escapeHtml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Other control characters are not allowed in a document.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

}  // namespace trainyard::cli
