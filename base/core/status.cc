#include "base/core/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr absl::string_view kClassUrl = "trainyard.dev/failure-class";

}  // namespace

FailureClass failureClass(const Status& status) {
  if (auto payload = status.GetPayload(kClassUrl)) {
    return *payload == "retry" ? FailureClass::kRetry : FailureClass::kPermanent;
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
      return FailureClass::kRetry;
    default:
      return FailureClass::kPermanent;
  }
}

Status withClass(Status status, FailureClass cls) {
  if (!status.ok()) {
    status.SetPayload(kClassUrl, absl::Cord(cls == FailureClass::kRetry ? "retry" : "permanent"));
  }
  return status;
}

Status invalidInput(std::string_view place, std::string_view message) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", place, message));
}

Status annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  Status result(status.code(), fmt::format("{}: {}", context, fromAbsl(status.message())));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return result;
}

Status errnoStatus(int error, std::string_view what) {
  // ENOTDIR, EISDIR and the like are wrong input; FAILED_PRECONDITION is a conflict of two
  // writers or a diverged model here.
  const Status status = absl::ErrnoToStatus(error, toAbsl(what));
  if (status.code() != absl::StatusCode::kFailedPrecondition) return status;
  return absl::InvalidArgumentError(status.message());
}

}  // namespace trainyard
