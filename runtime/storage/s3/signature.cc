#include "runtime/storage/s3/signature.h"

#include <array>
#include <ctime>

#include "base/security/hmac.h"
#include "base/security/sha256.h"
#include "fmt/format.h"

namespace trainyard::runtime::s3 {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// "20130524T000000Z"
std::string timeText(UnixMillis now) {
  const std::time_t seconds = now / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts)};
}

std::string encodeAllBut(std::string_view text, std::string_view kept) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       kept.find(c) != std::string_view::npos;
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace

std::string encode(std::string_view text) {
  return encodeAllBut(text, "-._~");
}

std::string encodePath(std::string_view text) {
  return encodeAllBut(text, "-._~/");
}

std::string queryText(const Request& request) {
  // By the encoded names: what comes behind letters in ASCII is encoded, or comes behind them
  // still.
  std::map<std::string, std::string> encoded;
  for (const auto& [name, value] : request.query) encoded[encode(name)] = encode(value);
  std::string text;
  for (const auto& [name, value] : encoded)
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
  return text;
}

void sign(const Keys& keys, const std::string& region, UnixMillis now, Request& request) {
  const std::string time = timeText(now);
  const std::string day = time.substr(0, 8);
  const std::string body_hash = sha256Hex(request.body);
  request.headers["x-amz-date"] = time;
  request.headers["x-amz-content-sha256"] = body_hash;
  if (!keys.session_token.empty()) request.headers["x-amz-security-token"] = keys.session_token;

  std::map<std::string, std::string> all = request.headers;
  all["host"] = request.host;
  std::string headers, names;
  for (const auto& [name, value] : all) {
    headers += fmt::format("{}:{}\n", name, value);
    names += fmt::format("{}{}", names.empty() ? "" : ";", name);
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            queryText(request), headers, names, body_hash);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", day, region);
  const std::string to_sign =
      fmt::format("{}\n{}\n{}\n{}", kAlgorithm, time, scope, sha256Hex(canonical));
  std::string key = "AWS4" + keys.secret_key;
  for (const std::string_view part : {std::string_view(day), std::string_view(region),
                                      std::string_view("s3"), std::string_view("aws4_request")})
    key = hmacSha256(key, part);
  request.headers["authorization"] =
      fmt::format("{} Credential={}/{},SignedHeaders={},Signature={}", kAlgorithm, keys.access_key,
                  scope, names, hex(hmacSha256(key, to_sign)));
}

}  // namespace trainyard::runtime::s3
