// What a run says where there is no terminal: one line now and then, and events as they happen.
#pragma once

#include <string>

#include "cli/live/snapshot.h"

namespace trainyard::cli {

// "step 120/700 17% 2510 examples/s loss 0.5200 eta 23.0 s", or what is being waited for before the
// first step.
std::string renderLine(const RunSnapshot& run);
// The same as one JSON object: {"time","kind":"progress","job","state","step",...,"tasks":[...]}.
std::string renderJson(const RunSnapshot& run, UnixMillis unix_ms);

std::string renderEvent(const RunEvent& event);
std::string renderEventJson(const RunEvent& event);

// One line of traffic.jsonl:
// {"time","step","examplesPerSecond","ps":[{"task","receivedBytes","transmittedBytes",
//  "wireReceivedBytes","wireTransmittedBytes"}],"tables":[{"table","rows","bytes","created",
//  "refused","evicted","pulled","pushed","hotRows","occurrences","distinct"}]}: bytes on the wire
// where they are known, tables where the job has some.
std::string renderTraffic(const RunSnapshot& run, UnixMillis unix_ms);

}  // namespace trainyard::cli
