// Named places where a test makes the shipped binary misbehave. Off unless main installs a
// configuration; a disabled failpoint costs one relaxed load.
//
// Configuration: "NAME=ACTION[@FROM[-TO]][,task=worker-1][,life=1.1][,times=N][,while=FILE];..."
// with ACTION one of delay(MS), pause, nan, crash, error; FROM and TO are values of the place's
// number, mostly the step; FILE: only as long as it exists, and a delay ends with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/core/status.h"

namespace trainyard {

enum class FailAction { kNone, kNan, kError };

namespace internal {
extern std::atomic<bool> failpoints_on;
FailAction hitFailpointSlow(std::string_view name, std::int64_t number);
}  // namespace internal

// Once, from main. `task` is this process's "role-index", `life` its incarnation as
// "created.start". INVALID_ARGUMENT names the part that does not parse.
Status configureFailpoints(std::string_view config, std::string_view task,
                           std::string_view life = "");

// Acts at the place `name`: delay sleeps here, pause stops the whole process (SIGSTOP) until
// somebody sends SIGCONT, crash kills it by SIGKILL; nan and error are for the caller to carry out.
inline FailAction hitFailpoint(std::string_view name, std::int64_t number = 0) {
  if (!internal::failpoints_on.load(std::memory_order_relaxed)) return FailAction::kNone;
  return internal::hitFailpointSlow(name, number);
}

}  // namespace trainyard
