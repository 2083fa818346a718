// Where the user sees a run: a table on a terminal, lines elsewhere, JSON objects for machines.
#pragma once

#include <memory>
#include <string>

#include "base/core/clock.h"
#include "cli/command.h"
#include "cli/live/snapshot.h"

namespace trainyard::cli {

class Display {
 public:
  virtual ~Display() = default;
  // How often show() should be called.
  virtual Duration interval() const = 0;
  virtual void show(const RunSnapshot& run, TimePoint now, UnixMillis unix_ms) = 0;
  virtual void event(const RunEvent& event) = 0;
  // The last look at the run; nothing is shown afterwards.
  virtual void finish(const RunSnapshot& run, UnixMillis unix_ms) = 0;
};

// `json`: objects to standard error, whatever it is, so that standard output holds the result
// alone.
std::unique_ptr<Display> makeDisplay(const Console& console, bool json);

}  // namespace trainyard::cli
