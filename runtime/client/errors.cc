#include "runtime/client/errors.h"

#include <algorithm>
#include <string>

#include "runtime/transport/transport.h"

namespace trainyard::runtime::client {
namespace {

constexpr char kDeadUrl[] = "trainyard.dev/dead";
constexpr char kLivesOnUrl[] = "trainyard.dev/lives-on";

struct LastError {
  std::string text;
  int rank = -1;
};
LastError& last() {
  thread_local LastError instance;
  return instance;
}

ty_code codeOf(const Status& status, Stage stage) {
  if (status.ok()) return TY_OK;
  if (status.GetPayload(kDeadUrl)) return TY_DEAD;
  const bool forming = stage == Stage::kForming;
  const bool of_session = stage == Stage::kSession;
  switch (transport::causeOf(status)) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return TY_INVALID;
    case absl::StatusCode::kOutOfRange:
      if (of_session) return TY_JOB_FAILED;
      return forming ? TY_UNREACHABLE : TY_INTERNAL;
    case absl::StatusCode::kFailedPrecondition:
      if (of_session) return TY_JOB_FAILED;
      return forming ? TY_REFUSED : TY_MISMATCH;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return TY_REFUSED;
    case absl::StatusCode::kUnavailable:
      return forming || of_session ? TY_UNREACHABLE : TY_RANK_LOST;
    case absl::StatusCode::kAborted:
      return TY_RANK_LOST;
    case absl::StatusCode::kDeadlineExceeded:
      return TY_TIMEOUT;
    case absl::StatusCode::kDataLoss:
      return TY_CORRUPT;
    case absl::StatusCode::kCancelled:
      // Another rank was interrupted; here nobody was.
      return absl::IsAborted(status) ? TY_RANK_LOST : TY_CANCELLED;
    case absl::StatusCode::kResourceExhausted:
      return TY_NO_ROOM;
    default:
      // An address that is taken, say.
      return forming ? TY_UNREACHABLE : TY_INTERNAL;
  }
}

}  // namespace

ty_code tell(const Status& status, Stage stage) {
  if (status.ok()) return TY_OK;
  last().text = std::string(status.message());
  std::replace(last().text.begin(), last().text.end(), '\n', ' ');
  last().rank = transport::blamedRank(status).value_or(-1);
  return codeOf(status, stage);
}

const char* lastError() {
  return last().text.c_str();
}

int lastErrorRank() {
  return last().rank;
}

Status livesOn(Status status) {
  if (!status.ok()) status.SetPayload(kLivesOnUrl, absl::Cord("1"));
  return status;
}

bool endsGroup(const Status& status) {
  // Of an argument: nothing was sent.
  return !status.ok() && !absl::IsInvalidArgument(status) && !status.GetPayload(kLivesOnUrl);
}

Status deadHandle(const char* why) {
  Status status = absl::FailedPreconditionError(why);
  status.SetPayload(kDeadUrl, absl::Cord("1"));
  return status;
}

}  // namespace trainyard::runtime::client
