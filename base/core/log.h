// One logger per process, to standard error. Libraries use the macros; only main configures it.
#pragma once

#include <string>
#include <string_view>

#include "fmt/format.h"

namespace trainyard {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

struct LogOptions {
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;
  std::string task;  // e.g. "worker-1"; printed with every line
};

// Once, from main, before threads start.
void configureLog(const LogOptions& options);

// Thread-safe. `message` is one line of UTF-8.
void logLine(LogLevel level, std::string_view message);
bool logEnabled(LogLevel level);

}  // namespace trainyard

#define TY_LOG(level, ...)                                                                       \
  do {                                                                                           \
    if (::trainyard::logEnabled(level)) ::trainyard::logLine(level, ::fmt::format(__VA_ARGS__)); \
  } while (0)
#define TY_DEBUG(...) TY_LOG(::trainyard::LogLevel::kDebug, __VA_ARGS__)
#define TY_INFO(...) TY_LOG(::trainyard::LogLevel::kInfo, __VA_ARGS__)
#define TY_WARN(...) TY_LOG(::trainyard::LogLevel::kWarning, __VA_ARGS__)
#define TY_ERROR(...) TY_LOG(::trainyard::LogLevel::kError, __VA_ARGS__)
