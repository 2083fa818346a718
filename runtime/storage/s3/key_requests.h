// What those are asked who lend keys, and what they answer. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/core/status.h"
#include "runtime/storage/s3/config.h"
#include "runtime/storage/s3/http.h"

namespace trainyard::runtime::s3 {

// A GET of a whole URL.
Request requestTo(const std::string& url);

// The body of the POST for AssumeRoleWithWebIdentity (AWS Security Token Service API Reference,
// version 2011-06-15).
std::string roleForm(const WebIdentity& identity, std::string_view token);

// What a KeyServer answers in JSON ("Container credential provider", AWS SDKs and Tools Reference).
// INTERNAL: there are no keys in it.
StatusOr<Keys> parseServedKeys(std::string_view json);

// The words of an answer of either that is no success.
std::string refusalText(const Response& response);

// For who reads an error: "keys of role ARN from URL".
std::string whoLends(const KeySource& source);

}  // namespace trainyard::runtime::s3
