// What a run measured, for people and tools: metrics.jsonl (one JSON object per line) and
// TensorBoard event files below events/. Written by one process of a job at a time, the chief.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/events/event_records.h"

namespace trainyard::runtime {

// Owned by one thread. Every call hands its records to the operating system before it returns
// (there is nothing to flush); it does not wait for the disk.
class MetricsWriter {
 public:
  virtual ~MetricsWriter() = default;

  // Appends to <job_dir>/metrics.jsonl, after cutting off a line that a crash left unfinished, and
  // begins a file <job_dir>/events/events.out.tfevents.<seconds>.<host>, so that each start of a
  // job has a file of its own. `first_step` is the least step that will be recorded: records of it
  // and of later steps that an earlier start left behind are void, for TensorBoard as for readers
  // of metrics.jsonl (which keep the newest record of a step). Errors name the file.
  static StatusOr<std::unique_ptr<MetricsWriter>> open(const std::filesystem::path& job_dir,
                                                       std::string_view host, UnixMillis now,
                                                       std::int64_t first_step);

  // One line {"step": ..., <name>: <value>..., "time": <Unix seconds>} and one event with a scalar
  // per name. What is not finite becomes null in JSON. On an error (disk full; the message names
  // the file) neither file keeps a part of the record, the other file still gets it, and later
  // calls try anew; the caller decides how often to say so.
  virtual Status record(std::int64_t step, UnixMillis at, std::span<const Scalar> scalars) = 0;
  // One event with a text that TensorBoard shows as Markdown; nothing in metrics.jsonl.
  virtual Status text(std::int64_t step, UnixMillis at, std::string_view name,
                      std::string_view markdown) = 0;
  // One event with a serialized GraphDef; of several in one file TensorBoard shows the last.
  virtual Status graph(UnixMillis at, std::string_view graph_def) = 0;
  Status scalar(std::int64_t step, UnixMillis at, std::string_view name, double value) {
    const Scalar one{name, value};
    return record(step, at, {&one, 1});
  }
};

}  // namespace trainyard::runtime
