#include "operator/kube/http_calls.h"

#include <algorithm>

#include "base/core/log.h"
#include "fmt/format.h"

namespace trainyard::control::internal {

bool CallSlots::acquire(TimePoint until, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, stop, until, [this] { return free_ > 0; })) return false;
  --free_;
  return true;
}

void CallSlots::release() {
  const std::lock_guard lock(mutex_);
  ++free_;
  changed_.notify_one();
}

StatusOr<std::shared_ptr<const TlsMaterial>> TlsSource::current(const std::stop_token& stop) {
  std::optional<ExecCredential> given;
  if (config_.exec) {
    TY_ASSIGN_OR_RETURN(given, config_.exec->credential(clock_, stop));
  }
  const std::lock_guard lock(mutex_);
  const bool same = tls_ != nullptr && (!given || given->issue == issue_);
  if (same && clock_.now() < at_ + reread_) return tls_;
  at_ = clock_.now();
  auto tls = readTls(config_, given ? &*given : nullptr);
  if (tls.ok() && given) issue_ = given->issue;
  if (!tls.ok()) {
    if (!same) return annotate(tls.status(), config_.server);
    // Perhaps half replaced; the next time shows.
    TY_WARN("{}: keeping the former certificates: {}", config_.server,
            std::string(tls.status().message()));
  } else if (tls_ == nullptr || *tls != *tls_) {
    tls_ = std::make_shared<TlsMaterial>(*std::move(tls));
  }
  return tls_;
}

StatusOr<HttpResponse> CallingTransport::call(const HttpRequest& request,
                                              const HttpLimits& limits) {
  const TimePoint began = clock_.now();
  const Duration deadline = std::min<Duration>(limits.deadline, std::chrono::hours(24));
  if (!slots_.acquire(began + deadline, limits.stop)) {
    const std::string what = fmt::format("{} {}", request.method, config_.server);
    if (limits.stop.stop_requested()) return absl::CancelledError(what + ": stopped");
    return absl::DeadlineExceededError(what + ": too many calls are under way");
  }
  HttpLimits rest = limits;
  rest.deadline -= clock_.now() - began;
  auto response = collect(request, rest);
  slots_.release();
  return response;
}

StatusOr<HttpResponse> CallingTransport::collect(const HttpRequest& request,
                                                 const HttpLimits& limits) {
  HttpResponse response;
  bool too_large = false;
  const Status status = stream(
      request, limits,
      [&](const HttpResponse& head) {
        response = head;
        return true;
      },
      [&](std::string_view data) {
        too_large = response.body.size() + data.size() > limits.max_body;
        if (!too_large) response.body += data;
        return !too_large;
      });
  TY_RETURN_IF_ERROR(status);
  if (too_large) {
    return markMaybeHappened(
        absl::ResourceExhaustedError(fmt::format("{} {}: the answer has more than {} bytes",
                                                 request.method, config_.server, limits.max_body)));
  }
  return response;
}

}  // namespace trainyard::control::internal
