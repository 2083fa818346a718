#include "runtime/storage/s3/config.h"

#include <algorithm>
#include <array>

#include "base/core/object_path.h"
#include "fmt/format.h"
#include "runtime/storage/s3/signature.h"

namespace trainyard::runtime::s3 {
namespace {

// An agent of AWS's on the node.
constexpr std::array<std::string_view, 3> kLenders = {"169.254.170.2", "169.254.170.23",
                                                      "[fd00:ec2::23]"};
constexpr std::array<std::string_view, 3> kThisMachine = {"127.0.0.1", "localhost", "[::1]"};

StatusOr<std::string> needed(const Environment& environment, const char* name) {
  std::string value = environment(name);
  if (!value.empty()) return value;
  return absl::InvalidArgumentError(fmt::format("{} is not set: it is needed for s3://", name));
}

std::string firstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = environment(name); !value.empty()) return value;
  }
  return "";
}

// "host[:port]" of a URL without path; empty: it is none.
std::string hostOf(std::string_view url) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!url.starts_with(scheme)) continue;
    url.remove_prefix(scheme.size());
    if (url.find_first_of("/?#@") != std::string_view::npos) return "";
    return std::string(url);
  }
  return "";
}

// As curl sends it: the port only where it is not the scheme's.
std::string withoutUsualPort(std::string_view scheme, std::string host) {
  const std::string usual = scheme == "https" ? ":443" : ":80";
  if (host.ends_with(usual)) host.resize(host.size() - usual.size());
  return host;
}

// Of one of AWS's services; "": AWS's own.
StatusOr<std::string> endpointOf(const Environment& environment, const char* name) {
  std::string endpoint = firstOf(environment, {name, "AWS_ENDPOINT_URL"});
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (!endpoint.empty() && hostOf(endpoint).empty())
    return invalidInput(name, fmt::format("'{}', expected http[s]://host[:port]", endpoint));
  return endpoint;
}

StatusOr<KeySource> givenKeys(const Environment& environment) {
  Keys keys;
  TY_ASSIGN_OR_RETURN(keys.access_key, needed(environment, "AWS_ACCESS_KEY_ID"));
  TY_ASSIGN_OR_RETURN(keys.secret_key, needed(environment, "AWS_SECRET_ACCESS_KEY"));
  keys.session_token = environment("AWS_SESSION_TOKEN");
  return keys;
}

StatusOr<KeySource> webIdentity(const Environment& environment, const std::string& region) {
  WebIdentity identity;
  identity.token_file = environment("AWS_WEB_IDENTITY_TOKEN_FILE");
  TY_ASSIGN_OR_RETURN(identity.role, needed(environment, "AWS_ROLE_ARN"));
  identity.session = environment("AWS_ROLE_SESSION_NAME");
  if (identity.session.empty()) identity.session = "trainyard";
  TY_ASSIGN_OR_RETURN(identity.endpoint, endpointOf(environment, "AWS_ENDPOINT_URL_STS"));
  if (identity.endpoint.empty())
    identity.endpoint = fmt::format("https://sts.{}.amazonaws.com", region);
  return identity;
}

StatusOr<KeySource> keyServer(const Environment& environment) {
  KeyServer server;
  server.url = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (server.url.empty())
    server.url = "http://169.254.170.2" + environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  server.token_file = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  server.token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::size_t path = server.url.find('/', server.url.find("://") + 3);
  const std::string host = hostOf(server.url.substr(0, path));
  const std::string name = host.substr(0, host.ends_with(']') ? host.size() : host.rfind(':'));
  const bool safe = server.url.starts_with("https://") || std::ranges::count(kLenders, name) > 0 ||
                    std::ranges::count(kThisMachine, name) > 0;
  if (!host.empty() && safe) return server;
  return invalidInput(
      "AWS_CONTAINER_CREDENTIALS_FULL_URI",
      fmt::format("'{}', expected https://, or http:// of this machine", server.url));
}

// In the order in which AWS's SDKs look.
StatusOr<KeySource> keySourceOf(const Environment& environment, const std::string& region) {
  const auto has = [&](std::initializer_list<const char*> names) {
    return !firstOf(environment, names).empty();
  };
  if (has({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})) return givenKeys(environment);
  if (has({"AWS_WEB_IDENTITY_TOKEN_FILE"})) return webIdentity(environment, region);
  if (has({"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"}))
    return keyServer(environment);
  return givenKeys(environment);  // none: which says so
}

}  // namespace

StatusOr<S3Config> configOf(const Environment& environment) {
  S3Config config;
  TY_ASSIGN_OR_RETURN(config.endpoint, endpointOf(environment, "AWS_ENDPOINT_URL_S3"));
  if (std::string region = firstOf(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
      !region.empty())
    config.region = std::move(region);
  TY_ASSIGN_OR_RETURN(config.keys, keySourceOf(environment, config.region));
  TY_ASSIGN_OR_RETURN(config.proxies, proxyRules(environment));
  config.proxies.direct.insert(config.proxies.direct.end(), kLenders.begin(), kLenders.end());
  config.ca_file = environment("AWS_CA_BUNDLE");
  config.scratch = environment("TMPDIR");
  if (config.scratch.empty()) config.scratch = "/tmp";
  return config;
}

StatusOr<ObjectName> parseObjectName(std::string_view path) {
  const auto refuse = [&] { return invalidInput(path, "expected s3://BUCKET/PREFIX"); };
  if (!isObjectPath(path)) return refuse();
  std::string_view rest = path.substr(kObjectScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  ObjectName name{.bucket = std::string(rest.substr(0, slash)),
                  .key = std::string(rest.substr(std::min(slash + 1, rest.size())))};
  const bool plain = std::ranges::all_of(name.bucket, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
  if (name.bucket.size() < 3 || name.bucket.size() > 63 || !plain) return refuse();
  return name;
}

ObjectUrl urlOf(const S3Config& config, const ObjectName& name) {
  const std::string endpoint = config.endpoint.empty()
                                   ? fmt::format("https://s3.{}.amazonaws.com", config.region)
                                   : config.endpoint;
  const std::string scheme = endpoint.substr(0, endpoint.find(':'));
  std::string host = withoutUsualPort(scheme, hostOf(endpoint));
  const std::string key = encodePath(name.key);
  const bool is_host = config.endpoint.empty() && name.bucket.find('.') == std::string::npos;
  std::string path = is_host ? "/" + key : fmt::format("/{}/{}", name.bucket, key);
  if (is_host) host = fmt::format("{}.{}", name.bucket, host);
  if (!is_host && key.empty()) path.pop_back();
  return {.scheme_and_host = fmt::format("{}://{}", scheme, host), .host = host, .path = path};
}

}  // namespace trainyard::runtime::s3
