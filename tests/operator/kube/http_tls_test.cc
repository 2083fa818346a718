// Who an HttpTransport speaks to, and as whom.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/operator/kube/http_fixture.h"

namespace trainyard::control {
namespace {

using testing::HasSubstr;

TEST(HttpTls, ShowsAClientCertificate) {
  TestServerOptions options = withTls();
  TestAuthority clients("for clients");
  options.client_authority = clients.pem();
  TestServer server(options, [](ServerConnection& peer, const SeenRequest& request) {
    return peer.respond(200, request.common_name);
  });
  KubeConfig config = configFor(server);
  const CertificateAndKey admin = clients.client("admin");
  config.client_cert.value = admin.cert;
  config.client_key.value = admin.key;
  const auto response = transportTo(config)->call(kGet, patient());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body, "admin");

  config.client_cert = config.client_key = {};
  EXPECT_EQ(transportTo(config)->call(kGet, patient()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(HttpTls, RefusesAServerOfAnotherAuthority) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest&) {
    return peer.respond(200, "{}");
  });
  KubeConfig config = configFor(server);
  config.ca.value = TestAuthority("the wrong one").pem();
  const Status wrong = transportTo(config)->call(kGet, patient()).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("certificate verify failed"));
  EXPECT_FALSE(maybeHappened(wrong));
  config.ca = {};  // the system's do not know it either
  EXPECT_FALSE(transportTo(config)->call(kGet, patient()).ok());
  EXPECT_TRUE(server.requests().empty()) << "not even the request was sent";
}

TEST(HttpTls, RefusesACertificateForAnotherName) {
  TestServerOptions options;
  options.certificate = authority().server({"api.test"});
  TestServer server(
      options, [](ServerConnection& peer, const SeenRequest&) { return peer.respond(200, "{}"); });
  KubeConfig config = configFor(server);
  EXPECT_FALSE(transportTo(config)->call(kGet, patient()).ok());
  config.tls_server_name = "other.test";
  EXPECT_FALSE(transportTo(config)->call(kGet, patient()).ok());
  EXPECT_TRUE(server.requests().empty());
  config.tls_server_name = "api.test";
  const auto response = transportTo(config)->call(kGet, patient());
  EXPECT_TRUE(response.ok()) << response.status();
}

// Whoever can end a connection could cut off an answer whose length nobody said.
TEST(HttpTls, AnEndThatIsNotSaidIsNoEnd) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest&) {
    peer.send("HTTP/1.1 200 x\r\nConnection: close\r\n\r\nhalf of it");
    return false;
  });
  const auto response = transportTo(configFor(server))->call(kGet, patient());
  EXPECT_EQ(response.status().code(), absl::StatusCode::kUnavailable) << response.status();
}

TEST(HttpTls, SaysWhichCertificateCannotBeRead) {
  KubeConfig config;
  config.server = "https://127.0.0.1:1";
  config.ca.value = "no certificate";
  const auto ca = makeHttpTransport(config, systemClock());
  EXPECT_EQ(ca.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ca.status().message()), HasSubstr("certificate authority"));

  config.ca.value = authority().pem();
  config.client_cert.value = authority().client("a").cert;
  config.client_key.value = authority().client("b").key;
  const auto key = makeHttpTransport(config, systemClock());
  EXPECT_THAT(std::string(key.status().message()), HasSubstr("client key"));

  config.client_cert = {"", "/nonexistent/tls.crt"};
  const auto missing = makeHttpTransport(config, systemClock());
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nonexistent/tls.crt"));
}

void writeText(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(HttpTls, TakesUpACertificateAuthorityThatWasReplaced) {
  TestAuthority next("the next one");
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest&) {
    peer.respond(200, "{}", "Connection: close\r\n");
    return false;
  });
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("trainyard-ca-{}", ::getpid());
  std::filesystem::create_directories(folder);
  KubeConfig config = configFor(server);
  config.ca = {"", folder / "ca.crt"};
  writeText(config.ca.file, authority().pem());
  HttpTransportOptions options;
  options.reread = Duration::zero();
  const auto transport = transportTo(config, options);
  EXPECT_TRUE(transport->call(kGet, patient()).ok());

  server.setCertificate(next.server({"127.0.0.1"}));
  EXPECT_FALSE(transport->call(kGet, patient()).ok());
  writeText(config.ca.file, "half a fi");
  EXPECT_FALSE(transport->call(kGet, patient()).ok()) << "the former one is kept meanwhile";
  writeText(config.ca.file, authority().pem() + next.pem());
  EXPECT_TRUE(transport->call(kGet, patient()).ok());
  server.setCertificate(authority().server({"127.0.0.1"}));
  EXPECT_TRUE(transport->call(kGet, patient()).ok()) << "both count during a rotation";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trainyard::control
