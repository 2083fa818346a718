// Token, metrics, Lease objects; and the parts put together, against a server.
#include "operator/kube/connection.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/kube/client.h"
#include "operator/kube/lease_store.h"
#include "prometheus/text_serializer.h"
#include "tests/operator/kube/fake_transport.h"
#include "tests/operator/kube/test_server.h"

namespace trainyard::control {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

class TokenTest : public testing::Test {
 protected:
  TokenTest() {
    std::filesystem::create_directories(folder_);
    write("first\n");
  }
  ~TokenTest() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& text) { std::ofstream(file_) << text; }

  std::unique_ptr<HttpTransport> make(KubeSecret secret) {
    auto fake = std::make_unique<FakeTransport>([this](const HttpRequest& request) {
      std::string token;
      for (const auto& [name, value] : request.headers) {
        if (name == "Authorization") token = value;
      }
      tokens_.push_back(token);
      const bool good = accepted_.empty() || token == "Bearer " + accepted_;
      return HttpResponse{.status = good ? 200 : 401, .headers = {}, .body = "{}"};
    });
    return addToken(std::move(fake), std::move(secret), clock_, seconds(60));
  }
  int call(HttpTransport& transport) {
    const auto response = transport.call({"GET", "/x", {}, ""}, {});
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->status : 0;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("trainyard-token-{}", ::getpid());
  const std::filesystem::path file_ = folder_ / "token";
  FakeClock clock_;
  std::string accepted_;
  std::vector<std::string> tokens_;
};

TEST_F(TokenTest, IsReadAgainAfterAWhile) {
  const auto transport = make({"", file_});
  EXPECT_EQ(call(*transport), 200);
  write("second");
  clock_.advance(seconds(59));
  EXPECT_EQ(call(*transport), 200);
  clock_.advance(seconds(2));
  EXPECT_EQ(call(*transport), 200);
  EXPECT_THAT(tokens_, ElementsAre("Bearer first", "Bearer first", "Bearer second"));
}

TEST_F(TokenTest, IsReadAgainWhenItIsNotAcceptedAndTriedOnce) {
  const auto transport = make({"", file_});
  EXPECT_EQ(call(*transport), 200);
  accepted_ = "second";
  EXPECT_EQ(call(*transport), 401) << "the file has nothing new";
  write("second");
  EXPECT_EQ(call(*transport), 200);
  EXPECT_THAT(tokens_,
              ElementsAre("Bearer first", "Bearer first", "Bearer first", "Bearer second"));
}

TEST_F(TokenTest, AStreamIsTriedOnceMore) {
  const auto transport = make({"", file_});
  EXPECT_EQ(call(*transport), 200);
  write("second");
  accepted_ = "second";
  std::vector<int> heads;
  std::string body;
  EXPECT_TRUE(transport
                  ->stream(
                      {"GET", "/x", {}, ""}, {},
                      [&](const HttpResponse& head) {
                        heads.push_back(head.status);
                        return true;
                      },
                      [&](std::string_view data) {
                        body += data;
                        return true;
                      })
                  .ok());
  EXPECT_THAT(heads, ElementsAre(200));
  EXPECT_EQ(body, "{}");
}

TEST_F(TokenTest, AFormerTokenIsKeptWhileTheFileCannotBeRead) {
  const auto transport = make({"", file_});
  EXPECT_EQ(call(*transport), 200);
  std::filesystem::remove(file_);
  clock_.advance(seconds(61));
  EXPECT_EQ(call(*transport), 200);
  EXPECT_EQ(tokens_.back(), "Bearer first");
  const auto none = make({"", file_})->call({"GET", "/x", {}, ""}, {});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument) << none.status();
}

TEST_F(TokenTest, OneThatStandsInTheConfigurationStays) {
  const auto transport = make({"fixed", {}});
  accepted_ = "other";
  EXPECT_EQ(call(*transport), 401);
  EXPECT_THAT(tokens_, ElementsAre("Bearer fixed"));
}

TEST(Metrics, CountRequestsByCodeMethodAndHost) {
  prometheus::Registry registry;
  FakeClock clock;
  int status = 200;
  auto transport =
      addMetrics(std::make_unique<FakeTransport>([&](const HttpRequest&) -> StatusOr<HttpResponse> {
                   clock.advance(std::chrono::milliseconds(300));
                   if (status == 0) return absl::UnavailableError("gone");
                   return HttpResponse{.status = status, .headers = {}, .body = ""};
                 }),
                 "1.2.3.4:443", clock, registry);
  const auto call = [&](const std::string& method, int answer) {
    status = answer;
    EXPECT_EQ(transport->call({method, "/x", {}, ""}, {}).ok(), answer != 0);
  };
  call("GET", 200);
  call("GET", 200);
  call("POST", 409);
  call("GET", 0);
  status = 200;
  EXPECT_TRUE(transport
                  ->stream(
                      {"GET", "/watch", {}, ""}, {}, [](const HttpResponse&) { return true; },
                      [](std::string_view) { return true; })
                  .ok());
  const std::string page = prometheus::TextSerializer().Serialize(registry.Collect());
  const auto line = [](const char* code, const char* method, int count) {
    return fmt::format(
        "rest_client_requests_total{{code=\"{}\",host=\"1.2.3.4:443\",method=\"{}\"}} {}\n", code,
        method, count);
  };
  EXPECT_THAT(page, HasSubstr(line("200", "GET", 3)));
  EXPECT_THAT(page, HasSubstr(line("409", "POST", 1)));
  EXPECT_THAT(page, HasSubstr(line("<error>", "GET", 1)));
  EXPECT_THAT(page, HasSubstr("rest_client_request_duration_seconds_count{host=\"1.2.3.4:443\","
                              "verb=\"GET\"} 4"));
  EXPECT_THAT(page, HasSubstr("le=\"0.25\"} 0"));
}

TEST(LeaseObject, IsARecordAndBack) {
  LeaseRecord record;
  record.holder = "me";
  record.duration_seconds = 15;
  record.acquired = 1'700'000'000'123;
  record.renewed = 1'700'000'001'456;
  record.transitions = 3;
  record.resource_version = "88";
  const nlohmann::json lease = toLease(record, "ns", "leader");
  EXPECT_EQ(lease["spec"]["renewTime"], "2023-11-14T22:13:21.456000Z");
  EXPECT_EQ(lease["metadata"]["namespace"], "ns");
  const auto back = fromLease(lease);
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(isSameRenewal(*back, record));
  EXPECT_EQ(back->resource_version, "88");

  record.holder = "";
  EXPECT_FALSE(toLease(record, "ns", "leader")["spec"].contains("holderIdentity"));
  const auto bare = fromLease({{"metadata", {{"resourceVersion", "1"}}}, {"spec", nullptr}});
  ASSERT_TRUE(bare.ok());
  EXPECT_EQ(bare->holder, "");
  EXPECT_FALSE(fromLease({{"metadata", nlohmann::json::object()}}).ok());
}

TEST(Connection, PutsThePartsTogether) {
  TestAuthority authority("the authority");
  TestServerOptions options;
  options.certificate = authority.server({"127.0.0.1"});
  std::atomic<int> asked{0};
  TestServer server(options, [&](ServerConnection& peer, const SeenRequest& request) {
    if (request.headers.at("authorization") != "Bearer good") {
      return peer.respond(401, R"({"kind":"Status","code":401,"reason":"Unauthorized"})");
    }
    if (request.target.find("watch=true") != std::string::npos) {
      peer.beginChunks();
      peer.chunk(R"({"type":"ADDED","object":{"metadata":{"name":"p"}}})"
                 "\n");
      peer.chunk(R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
                 "\n");
      return peer.endChunks();
    }
    if (++asked == 1) {
      return peer.respond(429, R"({"kind":"Status","code":429})", "Retry-After: 1\r\n");
    }
    return peer.respond(200, R"({"metadata":{"name":"p"}})");
  });
  KubeConfig config;
  config.server = server.url();
  config.ca.value = authority.pem();
  config.token.value = "good";
  prometheus::Registry registry;
  ConnectionOptions how;
  how.registry = &registry;
  const auto transport = connectTo(config, systemClock(), how);
  ASSERT_TRUE(transport.ok()) << transport.status();
  KubeClient client(**transport, systemClock(), {});
  const auto pod = client.get(kPods, "ns", "p");
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(asked, 2);
  int events = 0;
  const Status watched = client.watch(kPods, {}, {"1", seconds(100), {}}, [&](const WatchEvent&) {
    ++events;
    return true;
  });
  EXPECT_EQ(watched.code(), absl::StatusCode::kOutOfRange) << watched;
  EXPECT_EQ(events, 1);

  config.token.value = "bad";
  const auto stranger = connectTo(config, systemClock(), how);
  ASSERT_TRUE(stranger.ok());
  KubeClient refused(**stranger, systemClock(), {});
  EXPECT_EQ(refused.get(kPods, "ns", "p").status().code(), absl::StatusCode::kUnauthenticated);
  const std::string page = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_THAT(page, HasSubstr("code=\"429\""));
  EXPECT_THAT(page, HasSubstr("code=\"401\""));
}

}  // namespace
}  // namespace trainyard::control
