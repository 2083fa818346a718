#include "base/core/log.h"

#include <atomic>
#include <memory>
#include <optional>

#include "base/core/log_context.h"
#include "nlohmann/json.hpp"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace trainyard {
namespace {

spdlog::level::level_enum toSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

LogOptions& options() {
  static LogOptions instance;
  return instance;
}

// Beside the options: epoch and step change while others log.
struct Context {
  std::optional<LogIdentity> identity;
  std::atomic<std::int64_t> epoch = -1;
  std::atomic<std::int64_t> step = -1;
};

Context& context() {
  static Context instance;
  return instance;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("trainyard",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%eZ %L %v", spdlog::pattern_time_type::utc));
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

std::string jsonLine(LogLevel level, std::string_view message) {
  nlohmann::ordered_json line;
  line["level"] = std::string(spdlog::level::to_string_view(toSpdlog(level)).data());
  if (!options().task.empty()) line["task"] = options().task;
  const Context& now = context();
  if (now.identity) {
    line["job"] = now.identity->job;
    line["role"] = now.identity->role;
    line["index"] = now.identity->index;
  }
  if (now.epoch >= 0) line["epoch"] = now.epoch.load();
  if (now.step >= 0) line["step"] = now.step.load();
  line["message"] = std::string(message);
  // A path or a peer's text may hold invalid UTF-8; a log must not throw over it.
  std::string body = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return body.substr(1);
}

}  // namespace

void configureLog(const LogOptions& wanted) {
  options() = wanted;
  logger().set_level(toSpdlog(wanted.level));
  if (wanted.format == LogFormat::kJson) {
    logger().set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "{\"time\":\"%Y-%m-%dT%H:%M:%S.%eZ\",%v", spdlog::pattern_time_type::utc));
  }
}

void setLogIdentity(const LogIdentity& identity) {
  context().identity = identity;
}

void setLogProgress(std::int64_t epoch, std::int64_t step) {
  context().epoch = epoch;
  context().step = step;
}

bool logEnabled(LogLevel level) {
  return logger().should_log(toSpdlog(level));
}

void logLine(LogLevel level, std::string_view message) {
  if (options().format == LogFormat::kJson) {
    logger().log(toSpdlog(level), spdlog::string_view_t(jsonLine(level, message)));
  } else if (options().task.empty()) {
    logger().log(toSpdlog(level), spdlog::string_view_t(message.data(), message.size()));
  } else {
    logger().log(toSpdlog(level), "{}: {}", options().task, message);
  }
}

}  // namespace trainyard
