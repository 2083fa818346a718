// Parts of pages that several reports have. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/report/records.h"

namespace trainyard::cli {

using Points = std::vector<std::pair<double, double>>;

// Each point the mean of those up to `radius` places before and after it.
Points smooth(const Points& points, int radius);

// The radius that makes a loss curve of so many points readable.
int lossRadius(std::size_t points);
Points lossPoints(const RunRecords& records);
Points accuracyPoints(const RunRecords& records);
// Of evaluations that tell one.
Points aucPoints(const RunRecords& records);

// Bytes per second of each ps, in and out, over the seconds in which samples were taken.
// Nothing for a run without parameter servers.
std::string trafficChart(std::string title, const RunRecords& records);

// Why a page shows neither loss nor accuracy: of a page's only run without names, else of the runs
// of these names. One sentence.
std::string simulatedNote(const std::vector<std::string>& runs);

// A line of small print; the text is escaped.
std::string quietLine(const std::string& text);

// What a page says of a rank of an all-reduce job, and the heads of these columns.
std::vector<std::string> rankTitles();
std::vector<std::string> rankCells(const RankWork& rank);

// A row of a table; cells are escaped.
std::string tableRow(const std::vector<std::string>& cells, const char* tag = "td");

}  // namespace trainyard::cli
