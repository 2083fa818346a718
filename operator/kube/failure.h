// What answers of an apiserver mean.
#pragma once

#include <string_view>

#include "base/core/status.h"
#include "nlohmann/json.hpp"
#include "operator/kube/http.h"

namespace trainyard::control::internal {

enum class Verb { kRead, kCreate, kWrite };

// The failure of a Status object (kind Status), `code` being the HTTP code, or `status.code` where
// that is 0. Carries retryAfter() and kubeReason().
Status fromKubeStatus(const nlohmann::json& status, int code, Verb verb);
// OK for 2xx, otherwise the failure of the body, or of the code where the body is no Status.
Status fromResponse(const HttpResponse& response, Verb verb);
// ABORTED for FAILED_PRECONDITION: somebody else wrote first, look again.
Status asAborted(const Status& status);

}  // namespace trainyard::control::internal
