// AWS Signature Version 4 of a request, with its body's hash signed, too ("Authenticating Requests
// (AWS Signature Version 4)", Amazon S3 API Reference): the store refuses what was changed on its
// way. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "runtime/storage/s3/config.h"

namespace trainyard::runtime::s3 {

struct Request {
  std::string method = "GET";
  std::string scheme_and_host;
  std::string host;
  std::string path = "/";                      // percent-encoded
  std::map<std::string, std::string> query;    // decoded
  std::map<std::string, std::string> headers;  // by lower-case name; without Host
  std::span<const std::byte> body;             // of the caller's
};

// Everything but letters, digits and "-._~" as %XX; encodePath() leaves "/", too.
std::string encode(std::string_view text);
std::string encodePath(std::string_view text);
// "a=b&c=d" of the query, encoded, by name.
std::string queryText(const Request& request);

// Adds x-amz-date, x-amz-content-sha256, x-amz-security-token where there is one, and
// authorization.
void sign(const Keys& keys, const std::string& region, UnixMillis now, Request& request);

}  // namespace trainyard::runtime::s3
