// The function that a program has given to ask whether calls are to end (ty_set_interrupt).
#pragma once

#include "runtime/client/trainyard.h"

namespace trainyard::runtime::client {

void setInterrupt(ty_interrupt_function function, void* data);
// Asks it; false without one. Thread-safe.
bool isInterrupted();

}  // namespace trainyard::runtime::client
