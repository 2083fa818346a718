// What a run left in its directory, read for the report and the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/live/table_use.h"
#include "cli/report/ranks.h"

namespace trainyard::cli {

struct StepRecord {
  std::int64_t step = 0;
  std::optional<double> loss;
  std::optional<double> learning_rate;
  std::optional<double> examples_per_second;  // since the record before
  double train_seconds = 0;                   // of the chief's process so far, evaluation excluded
  double time = 0;                            // Unix seconds
};

struct EvaluationRecord {
  std::int64_t step = 0;
  double accuracy = 0;
  std::optional<double> loss;
  std::optional<double> auc = {};          // of models that tell clicks
  std::optional<double> calibration = {};  // of the same
};

struct PsBytes {
  double received = 0;  // payload
  double transmitted = 0;
  std::optional<double> wire_received = std::nullopt;  // as TCP carried it
  std::optional<double> wire_transmitted = std::nullopt;

  // Over TCP with its framing, or the payload where that is more: the kernel may not tell, and
  // shared memory is not on the wire.
  double allReceived() const { return std::max(received, wire_received.value_or(0)); }
  double allTransmitted() const { return std::max(transmitted, wire_transmitted.value_or(0)); }
};

// Counters of all ps and tables at one moment; they start at zero with each launcher.
struct TrafficSample {
  double time = 0;  // Unix seconds
  std::map<std::string, PsBytes> ps;
  std::vector<TableUse> tables;  // embeddings, where the job has some
};

struct EventRecord {
  std::string time;  // RFC 3339
  std::string type;
  std::string reason;
  std::string message;
};

struct RunRecords {
  std::vector<StepRecord> steps;              // ascending
  std::vector<EvaluationRecord> evaluations;  // ascending
  std::vector<TrafficSample> traffic;         // in the order of the file
  std::vector<EventRecord> events;
  std::vector<RankWork> ranks;  // of an all-reduce job with a timeline, the slowest first
};

// Reads text of metrics.jsonl. Lines that are no JSON (the last one after a crash) are left out. A
// record of a step that is not beyond the ones before tells that training went back there: the
// former records of that step and later ones are dropped.
void parseMetrics(const std::string& text, RunRecords* records);
void parseTraffic(const std::string& text, RunRecords* records);
void parseEvents(const std::string& text, RunRecords* records);

// Samples of all workers per second of training, evaluation excluded, over the records since
// `since` (Unix seconds), whichever process of the chief wrote them. Nothing without such records.
std::optional<double> trainingRate(const RunRecords& records, double since);

// metrics.jsonl, traffic.jsonl, events.jsonl and timeline.json of a run directory; what is missing
// stays empty.
RunRecords readRecords(const std::filesystem::path& dir);

}  // namespace trainyard::cli
