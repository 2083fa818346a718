// Where an object store is and who we are to it, by the variables that the SDKs and tools of AWS
// read, so that one environment serves all.
#pragma once

#include <string>
#include <string_view>

#include "base/core/status.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime::s3 {

struct S3Config {
  // "http[s]://host[:port]"; "": AWS's own of the region.
  std::string endpoint;
  std::string region = "us-east-1";
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // "": the keys are not temporary
  std::string ca_file;        // PEM; "": the system's certificate authorities
  std::string scratch;        // folder for copies of what is read
};

// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_CA_BUNDLE, TMPDIR. INVALID_ARGUMENT names the
// variable that is missing or wrong.
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
