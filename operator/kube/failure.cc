#include "operator/kube/failure.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "base/core/strings.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "operator/kube/client.h"

namespace trainyard::control {

namespace {

using Json = nlohmann::json;
using absl::StatusCode;

constexpr absl::string_view kReasonUrl = "trainyard.dev/kube-reason";
constexpr absl::string_view kRetryAfterUrl = "trainyard.dev/retry-after-seconds";
constexpr int kMaxCauses = 5;

const Json& causesOf(const Json& status) {
  static const Json none = Json::array();
  const Json& causes = member(member(status, "details"), "causes");
  return causes.is_array() ? causes : none;
}

// Whether one of the causes has this text under `key`, "reason" or "field".
bool hasCause(const Json& status, const char* key, std::string_view text) {
  for (const Json& cause : causesOf(status)) {
    if (textAt(cause, key) == text) return true;
  }
  return false;
}

// Kubernetes has one word, Forbidden, for three things.
std::string reasonOf(const Json& status) {
  const std::string reason = textAt(status, "reason");
  // A server that was restored from a backup: what we know is from a future that it never had.
  if (hasCause(status, "reason", "ResourceVersionTooLarge")) return "ResourceVersionTooLarge";
  // A patch that names the uid of an object that is no longer there.
  if (reason == "Invalid" && hasCause(status, "field", "metadata.uid")) return "Conflict";
  if (reason != "Forbidden") return reason;
  if (hasCause(status, "reason", "NamespaceTerminating")) return "NamespaceTerminating";
  // The message is the only sign; its wording is that of the quota admission plugin since 1.0.
  if (textAt(status, "message").find("exceeded quota") != std::string::npos) return "QuotaExceeded";
  return reason;
}

StatusCode conflictCode(internal::Verb verb, const std::string& reason) {
  if (reason == "AlreadyExists") return StatusCode::kAlreadyExists;
  return verb == internal::Verb::kCreate ? StatusCode::kAborted : StatusCode::kFailedPrecondition;
}

StatusCode codeOf(int http, internal::Verb verb, const std::string& reason) {
  if (reason == "ResourceVersionTooLarge") return StatusCode::kOutOfRange;
  switch (http) {
    case 400:
    case 413:
    case 415:
      return StatusCode::kInvalidArgument;
    case 422:
      return reason == "Conflict" ? conflictCode(verb, reason) : StatusCode::kInvalidArgument;
    case 401:
      return StatusCode::kUnauthenticated;
    case 403:
      return reason == "QuotaExceeded" ? StatusCode::kResourceExhausted
                                       : StatusCode::kPermissionDenied;
    case 404:
      return StatusCode::kNotFound;
    case 405:
    case 406:
      return StatusCode::kUnimplemented;
    case 409:
      return conflictCode(verb, reason);
    case 410:
      return StatusCode::kOutOfRange;
    case 408:
    case 429:
      return StatusCode::kUnavailable;
    default:
      return http >= 500 ? StatusCode::kUnavailable : StatusCode::kInternal;
  }
}

// The message of a 422 names the fields already; others carry them only as causes.
std::string messageOf(const Json& status, int http) {
  std::string message = textAt(status, "message");
  if (message.empty()) message = fmt::format("HTTP status {}", http);
  int named = 0;
  for (const Json& cause : causesOf(status)) {
    if (named == kMaxCauses) break;
    const std::string field = textAt(cause, "field");
    if (field.empty() || message.find(field) != std::string::npos) continue;
    message += fmt::format("; {}: {}", field, textAt(cause, "message"));
    ++named;
  }
  return message;
}

void setRetryAfter(Status& status, long seconds) {
  status.SetPayload(kRetryAfterUrl, absl::Cord(std::to_string(seconds)));
}

// These may end after the write was carried out.
bool isLostReply(int http) {
  return http == 500 || http == 502 || http == 504;
}

}  // namespace

namespace internal {

Status fromKubeStatus(const Json& status, int code, Verb verb) {
  if (code == 0) {
    const Json& written = member(status, "code");
    code = written.is_number_integer() ? written.get<int>() : 500;
  }
  const std::string reason = reasonOf(status);
  Status failure(codeOf(code, verb, reason), messageOf(status, code));
  if (!reason.empty()) failure.SetPayload(kReasonUrl, absl::Cord(reason));
  if (reason == "QuotaExceeded") failure = withClass(std::move(failure), FailureClass::kRetry);
  const Json& wait = member(member(status, "details"), "retryAfterSeconds");
  if (wait.is_number_integer() && wait.get<long>() > 0) {
    setRetryAfter(failure, wait.get<long>());
  }
  return verb != Verb::kRead && isLostReply(code) ? markMaybeHappened(std::move(failure)) : failure;
}

Status fromResponse(const HttpResponse& response, Verb verb) {
  if (response.status >= 200 && response.status < 300) return absl::OkStatus();
  Json body = Json::parse(response.body, nullptr, false);
  if (textAt(body, "kind") != "Status") {
    // A proxy or load balancer answered; a line of what it said helps.
    const std::string_view line = splitFirst(response.body, '\n').first.substr(0, 200);
    body = Json{{"message", fmt::format("HTTP status {}: {}", response.status, line)}};
  }
  Status failure = fromKubeStatus(body, response.status, verb);
  if (const auto seconds = parseNumber<long>(response.header("Retry-After"))) {
    if (*seconds >= 0) setRetryAfter(failure, *seconds);
  }
  return failure;
}

Status asAborted(const Status& status) {
  if (!absl::IsFailedPrecondition(status)) return status;
  return absl::AbortedError(status.message());
}

}  // namespace internal

std::optional<Duration> retryAfter(const Status& status) {
  const auto payload = status.GetPayload(kRetryAfterUrl);
  if (!payload) return std::nullopt;
  const auto seconds = parseNumber<long>(std::string(*payload));
  // More than a day is a mistake.
  if (!seconds || *seconds > 86400) return std::nullopt;
  return std::chrono::seconds(*seconds);
}

std::string kubeReason(const Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  return payload ? std::string(*payload) : std::string();
}

}  // namespace trainyard::control
