#include "runtime/storage/s3/keys.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "runtime/storage/s3/key_requests.h"

namespace trainyard::runtime::s3 {
namespace {

constexpr UnixMillis kNever = std::numeric_limits<UnixMillis>::max();
constexpr UnixMillis kAhead = 5 * 60 * 1000;
constexpr UnixMillis kPause = 10 * 1000;  // after a try that failed
constexpr std::size_t kMostToken = 64 << 10;
constexpr std::size_t kLongestKeys = 1 << 20;

StatusOr<std::string> readToken(const std::string& file) {
  TY_ASSIGN_OR_RETURN(const std::string token, readFile(file, kMostToken));
  return std::string(trim(token));
}

StatusOr<Keys> keysFrom(const Response& response, const StatusOr<Keys>& parsed) {
  if (response.status / 100 == 2) return parsed;
  const std::string words = refusalText(response);
  const bool passes = response.status == 429 || response.status / 100 == 5 ||
                      words.starts_with("IDPCommunicationError:");
  return passes ? Status(absl::UnavailableError(words)) : absl::PermissionDeniedError(words);
}

StatusOr<Keys> askFor(const WebIdentity& identity, Http& http) {
  TY_ASSIGN_OR_RETURN(const std::string token, readToken(identity.token_file));
  const std::string body = roleForm(identity, token);
  Request request = requestTo(identity.endpoint);
  request.method = "POST";
  request.headers["content-type"] = "application/x-www-form-urlencoded";
  request.body = std::as_bytes(std::span(body.data(), body.size()));
  TY_ASSIGN_OR_RETURN(const Response response, http.send(request, kLongestKeys));
  return keysFrom(response, parseRoleKeys(response.body));
}

StatusOr<Keys> askFor(const KeyServer& server, Http& http) {
  std::string token = server.token;
  if (!server.token_file.empty()) {
    TY_ASSIGN_OR_RETURN(token, readToken(server.token_file));
  }
  Request request = requestTo(server.url);
  if (!token.empty()) request.headers["authorization"] = token;
  TY_ASSIGN_OR_RETURN(const Response response, http.send(request, kLongestKeys));
  return keysFrom(response, parseServedKeys(response.body));
}

StatusOr<Keys> askFor(const Keys& keys, Http& /*http*/) {
  return keys;
}

UnixMillis renewal(const Keys& keys, UnixMillis now) {
  if (keys.expires == 0) return kNever;
  return std::max(keys.expires - kAhead, now + (keys.expires - now) / 2);
}

}  // namespace

KeyRing::KeyRing(KeySource source, Http& http, const Clock& clock)
    : source_(std::move(source)), http_(http), clock_(clock) {}

StatusOr<Keys> KeyRing::ask() const {
  return std::visit([this](const auto& source) { return askFor(source, http_); }, source_);
}

StatusOr<Keys> KeyRing::take(StatusOr<Keys> asked) {
  const UnixMillis now = clock_.unixMillis();
  const std::lock_guard lock(mutex_);
  if (asked.ok()) {
    keys_ = *std::move(asked);
    renew_at_ = renewal(keys_, now);
    failing_ = false;
    return keys_;
  }
  const Status why = annotate(asked.status(), whoLends(source_));
  if (now >= keys_.expires) return why;
  if (!std::exchange(failing_, true))
    TY_WARN("{}; the keys that are there hold {} s more", fromAbsl(why.message()),
            (keys_.expires - now) / 1000);
  renew_at_ = std::min(now + kPause, keys_.expires);
  return keys_;
}

std::optional<Keys> KeyRing::held(bool due) {
  const UnixMillis now = clock_.unixMillis();
  const std::lock_guard lock(mutex_);
  return now < (due ? keys_.expires : renew_at_) ? std::optional(keys_) : std::nullopt;
}

StatusOr<Keys> KeyRing::current() {
  if (auto keys = held(/*due=*/false)) return *std::move(keys);
  // One asks; whose keys hold still does not wait for that.
  std::unique_lock asking(asking_, std::try_to_lock);
  if (!asking.owns_lock()) {
    if (auto keys = held(/*due=*/true)) return *std::move(keys);
    asking.lock();
  }
  if (auto keys = held(/*due=*/false)) return *std::move(keys);
  return take(ask());
}

bool KeyRing::drop(const Keys& keys) {
  if (std::holds_alternative<Keys>(source_)) return false;
  const std::lock_guard lock(mutex_);
  if (keys.access_key == keys_.access_key) {
    keys_ = {};
    renew_at_ = 0;
  }
  return true;
}

}  // namespace trainyard::runtime::s3
