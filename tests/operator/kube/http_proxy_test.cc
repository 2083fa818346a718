// Through a proxy: a real one of the test's own, that connects by CONNECT and relays bytes.
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/operator/kube/http_fixture.h"

namespace trainyard::control {
namespace {

using testing::HasSubstr;

class Proxy {
 public:
  // Whoever proves to be `user` ("NAME:PASSWORD" in base64; "": anybody) is connected to `port`,
  // whatever name he asks for.
  explicit Proxy(int port, const std::string& user = "")
      : server_({}, [port, user](ServerConnection& peer, const SeenRequest& request) {
          if (request.method != "CONNECT") return peer.respond(405, "");
          const auto proof = request.headers.find("proxy-authorization");
          const bool known = proof != request.headers.end() && proof->second == "Basic " + user;
          if (!user.empty() && !known) return peer.respond(407, "");
          if (!peer.send("HTTP/1.1 200 Connection established\r\n\r\n")) return false;
          peer.relayTo(port);
          return false;
        }) {}

  ProxyAddress address() const {
    return {.host = "127.0.0.1", .port = server_.port(), .user = "", .password = ""};
  }
  std::vector<std::string> targets() const {
    std::vector<std::string> targets;
    for (const SeenRequest& request : server_.requests()) {
      targets.push_back(request.method + " " + request.target);
    }
    return targets;
  }

 private:
  TestServer server_;
};

bool answerOk(ServerConnection& peer, const SeenRequest&) {
  return peer.respond(200, "{}");
}

TEST(HttpProxy, ConnectsToTheServerAndSeesNothingElse) {
  TestServer server(withTls(), answerOk);
  const Proxy proxy(server.port());
  KubeConfig config = configFor(server);
  // A name that only the proxy knows.
  config.server = "https://api.test:6443/prefix";
  config.proxy = proxy.address();
  const auto transport = transportTo(config);
  for (int i = 0; i < 3; ++i) {
    const auto response = transport->call(kGet, patient());
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->status, 200);
  }
  EXPECT_THAT(proxy.targets(), testing::Each("CONNECT api.test:6443"));
  ASSERT_EQ(server.requests().size(), 3U);
  EXPECT_EQ(server.requests()[0].target, "/prefix/x");
}

TEST(HttpProxy, TheServersCertificateIsStillVerified) {
  TestServer server(withTls(), answerOk);
  const Proxy proxy(server.port());
  KubeConfig config = configFor(server);
  config.proxy = proxy.address();
  config.server = "https://other.test:6443";
  EXPECT_EQ(transportTo(config)->call(kGet, patient()).status().code(),
            absl::StatusCode::kUnavailable);
  config.server = "https://api.test:6443";
  config.ca.value = TestAuthority("the wrong one").pem();
  EXPECT_EQ(transportTo(config)->call(kGet, patient()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(server.requests().empty());
}

TEST(HttpProxy, IsToldWhoAsks) {
  TestServer server(withTls(), answerOk);
  const Proxy proxy(server.port(), "YW5uOnBAc3M=");  // ann:p@ss
  KubeConfig config = configFor(server);
  config.server = "https://api.test:6443";
  config.proxy = proxy.address();
  const auto refused = transportTo(config)->call(kGet, patient());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("407"));
  config.proxy->user = "ann";
  config.proxy->password = "p@ss";
  const auto response = transportTo(config)->call(kGet, patient());
  ASSERT_TRUE(response.ok()) << response.status();
}

TEST(HttpProxy, OneThatIsNotThereIsAFailure) {
  TestServer server(withTls(), answerOk);
  KubeConfig config = configFor(server);
  {
    const Proxy gone(server.port());
    config.proxy = gone.address();
  }
  EXPECT_EQ(transportTo(config)->call(kGet, patient()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(server.requests().empty());
}

}  // namespace
}  // namespace trainyard::control
