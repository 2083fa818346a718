#include <mutex>
#include <string>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "operator/kube/connection.h"

namespace trainyard::control {

namespace {

constexpr int kUnauthorized = 401;

class TokenTransport : public HttpTransport {
 public:
  TokenTransport(std::unique_ptr<HttpTransport> inner, KubeSecret token, const Clock& clock,
                 Duration reread)
      : inner_(std::move(inner)), secret_(std::move(token)), clock_(clock), reread_(reread) {}

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits& limits) override {
    TY_ASSIGN_OR_RETURN(const std::string token, current(false));
    auto response = inner_->call(with(request, token), limits);
    if (!response.ok() || response->status != kUnauthorized) return response;
    const auto fresh = current(true);
    if (!fresh.ok() || *fresh == token) return response;
    return inner_->call(with(request, *fresh), limits);
  }

  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override {
    TY_ASSIGN_OR_RETURN(const std::string token, current(false));
    StatusOr<std::string> fresh = absl::NotFoundError("not asked for");
    const Status status = inner_->stream(
        with(request, token), limits,
        [&](const HttpResponse& head) {
          if (head.status == kUnauthorized) fresh = current(true);
          return fresh.ok() && *fresh != token ? false : on_head(head);
        },
        on_data);
    if (!fresh.ok() || *fresh == token) return status;
    return inner_->stream(with(request, *fresh), limits, on_head, on_data);
  }

 private:
  static HttpRequest with(HttpRequest request, const std::string& token) {
    request.headers.emplace_back("Authorization", "Bearer " + token);
    return request;
  }

  // `must_read`: the one we have is not accepted.
  StatusOr<std::string> current(bool must_read) {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    const bool is_new = !token_.empty() && now < read_at_ + reread_;
    if (is_new && (!must_read || secret_.file.empty())) return token_;
    read_at_ = now;
    auto text = readSecret(secret_);
    const std::string token(text.ok() ? trim(*text) : "");
    if (!token.empty()) {
      token_ = token;
    } else if (token_.empty()) {
      return text.ok() ? invalidInput(secret_.file.native(), "expected a token") : text.status();
    } else {
      TY_WARN("{}: cannot be read, keeping the former token", secret_.file.native());
    }
    return token_;
  }

  const std::unique_ptr<HttpTransport> inner_;
  const KubeSecret secret_;
  const Clock& clock_;
  const Duration reread_;
  std::mutex mutex_;
  std::string token_;
  TimePoint read_at_;
};

}  // namespace

std::unique_ptr<HttpTransport> addToken(std::unique_ptr<HttpTransport> inner, KubeSecret token,
                                        const Clock& clock, Duration reread) {
  return std::make_unique<TokenTransport>(std::move(inner), std::move(token), clock, reread);
}

}  // namespace trainyard::control
