// What every HttpTransport has to be able to do, against a server that does what servers do on bad
// days.
#include "operator/kube/http_transport.h"

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/kube/lines.h"
#include "tests/operator/kube/test_server.h"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Bounds against hangs: nothing here takes so long.
HttpLimits patient() {
  return {.deadline = seconds(60), .inactivity = seconds(60), .max_body = 1 << 24, .stop = {}};
}
HttpLimits silentFor(Duration limit) {
  HttpLimits limits = patient();
  limits.inactivity = limit;
  return limits;
}

// A one-shot signal.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  bool wait(Duration limit = seconds(30)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

TestAuthority& authority() {
  static TestAuthority one("the right one");
  return one;
}

TestServerOptions withTls() {
  TestServerOptions options;
  options.certificate = authority().server({"127.0.0.1", "::1", "api.test"});
  return options;
}

KubeConfig configFor(const TestServer& server) {
  KubeConfig config;
  config.server = server.url();
  config.ca.value = authority().pem();
  return config;
}

std::unique_ptr<HttpTransport> transportTo(const KubeConfig& config,
                                           HttpTransportOptions options = {}) {
  auto transport = makeHttpTransport(config, systemClock(), options);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return transport.ok() ? *std::move(transport) : nullptr;
}

const HttpRequest kGet{"GET", "/x", {}, ""};

bool takeAnything(const HttpResponse&) {
  return true;
}
bool ignoreData(std::string_view) {
  return true;
}

TEST(HttpTransport, CarriesARequestAndItsAnswer) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest& request) {
    return peer.respond(422, "{\"you\": \"said " + request.body + "\"}", "X-Word: some \r\n");
  });
  const auto transport = transportTo(configFor(server));
  const auto response =
      transport->call({"PATCH",
                       "/api/v1/pods?labelSelector=a%3Db%2Cc&limit=5",
                       {{"Content-Type", "application/merge-patch+json"}, {"User-Agent", "test/1"}},
                       "{\"a\":1}"},
                      patient());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 422);
  EXPECT_EQ(response->body, "{\"you\": \"said {\"a\":1}\"}");
  EXPECT_EQ(response->header("x-word"), "some");
  EXPECT_EQ(response->header("absent"), "");
  const SeenRequest seen = server.requests().at(0);
  EXPECT_EQ(seen.method, "PATCH");
  EXPECT_EQ(seen.target, "/api/v1/pods?labelSelector=a%3Db%2Cc&limit=5");
  EXPECT_EQ(seen.headers.at("content-type"), "application/merge-patch+json");
  EXPECT_EQ(seen.headers.at("user-agent"), "test/1");
  EXPECT_EQ(seen.headers.at("content-length"), "7");
}

TEST(HttpTransport, GoesBelowThePathOfTheServer) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest&) {
    return peer.respond(200, "{}");
  });
  KubeConfig config = configFor(server);
  config.server += "/k8s/clusters/c-1/";
  ASSERT_TRUE(transportTo(config)->call({"GET", "/api/v1/pods?limit=5", {}, ""}, patient()).ok());
  EXPECT_EQ(server.requests().at(0).target, "/k8s/clusters/c-1/api/v1/pods?limit=5");
}

TEST(HttpTransport, UsesAConnectionAgainAndRepeatsARequestOnOneThatWasClosed) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest& request) {
    peer.respond(200, "{}");
    return request.target != "/last";
  });
  const auto transport = transportTo(configFor(server));
  for (const char* target : {"/1", "/2", "/last", "/4"}) {
    const auto response = transport->call({"GET", target, {}, ""}, patient());
    ASSERT_TRUE(response.ok()) << target << ": " << response.status();
  }
  EXPECT_EQ(server.connections(), 2);
}

TEST(HttpTransport, AnswersWithoutABody) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest&) {
    return peer.send("HTTP/1.1 204 No Content\r\n\r\n");
  });
  const auto response = transportTo(configFor(server))->call({"DELETE", "/x", {}, ""}, patient());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 204);
  EXPECT_EQ(response->body, "");
}

TEST(HttpTransport, HandsOnWhatArrivesAlsoCutInsideACharacter) {
  Signal first_seen;
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest&) {
    // U+00FC is C3 BC.
    peer.beginChunks();
    peer.chunk("{\"name\": \"gr\xC3");
    if (!first_seen.wait()) return false;
    peer.chunk("\xBCn\"}\n{\"second\":");
    peer.chunk(" true}\n");
    return peer.endChunks();
  });
  const auto transport = transportTo(configFor(server));
  std::vector<std::string> lines;
  internal::LineSplitter splitter(1000);
  const Status status =
      transport->stream(kGet, patient(), takeAnything, [&](std::string_view data) {
        first_seen.set();
        return splitter
            .push(data,
                  [&](std::string_view line) {
                    lines.emplace_back(line);
                    return absl::OkStatus();
                  })
            .ok();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(lines, ElementsAre("{\"name\": \"gr\xC3\xBCn\"}", "{\"second\": true}"));
}

TEST(HttpTransport, AQuietStreamLasts) {
  Signal head_seen;
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest&) {
    peer.beginChunks();
    Signal never;
    head_seen.wait();
    never.wait(milliseconds(500));  // quiet for some time
    peer.chunk("late\n");
    return peer.endChunks();
  });
  std::string all;
  const Status status = transportTo(configFor(server))
                            ->stream(
                                kGet, silentFor(seconds(30)),
                                [&](const HttpResponse& head) {
                                  EXPECT_EQ(head.status, 200);
                                  head_seen.set();
                                  return true;
                                },
                                [&](std::string_view data) {
                                  all += data;
                                  return true;
                                });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(all, "late\n");
}

TEST(HttpTransport, GivesUpAConnectionOnWhichNothingComes) {
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest&) {
    peer.beginChunks();
    peer.chunk("one\n");
    peer.waitGone();
    return false;
  });
  std::string all;
  const Status status =
      transportTo(configFor(server))
          ->stream(kGet, silentFor(milliseconds(400)), takeAnything, [&](std::string_view data) {
            all += data;
            return true;
          });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing heard for 0.4 s"));
  EXPECT_TRUE(maybeHappened(status));
}

TEST(HttpTransport, GivesUpAServerThatOnlyAccepts) {
  // Its threads are busy, or it is a half of a connection whose other half has gone.
  TestServer server({}, [](ServerConnection& peer, const SeenRequest&) { return false; });
  KubeConfig config = configFor(server);
  config.server = fmt::format("https://127.0.0.1:{}", server.port());
  const auto response = transportTo(config)->call(kGet, silentFor(milliseconds(400)));
  EXPECT_EQ(response.status().code(), absl::StatusCode::kDeadlineExceeded) << response.status();
  EXPECT_FALSE(maybeHappened(response.status()));
}

TEST(HttpTransport, ADeadlineEndsAStreamThatIsNeverSilent) {
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest&) {
    peer.beginChunks();
    Signal never;
    while (peer.chunk("x")) never.wait(milliseconds(10));
    return false;
  });
  HttpLimits limits = patient();
  limits.deadline = milliseconds(500);
  const Status status =
      transportTo(configFor(server))->stream(kGet, limits, takeAnything, ignoreData);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not done within 0.5 s"));
}

TEST(HttpTransport, IsCancelledBeforeTheHeadAndAfter) {
  Signal arrived;
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest& request) {
    if (request.target == "/head") peer.beginChunks();
    arrived.set();
    peer.waitGone();
    return false;
  });
  for (const char* target : {"/nothing", "/head"}) {
    std::stop_source stop;
    HttpLimits limits = patient();
    limits.stop = stop.get_token();
    std::thread canceller([&] {
      arrived.wait();
      stop.request_stop();
    });
    const Status status = transportTo(configFor(server))
                              ->stream({"GET", target, {}, ""}, limits, takeAnything, ignoreData);
    canceller.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  }
}

TEST(HttpTransport, IsCancelledAtAnyMoment) {
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest&) {
    peer.beginChunks();
    while (peer.chunk("some data that goes on and on\n")) {
    }
    return false;
  });
  const auto transport = transportTo(configFor(server));
  for (int i = 0; i < 40; ++i) {
    std::stop_source stop;
    HttpLimits limits = patient();
    limits.stop = stop.get_token();
    std::thread canceller([&] {
      Signal never;
      never.wait(std::chrono::microseconds(150 * i));
      stop.request_stop();
    });
    const Status status = transport->stream(kGet, limits, takeAnything, ignoreData);
    canceller.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << i << ": " << status;
  }
}

TEST(HttpTransport, EndsWhenTheReaderHasEnough) {
  Signal gone;
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest&) {
    peer.beginChunks();
    peer.chunk("one\n");
    peer.waitGone();
    gone.set();
    return false;
  });
  const auto transport = transportTo(configFor(server));
  const Status status =
      transport->stream(kGet, patient(), takeAnything, [](std::string_view) { return false; });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(gone.wait()) << "the connection is closed";
}

TEST(HttpTransport, ASlowReaderHoldsTheServerBack) {
  std::atomic<std::size_t> sent{0};
  const std::string piece(1 << 16, 'x');
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest&) {
    peer.beginChunks();
    while (sent < (std::size_t{512} << 20) && peer.chunk(piece)) sent += piece.size();
    return false;
  });
  Signal never;
  const Status status =
      transportTo(configFor(server))->stream(kGet, patient(), takeAnything, [&](std::string_view) {
        never.wait(milliseconds(1500));
        return false;
      });
  EXPECT_TRUE(status.ok()) << status;
  // A megabyte of ours, and what the kernel holds for both ends.
  EXPECT_LT(sent, std::size_t{48} << 20);
}

TEST(HttpTransport, BoundsABody) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest&) {
    return peer.respond(200, std::string(100'000, 'x'));
  });
  const auto transport = transportTo(configFor(server));
  HttpLimits limits = patient();
  limits.max_body = 99'999;
  EXPECT_EQ(transport->call(kGet, limits).status().code(), absl::StatusCode::kResourceExhausted);
  limits.max_body = 100'000;
  EXPECT_TRUE(transport->call(kGet, limits).ok());
}

TEST(HttpTransport, SaysWhetherALostRequestMayHaveBeenCarriedOut) {
  auto server = std::make_unique<TestServer>(
      withTls(), [](ServerConnection&, const SeenRequest&) { return false; });
  const auto transport = transportTo(configFor(*server));
  const auto lost = transport->call({"POST", "/x", {}, "{}"}, patient());
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable) << lost.status();
  EXPECT_TRUE(maybeHappened(lost.status()));
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr(server->url()));

  server.reset();
  const auto refused = transport->call({"POST", "/x", {}, "{}"}, patient());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
  EXPECT_FALSE(maybeHappened(refused.status()));
}

TEST(HttpTransport, AnAnswerThatIsCutOffIsAFailure) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest& request) {
    if (request.target == "/chunks") {
      peer.beginChunks();
      peer.chunk("one\n");
      peer.send("5\r\nab");
    } else {
      peer.send("HTTP/1.1 200 x\r\nContent-Length: 10\r\n\r\n12345");
    }
    return false;
  });
  const auto transport = transportTo(configFor(server));
  for (const char* target : {"/chunks", "/length"}) {
    const auto response = transport->call({"GET", target, {}, ""}, patient());
    EXPECT_EQ(response.status().code(), absl::StatusCode::kUnavailable) << target;
  }
}

TEST(HttpTransport, AnAnswerThatIsNoHttpIsAFailure) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest&) {
    peer.send("SSH-2.0-OpenSSH\r\n\r\n");
    return false;
  });
  const auto response = transportTo(configFor(server))->call(kGet, patient());
  EXPECT_EQ(response.status().code(), absl::StatusCode::kUnavailable) << response.status();
}

TEST(HttpTransport, ManyCallAtOnce) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest& request) {
    return peer.respond(200, request.target);
  });
  const auto transport = transportTo(configFor(server));
  std::atomic<int> right{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 6; ++c) {
    callers.emplace_back([&, c] {
      for (int i = 0; i < 25; ++i) {
        const std::string target = fmt::format("/{}/{}", c, i);
        const auto response = transport->call({"GET", target, {}, ""}, patient());
        right += response.ok() && response->body == target;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(right, 150);
}

TEST(HttpTransport, ReachesAnIpv6Address) {
  TestServerOptions options = withTls();
  options.address = "::1";
  TestServer server(
      options, [](ServerConnection& peer, const SeenRequest&) { return peer.respond(200, "six"); });
  if (server.port() == 0) GTEST_SKIP() << "this machine has no IPv6 loopback";
  EXPECT_THAT(server.url(), HasSubstr("[::1]"));
  const auto transport = transportTo(configFor(server));
  for (int i = 0; i < 2; ++i) {
    const auto response = transport->call(kGet, patient());
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->body, "six");
  }
  EXPECT_EQ(server.connections(), 1);
}

// The hexadecimal port of an address in /proc/net/tcp.
std::string portOf(std::string_view address) {
  return std::string(splitFirst(address, ':').second);
}

TEST(HttpTransport, ProbesASilentConnection) {
  Signal arrived;
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest&) {
    peer.beginChunks();
    arrived.set();
    peer.waitGone();
    return false;
  });
  std::stop_source stop;
  std::vector<std::string> timers;
  std::thread observer([&] {
    arrived.wait();
    const std::string port = fmt::format("{:04X}", server.port());
    const TimePoint end = systemClock().now() + seconds(20);
    // What has just been sent is acknowledged first; then the keepalive timer, 02, runs.
    while (timers != std::vector<std::string>{"02"} && systemClock().now() < end) {
      timers.clear();
      std::ifstream table("/proc/self/net/tcp");
      for (std::string line; std::getline(table, line);) {
        std::vector<std::string> words;
        for (const std::string_view word : split(line, ' ')) {
          if (!word.empty()) words.emplace_back(word);
        }
        if (words.size() < 6 || portOf(words[2]) != port || words[3] != "01") continue;
        timers.push_back(words[5].substr(0, 2));
      }
    }
    stop.request_stop();
  });
  HttpLimits limits = patient();
  limits.stop = stop.get_token();
  const Status status =
      transportTo(configFor(server))->stream(kGet, limits, takeAnything, ignoreData);
  observer.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(timers, ElementsAre("02"));
}

TEST(HttpTransport, ShowsAClientCertificate) {
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

TEST(HttpTransport, RefusesAServerOfAnotherAuthority) {
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

TEST(HttpTransport, RefusesACertificateForAnotherName) {
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

TEST(HttpTransport, SaysWhichCertificateCannotBeRead) {
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

TEST(HttpTransport, TakesUpACertificateAuthorityThatWasReplaced) {
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
