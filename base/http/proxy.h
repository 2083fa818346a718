// Proxies by which servers are reached: as they are written, and which of them leads to whom.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"

namespace trainyard {

// A proxy that connects us to a server by CONNECT, and sees no more than TLS; who has none is asked
// for through it.
struct ProxyAddress {
  std::string host;  // an IPv6 literal without brackets
  int port = 80;
  std::string user;  // decoded, as is the password; "": it asks for none
  std::string password;
};

// "http://[USER:PASSWORD@]HOST[:PORT]", user and password percent-encoded; else INVALID_ARGUMENT,
// which does not repeat them.
StatusOr<ProxyAddress> parseProxy(std::string_view url);

// HOST, HOST:PORT or [IPv6]:PORT; without a port that stays as it is. What is wrong, or null.
const char* readAuthority(std::string_view authority, std::string* host, int* port);
// A host as it stands there: an IPv6 literal in brackets.
std::string bracketed(const std::string& host);

// Of one environment. The names and their meaning are curl's (its manual page, "ENVIRONMENT" and
// "--noproxy"), which agree with what AWS's tools do.
struct ProxyRules {
  std::optional<ProxyAddress> http;   // to servers without TLS
  std::optional<ProxyAddress> https;  // to those with it
  // Who is reached without: "*", a name and all below it, an address, a network "10.0.0.0/8"; each
  // of the first three with ":PORT" of that port alone.
  std::vector<std::string> direct;
};

// http_proxy, https_proxy, all_proxy for either, no_proxy; each in capitals where it is not set in
// small letters. A proxy without a scheme is one of http. INVALID_ARGUMENT names the variable.
StatusOr<ProxyRules> proxyRules(const std::function<std::string(const char* name)>& environment);

// Null: none leads there. `host`: an IPv6 literal without brackets.
const ProxyAddress* proxyFor(const ProxyRules& rules, bool tls, std::string_view host, int port);

}  // namespace trainyard
