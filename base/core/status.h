// Expected failures are absl::Status; bugs are TY_CHECK. This header adds the two things that every
// layer needs: a class that tells a caller what to do, and macros that pass failures on.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard {

using absl::Status;
using absl::StatusOr;

// What the one who receives a failure should do. Travels as a payload of the Status.
enum class FailureClass {
  kRetry,      // passing: try again with back-off (the default for UNAVAILABLE, DEADLINE_EXCEEDED,
               // ABORTED)
  kPermanent,  // trying again cannot help: bad input, NaN (the default for everything else)
};

// The class of a failure: the one set by withClass(), else the default of its code.
// Precondition: !status.ok().
FailureClass failureClass(const Status& status);

// Returns `status` marked with `cls`. An OK status is returned as it is.
Status withClass(Status status, FailureClass cls);

// INVALID_ARGUMENT "<place>: <message>"; `place` is a file, file:line or a field path.
Status invalidInput(std::string_view place, std::string_view message);

// `status` with "<context>: " put before its message; code and payloads stay. OK stays OK.
Status annotate(const Status& status, std::string_view context);

// UNAVAILABLE or another code for errno `error`, "<what>: <strerror>".
Status errnoStatus(int error, std::string_view what);

}  // namespace trainyard

#define TY_CONCAT_INNER(a, b) a##b
#define TY_CONCAT(a, b) TY_CONCAT_INNER(a, b)

#define TY_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::absl::Status ty_status_ = (expr);      \
    if (!ty_status_.ok()) return ty_status_; \
  } while (0)

#define TY_ASSIGN_OR_RETURN(lhs, expr) \
  TY_ASSIGN_OR_RETURN_IMPL(TY_CONCAT(ty_result_, __LINE__), lhs, expr)
#define TY_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return tmp.status();            \
  lhs = std::move(*tmp)
