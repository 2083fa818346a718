// An HttpTransport without a network: a function answers.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "operator/kube/http.h"

namespace trainyard::control {

// Thread-safe as far as the function is.
class FakeTransport : public HttpTransport {
 public:
  using Answer = std::function<StatusOr<HttpResponse>(const HttpRequest&)>;

  explicit FakeTransport(Answer answer) : answer_(std::move(answer)) {}

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits&) override {
    note(request);
    return answer_(request);
  }

  // The answer's body comes in pieces of `piece` bytes.
  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override {
    note(request);
    last_limits = limits;
    auto response = answer_(request);
    TY_RETURN_IF_ERROR(response.status());
    const std::string body = std::exchange(response->body, {});
    if (!on_head(*response)) return absl::OkStatus();
    for (std::size_t at = 0; at < body.size(); at += piece) {
      if (!on_data(std::string_view(body).substr(at, piece))) return absl::OkStatus();
    }
    return after_stream;
  }

  std::vector<HttpRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  std::size_t piece = 7;
  Status after_stream;
  HttpLimits last_limits;

 private:
  void note(const HttpRequest& request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }

  const Answer answer_;
  mutable std::mutex mutex_;
  std::vector<HttpRequest> requests_;
};

}  // namespace trainyard::control
