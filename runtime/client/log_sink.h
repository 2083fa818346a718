// Where what the library has to tell goes.
#pragma once

#include <functional>
#include <string_view>

#include "base/core/log.h"

namespace trainyard::runtime::client {

// Called from the thread that logs. Without a function: standard error. Thread-safe; a line under
// way may still go to the one before.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;
void setLogSink(LogSink sink, LogLevel least);

}  // namespace trainyard::runtime::client
