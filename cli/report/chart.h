// Line charts as inline SVG, coloured by the page's style sheet.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::cli {

struct Series {
  std::string name;  // shown in the legend; "": not shown
  int colour = 0;    // index into the page's colours (c0 ... c7)
  enum class Line { kSolid, kDashed, kFaint, kDots } line = Line::kSolid;
  // Pieces that are not joined: x and y.
  std::vector<std::vector<std::pair<double, double>>> pieces;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::function<std::string(double)> y_text;  // text of a value
  bool from_zero = false;                     // the y axis begins at 0
  bool clip_peaks = false;  // a few points far above all others do not set the scale
  std::vector<Series> series;
};

// A <figure> with caption, legend and drawing; a line of text where there are no points. Pure.
std::string renderChart(const Chart& chart);

// Axis values within [low, high]: about `count` of them, multiples of 1, 2 or 5 times a power of
// ten.
std::vector<double> niceTicks(double low, double high, int count);

// At most `most` points: neighbours are replaced by their mean.
std::vector<std::pair<double, double>> thinOut(const std::vector<std::pair<double, double>>& points,
                                               std::size_t most);

std::string escapeHtml(const std::string& text);

}  // namespace trainyard::cli
