// Failures as the C interface tells them: a code, a line of text and a rank, of the calling thread.
#pragma once

#include "base/core/status.h"
#include "runtime/client/trainyard.h"

namespace trainyard::runtime::client {

// What the failure is of: the same absl code means different things while a group forms.
enum class Stage { kForming, kOperation, kSession };

// Keeps the failure for ty_error() of this thread and returns its code. TY_OK keeps nothing.
ty_code tell(const Status& status, Stage stage = Stage::kOperation);

const char* lastError();
int lastErrorRank();

// A failure after which the group goes on: all ranks have it, and nothing is under way.
Status livesOn(Status status);
bool endsGroup(const Status& status);

// "the group has been left", by whose code the caller knows that the handle is of no more use.
Status deadHandle(const char* why);

}  // namespace trainyard::runtime::client
