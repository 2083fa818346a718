#include "base/http/proxy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

// What is no "%XY" stays as it is.
std::string percentDecoded(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string digits(text[at] == '%' ? text.substr(at + 1, 2) : "");
    const bool hex = digits.size() == 2 && std::ranges::all_of(digits, [](unsigned char c) {
                       return std::isxdigit(c) != 0;
                     });
    if (hex) {
      result += absl::HexStringToBytes(digits);
      at += 2;
    } else {
      result += text[at];
    }
  }
  return result;
}

// In network order; empty: it is none.
std::vector<std::uint8_t> addressOf(const std::string& text) {
  std::array<std::uint8_t, 16> bytes{};
  if (::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1)
    return {bytes.begin(), bytes.begin() + 4};
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return {bytes.begin(), bytes.end()};
  return {};
}

bool isWithin(const std::vector<std::uint8_t>& address, const std::string& network) {
  const auto [first, length] = splitFirst(network, '/');
  const std::vector<std::uint8_t> base = addressOf(std::string(first));
  const auto bits = parseNumber<unsigned>(length);
  if (address.empty() || base.size() != address.size() || !bits || *bits > 8 * base.size())
    return false;
  for (unsigned bit = 0; bit < *bits; ++bit) {
    const unsigned mask = 0x80U >> (bit % 8);
    if (((base[bit / 8] ^ address[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

// `host` in small letters.
bool isDirect(const std::string& rule, const std::string& host, int port) {
  if (rule == "*") return true;
  const std::vector<std::uint8_t> address = addressOf(host);
  if (rule.find('/') != std::string::npos) return isWithin(address, rule);
  std::string name = rule;
  int of_port = port;
  // An IPv6 literal may stand there without brackets.
  if (addressOf(rule).empty() && readAuthority(rule, &name, &of_port) != nullptr) return false;
  if (of_port != port) return false;
  if (!address.empty()) return addressOf(name) == address;
  if (name.starts_with('.')) name.erase(0, 1);
  return host == name || host.ends_with("." + name);
}

StatusOr<std::optional<ProxyAddress>> proxyOf(
    const std::function<std::string(const char*)>& environment, const char* own) {
  for (const std::string_view kind : {std::string_view(own), std::string_view("all_proxy")}) {
    for (const std::string& name : {std::string(kind), absl::AsciiStrToUpper(std::string(kind))}) {
      std::string url = environment(name.c_str());
      if (url.empty()) continue;
      if (url.find("://") == std::string::npos) url = "http://" + url;
      auto proxy = parseProxy(url);
      if (!proxy.ok()) return invalidInput(name, std::string(proxy.status().message()));
      return std::optional(*std::move(proxy));
    }
  }
  return std::nullopt;
}

}  // namespace

const char* readAuthority(std::string_view authority, std::string* host, int* port) {
  std::string_view number;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return "no ']'";
    *host = authority.substr(1, end - 1);
    if (addressOf(*host).size() != sizeof(in6_addr)) return "no IPv6 address";
    number = authority.substr(end + 1);
    if (!number.empty() && !number.starts_with(':')) return "text after ']'";
    if (!number.empty()) number.remove_prefix(1);
  } else {
    const auto [name, rest] = splitFirst(authority, ':');
    *host = name;
    number = rest;
  }
  if (host->empty()) return "no host";
  if (number.empty()) return nullptr;
  const auto given = parseNumber<int>(number);
  if (!given || *given < 1 || *given > 65535) return "no port number";
  *port = *given;
  return nullptr;
}

std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

StatusOr<ProxyAddress> parseProxy(std::string_view url) {
  const auto refuse = [](std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("{}; expected http://HOST:PORT", what));
  };
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return refuse("only proxies that are spoken to by http");
  std::string_view rest = url.substr(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find_first_of("/?# ") != std::string_view::npos) return refuse("text after the port");
  ProxyAddress proxy;
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const auto [user, password] = splitFirst(rest.substr(0, at), ':');
    proxy.user = percentDecoded(user);
    proxy.password = percentDecoded(password);
    rest.remove_prefix(at + 1);
  }
  if (const char* problem = readAuthority(rest, &proxy.host, &proxy.port)) return refuse(problem);
  return proxy;
}

StatusOr<ProxyRules> proxyRules(const std::function<std::string(const char* name)>& environment) {
  ProxyRules rules;
  TY_ASSIGN_OR_RETURN(rules.http, proxyOf(environment, "http_proxy"));
  TY_ASSIGN_OR_RETURN(rules.https, proxyOf(environment, "https_proxy"));
  std::string direct = environment("no_proxy");
  if (direct.empty()) direct = environment("NO_PROXY");
  rules.direct =
      absl::StrSplit(absl::AsciiStrToLower(direct), absl::ByAnyChar(", \t"), absl::SkipEmpty());
  return rules;
}

const ProxyAddress* proxyFor(const ProxyRules& rules, bool tls, std::string_view host, int port) {
  const std::optional<ProxyAddress>& proxy = tls ? rules.https : rules.http;
  const std::string name = absl::AsciiStrToLower(std::string(host));
  const bool direct = std::ranges::any_of(
      rules.direct, [&](const auto& rule) { return isDirect(rule, name, port); });
  return proxy && !direct ? &*proxy : nullptr;
}

}  // namespace trainyard
