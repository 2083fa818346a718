// `trainyard checkpoint follow`: what has changed from one checkpoint to the next, in files, as
// they are committed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "cli/command.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::cli {

struct FollowOptions {
  std::string manifests;  // folder of checkpoints
  std::string output;     // folder of what is written; made where it is not there
  // The reader has what there was at this step; nothing: nothing.
  std::optional<std::int64_t> since;
  bool once = false;  // what there is now, and no more
  // Rows tell since when they have not changed (mode Sync).
  bool by_steps = true;
};

// Of one folder. Not thread-safe.
class CheckpointFollower {
 public:
  explicit CheckpointFollower(FollowOptions options) : options_(std::move(options)) {}

  // Writes what has changed since the newest that was handed out, where there is a newer one, and
  // says so in one line of JSON on `console`. Errors: the file cannot be written (permanent), or a
  // checkpoint went away meanwhile (UNAVAILABLE: to be tried again).
  Status look(const Console& console);
  // The job has taken all its steps, and they have been handed out.
  bool over() const;

 private:
  void begin(const std::vector<runtime::Manifest>& manifests, const Console& console);
  std::string buffersOf(std::int64_t step) const;
  Status handOut(runtime::CheckpointReader reader, const Console& console);

  const FollowOptions options_;
  bool begun_ = false;
  // What was handed out last: its files stay open, whoever prunes them.
  std::optional<runtime::CheckpointReader> last_;
};

// Until the job has ended, or the process is. Exit code.
int followCheckpoints(const Console& console, const FollowOptions& options);

}  // namespace trainyard::cli
