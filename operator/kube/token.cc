#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "operator/kube/connection.h"

namespace trainyard::control {

namespace {

constexpr int kUnauthorized = 401;

// What a request says we are. Equal: the server would answer as before.
struct Proof {
  std::string token;        // "": a certificate says it
  std::uint64_t issue = 0;  // of a program's answer
  bool operator==(const Proof&) const = default;
};

// Thread-safe.
class ProofSource {
 public:
  virtual ~ProofSource() = default;
  virtual StatusOr<Proof> current(const std::stop_token& stop) = 0;
  // The server did not accept that one: what there is by now, perhaps the same.
  virtual StatusOr<Proof> after(const Proof& refused, const std::stop_token& stop) = 0;
};

// A token that stands in the configuration or in a file.
class TokenSource : public ProofSource {
 public:
  TokenSource(KubeSecret token, const Clock& clock, Duration reread)
      : secret_(std::move(token)), clock_(clock), reread_(reread) {}

  StatusOr<Proof> current(const std::stop_token&) override { return read(false); }
  StatusOr<Proof> after(const Proof&, const std::stop_token&) override { return read(true); }

 private:
  // `must_read`: the one we have is not accepted.
  StatusOr<Proof> read(bool must_read) {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    const bool is_new = !token_.empty() && now < read_at_ + reread_;
    if (is_new && (!must_read || secret_.file.empty())) return Proof{token_, 0};
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
    return Proof{token_, 0};
  }

  const KubeSecret secret_;
  const Clock& clock_;
  const Duration reread_;
  std::mutex mutex_;
  std::string token_;
  TimePoint read_at_;
};

// What a program says.
class ExecSource : public ProofSource {
 public:
  ExecSource(std::shared_ptr<ExecUser> user, const Clock& clock)
      : user_(std::move(user)), clock_(clock) {}

  StatusOr<Proof> current(const std::stop_token& stop) override {
    TY_ASSIGN_OR_RETURN(ExecCredential said, user_->credential(clock_, stop));
    return Proof{std::move(said.token), said.issue};
  }
  StatusOr<Proof> after(const Proof& refused, const std::stop_token& stop) override {
    user_->refuse(refused.issue);
    return current(stop);
  }

 private:
  const std::shared_ptr<ExecUser> user_;
  const Clock& clock_;
};

class TokenTransport : public HttpTransport {
 public:
  TokenTransport(std::unique_ptr<HttpTransport> inner, std::unique_ptr<ProofSource> source)
      : inner_(std::move(inner)), source_(std::move(source)) {}

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits& limits) override {
    TY_ASSIGN_OR_RETURN(const Proof proof, source_->current(limits.stop));
    auto response = inner_->call(with(request, proof), limits);
    if (!response.ok() || response->status != kUnauthorized) return response;
    const auto fresh = source_->after(proof, limits.stop);
    if (!fresh.ok() || *fresh == proof) return response;
    return inner_->call(with(request, *fresh), limits);
  }

  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override {
    TY_ASSIGN_OR_RETURN(const Proof proof, source_->current(limits.stop));
    StatusOr<Proof> fresh = absl::NotFoundError("not asked for");
    const Status status = inner_->stream(
        with(request, proof), limits,
        [&](const HttpResponse& head) {
          if (head.status == kUnauthorized) fresh = source_->after(proof, limits.stop);
          return fresh.ok() && *fresh != proof ? false : on_head(head);
        },
        on_data);
    if (!fresh.ok() || *fresh == proof) return status;
    return inner_->stream(with(request, *fresh), limits, on_head, on_data);
  }

 private:
  static HttpRequest with(HttpRequest request, const Proof& proof) {
    if (!proof.token.empty()) {
      request.headers.emplace_back("Authorization", "Bearer " + proof.token);
    }
    return request;
  }

  const std::unique_ptr<HttpTransport> inner_;
  const std::unique_ptr<ProofSource> source_;
};

}  // namespace

std::unique_ptr<HttpTransport> addToken(std::unique_ptr<HttpTransport> inner, KubeSecret token,
                                        const Clock& clock, Duration reread) {
  return std::make_unique<TokenTransport>(
      std::move(inner), std::make_unique<TokenSource>(std::move(token), clock, reread));
}

std::unique_ptr<HttpTransport> addToken(std::unique_ptr<HttpTransport> inner,
                                        std::shared_ptr<ExecUser> user, const Clock& clock) {
  return std::make_unique<TokenTransport>(std::move(inner),
                                          std::make_unique<ExecSource>(std::move(user), clock));
}

}  // namespace trainyard::control
