// Where an object store is and who we are to it, by the variables that the SDKs and tools of AWS
// read, so that one environment serves all.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/http/proxy.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime::s3 {

struct Keys {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // "": the keys are not temporary
  UnixMillis expires = 0;     // 0: not that we knew
};

// A role of a token service, whose keys are lent to whoever has the token of an identity provider
// that the role trusts: what Kubernetes gives to pods of a service account.
struct WebIdentity {
  std::string role;        // "arn:..."
  std::string token_file;  // read each time: who writes it renews it
  std::string session;     // a name, for the service's records
  std::string endpoint;    // of the token service, "http[s]://host[:port]"
};

// Who lends keys to the containers of a machine ("Container credential provider", AWS SDKs and
// Tools Reference).
struct KeyServer {
  std::string url;
  std::string token;       // who asks proves itself by it; "": by none, or by that in the file
  std::string token_file;  // read each time
};

using KeySource = std::variant<Keys, WebIdentity, KeyServer>;

struct S3Config {
  // "http[s]://host[:port]"; "": AWS's own of the region.
  std::string endpoint;
  std::string region = "us-east-1";
  KeySource keys;
  std::string ca_file;  // PEM; "": the system's certificate authorities
  std::string scratch;  // folder for copies of what is read
  ProxyRules proxies;   // of the store and of who lends keys
};

// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION, AWS_CA_BUNDLE, TMPDIR;
// and the keys by the first of these that is there: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN; AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN, AWS_ROLE_SESSION_NAME and, where
// the token service is not AWS's of the region, AWS_ENDPOINT_URL_STS or AWS_ENDPOINT_URL;
// AWS_CONTAINER_CREDENTIALS_FULL_URI or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI with
// AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or AWS_CONTAINER_AUTHORIZATION_TOKEN. Proxies
// by HTTPS_PROXY and what else proxyRules() reads; none leads to a key server at an address that is
// good on its node alone. INVALID_ARGUMENT names the variable that is missing or wrong.
StatusOr<S3Config> configOf(const Environment& environment);

// "s3://bucket/some/key"; the key may be empty.
struct ObjectName {
  std::string bucket;
  std::string key;
};
StatusOr<ObjectName> parseObjectName(std::string_view path);

// Where an object is asked for: buckets are hosts at AWS, and the first part of the path elsewhere
// and where their names have dots, which certificates do not cover.
struct ObjectUrl {
  std::string scheme_and_host;  // "https://bucket.s3.eu-central-1.amazonaws.com"
  std::string host;             // as the header Host has it
  std::string path;             // percent-encoded, "/" or longer
};
ObjectUrl urlOf(const S3Config& config, const ObjectName& name);

}  // namespace trainyard::runtime::s3
