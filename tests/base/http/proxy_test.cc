#include "base/http/proxy.h"

#include <map>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

TEST(ParseProxy, TakesApart) {
  const auto parts = [](std::string_view url) {
    const auto proxy = parseProxy(url);
    if (!proxy.ok()) return std::string("refused");
    return fmt::format("{} {} {} {}", proxy->host, proxy->port, proxy->user, proxy->password);
  };
  EXPECT_EQ(parts("http://p"), "p 80  ");
  EXPECT_EQ(parts("http://p:3128/"), "p 3128  ");
  EXPECT_EQ(parts("http://[::1]:3128"), "::1 3128  ");
  EXPECT_EQ(parts("http://ann:p%40ss@p:3128"), "p 3128 ann p@ss");
  for (const char* url : {"", "p:1", "https://p", "socks5://p", "http://", "http://p:0",
                          "http://p:1/path", "http://u@"}) {
    EXPECT_EQ(parts(url), "refused") << url;
  }
  EXPECT_THAT(std::string(parseProxy("http://u:secret@p:x").status().message()),
              testing::Not(HasSubstr("secret")));
}

using Variables = std::map<std::string, std::string>;

StatusOr<ProxyRules> rulesOf(const Variables& variables) {
  return proxyRules([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

// Host and port of the proxy to a server; "": none.
std::string leads(const Variables& variables, bool tls, const std::string& host, int port) {
  const auto rules = rulesOf(variables);
  if (!rules.ok()) return rules.status().ToString();
  const ProxyAddress* const proxy = proxyFor(*rules, tls, host, port);
  return proxy == nullptr ? "" : fmt::format("{}:{}", proxy->host, proxy->port);
}

TEST(ProxyRules, EachKindOfServerHasItsOwn) {
  EXPECT_EQ(leads({}, true, "store", 443), "");
  const Variables both = {{"HTTPS_PROXY", "http://secure:1"}, {"HTTP_PROXY", "http://plain:2"}};
  EXPECT_EQ(leads(both, true, "store", 443), "secure:1");
  EXPECT_EQ(leads(both, false, "store", 80), "plain:2");
  EXPECT_EQ(leads({{"HTTPS_PROXY", "http://secure:1"}}, false, "store", 80), "");
  EXPECT_EQ(leads({{"ALL_PROXY", "any:3"}}, false, "store", 80), "any:3");
  EXPECT_EQ(leads({{"ALL_PROXY", "any:3"}, {"https_proxy", "http://secure:1"}}, true, "s", 443),
            "secure:1");
  EXPECT_EQ(leads({{"https_proxy", "small:1"}, {"HTTPS_PROXY", "large:1"}}, true, "s", 443),
            "small:1");
}

TEST(ProxyRules, TheVariableThatIsWrongIsNamed) {
  for (const char* url : {"https://p:1", "socks5://p:1", "http://p:0"}) {
    const auto rules = rulesOf({{"HTTPS_PROXY", url}});
    EXPECT_EQ(rules.status().code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(std::string(rules.status().message()), HasSubstr("HTTPS_PROXY")) << url;
  }
}

TEST(ProxyRules, SomeAreReachedWithout) {
  const auto direct = [](const std::string& rules, const std::string& host, int port = 443) {
    return leads({{"HTTPS_PROXY", "p:1"}, {"NO_PROXY", rules}}, true, host, port).empty();
  };
  EXPECT_TRUE(direct("*", "store"));
  EXPECT_TRUE(direct("a.test, store.test", "store.test"));
  EXPECT_TRUE(direct("store.test", "Store.Test"));
  EXPECT_TRUE(direct("STORE.test", "store.test"));
  for (const char* rule : {"test", ".test"}) {
    EXPECT_TRUE(direct(rule, "store.test")) << rule;
    EXPECT_TRUE(direct(rule, "a.store.test")) << rule;
    EXPECT_TRUE(direct(rule, "test")) << rule;
    EXPECT_FALSE(direct(rule, "mytest")) << rule;
  }
  EXPECT_FALSE(direct("store.test", "other.test"));
  EXPECT_TRUE(direct("store.test:9000", "store.test", 9000));
  EXPECT_FALSE(direct("store.test:9000", "store.test", 443));

  EXPECT_TRUE(direct("10.1.2.3", "10.1.2.3"));
  EXPECT_TRUE(direct("10.1.2.3:443", "10.1.2.3"));
  EXPECT_FALSE(direct("10.1.2.3", "110.1.2.3"));
  EXPECT_FALSE(direct("2.3", "10.1.2.3"));
  EXPECT_TRUE(direct("10.0.0.0/9", "10.127.0.1"));
  EXPECT_FALSE(direct("10.0.0.0/9", "10.128.0.1"));
  EXPECT_TRUE(direct("0.0.0.0/0", "10.128.0.1"));
  EXPECT_FALSE(direct("0.0.0.0/0", "store.test"));
  for (const char* wrong : {"10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "/8"})
    EXPECT_FALSE(direct(wrong, "10.0.0.1")) << wrong;
  EXPECT_TRUE(direct("fd00::1", "fd00:0:0::1"));
  EXPECT_TRUE(direct("[fd00::1]:443", "fd00::1"));
  EXPECT_TRUE(direct("fd00::/8", "fdab::1"));
  EXPECT_FALSE(direct("fd00::/8", "10.0.0.1"));
}

}  // namespace
}  // namespace trainyard
