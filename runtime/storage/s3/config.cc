#include "runtime/storage/s3/config.h"

#include <algorithm>

#include "base/core/object_path.h"
#include "fmt/format.h"
#include "runtime/storage/s3/signature.h"

namespace trainyard::runtime::s3 {
namespace {

StatusOr<std::string> needed(const Environment& environment, const char* name) {
  std::string value = environment(name);
  if (!value.empty()) return value;
  return absl::InvalidArgumentError(
      fmt::format("{} is not set: it is needed for checkpoints in s3://", name));
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

}  // namespace

StatusOr<S3Config> configOf(const Environment& environment) {
  S3Config config;
  config.endpoint = firstOf(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  while (config.endpoint.ends_with('/')) config.endpoint.pop_back();
  if (!config.endpoint.empty() && hostOf(config.endpoint).empty()) {
    return invalidInput("AWS_ENDPOINT_URL_S3",
                        fmt::format("'{}', expected http[s]://host[:port]", config.endpoint));
  }
  if (std::string region = firstOf(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
      !region.empty())
    config.region = std::move(region);
  TY_ASSIGN_OR_RETURN(config.access_key, needed(environment, "AWS_ACCESS_KEY_ID"));
  TY_ASSIGN_OR_RETURN(config.secret_key, needed(environment, "AWS_SECRET_ACCESS_KEY"));
  config.session_token = environment("AWS_SESSION_TOKEN");
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
