#include "runtime/storage/s3/key_requests.h"

#include <algorithm>

#include "base/core/rfc3339.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "runtime/storage/s3/answers.h"
#include "runtime/storage/s3/signature.h"

namespace trainyard::runtime::s3 {
namespace {

struct WhoLends {
  std::string operator()(const Keys&) const { return "the keys"; }
  std::string operator()(const WebIdentity& identity) const {
    return fmt::format("keys of role {} from {}", identity.role, identity.endpoint);
  }
  std::string operator()(const KeyServer& server) const {
    return fmt::format("keys from {}", server.url);
  }
};

}  // namespace

Request requestTo(const std::string& url) {
  const std::size_t host = url.find("://") + 3;
  const std::size_t path = std::min(url.find('/', host), url.size());
  Request request;
  request.scheme_and_host = url.substr(0, path);
  request.host = url.substr(host, path - host);
  if (path < url.size()) request.path = url.substr(path);
  return request;
}

std::string roleForm(const WebIdentity& identity, std::string_view token) {
  return fmt::format(
      "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}"
      "&WebIdentityToken={}",
      encode(identity.role), encode(identity.session), encode(token));
}

StatusOr<Keys> parseServedKeys(std::string_view json) {
  const auto given = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  Keys keys{.access_key = textAt(given, "AccessKeyId"),
            .secret_key = textAt(given, "SecretAccessKey"),
            .session_token = textAt(given, "Token"),
            .expires = parseRfc3339(textAt(given, "Expiration"))};
  if (keys.access_key.empty() || keys.secret_key.empty())
    return absl::InternalError("there are no keys in the answer");
  return keys;
}

std::string refusalText(const Response& response) {
  if (const ErrorAnswer error = parseError(response.body); !error.code.empty())
    return fmt::format("{}: {}", error.code, error.message);
  const auto given = nlohmann::json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (const std::string code = textAt(given, "code"); !code.empty())
    return fmt::format("{}: {}", code, textAt(given, "message"));
  return fmt::format("the answer is {}", response.status);
}

std::string whoLends(const KeySource& source) {
  return std::visit(WhoLends(), source);
}

}  // namespace trainyard::runtime::s3
