// What `trainyard top` draws. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/live/table.h"
#include "cli/top/top_model.h"

namespace trainyard::cli {

// Where the lowest block of a sparkline stands.
enum class Floor { kZero, kLeast };
// Eight heights of blocks for the last `width` values, up to the greatest of them.
std::string sparkline(const History& values, int width, Floor floor);
// "██████▌   ": `part` in [0, 1] of `width` columns.
std::string trafficBar(double part, int width);

// One job: a head, workers (those that hold up the others first), with what all-reduce does where
// they have it, and parameter servers, where there are any, with their traffic. Fits into
// style.columns and, where it is not 0, style.rows.
std::vector<std::string> renderTop(const TopJob& job, const TableStyle& style);

}  // namespace trainyard::cli
