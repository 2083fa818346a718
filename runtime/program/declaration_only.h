// What a program would train, without training: it is run until it has declared its model, and
// ended then.
#pragma once

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/program/program_process.h"
#include "runtime/session/message.h"

namespace trainyard::runtime {

// Stops the program in any case. Errors: INVALID_ARGUMENT as of checkDeclared(), or the program's
// own words where it gave up; UNAVAILABLE: it ended, or hung up, before it had declared one;
// DEADLINE_EXCEEDED: it took longer than `limit`.
StatusOr<session::Declaration> declarationOf(ProgramProcess& program,
                                             const session::Welcome& welcome, Duration limit);

}  // namespace trainyard::runtime
