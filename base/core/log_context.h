// Whose log lines they are: fields of each line in JSON. In text a line names its task alone.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard {

struct LogIdentity {
  std::string job;
  std::string role;  // "ps", "worker"
  std::uint32_t index = 0;
};

// Once, from main, before threads start.
void setLogIdentity(const LogIdentity& identity);

// How far the task is; a negative number: not known. Thread-safe, and cheap enough for each step.
void setLogProgress(std::int64_t epoch, std::int64_t step);

}  // namespace trainyard
