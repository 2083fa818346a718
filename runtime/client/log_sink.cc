// In place of base/core/log.cc: the shared library writes to whom the program names, and brings no
// logging library into a process of somebody else's.
#include "runtime/client/log_sink.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

namespace trainyard {
namespace {

struct Sink {
  runtime::client::LogSink function;
  LogLevel least = LogLevel::kInfo;
};

// Never destroyed: a thread may log while the process ends.
using Shared = std::atomic<std::shared_ptr<const Sink>>;
Shared& sink() {
  static Shared& instance = *std::make_unique<Shared>(std::make_shared<const Sink>()).release();
  return instance;
}

}  // namespace

bool logEnabled(LogLevel level) {
  return level >= sink().load()->least;
}

void logLine(LogLevel level, std::string_view message) {
  const std::shared_ptr<const Sink> to = sink().load();
  if (to->function) return to->function(level, message);
  const char letter = "DIWE"[static_cast<int>(level)];
  std::fprintf(stderr, "trainyard %c %.*s\n", letter, static_cast<int>(message.size()),
               message.data());
}

namespace runtime::client {

void setLogSink(LogSink function, LogLevel least) {
  sink().store(std::make_shared<const Sink>(Sink{std::move(function), least}));
}

}  // namespace runtime::client
}  // namespace trainyard
