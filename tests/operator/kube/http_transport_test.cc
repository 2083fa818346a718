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
#include "tests/operator/kube/http_fixture.h"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(HttpTransport, CarriesMoreThanASocketHolds) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest& request) {
    return peer.respond(200, request.body);
  });
  std::string body(std::size_t{12} << 20, 'x');
  for (std::size_t i = 0; i < body.size(); i += 97) body[i] = static_cast<char>('a' + i % 26);
  const auto response = transportTo(configFor(server))->call({"POST", "/x", {}, body}, patient());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(response->body == body);
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
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr("the connection was closed"));

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

TEST(HttpTransport, SomeCallsWaitForOthers) {
  std::atomic<int> inside{0}, most{0};
  Signal go_on;
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest& request) {
    most = std::max(most.load(), ++inside);
    if (request.target == "/slow") go_on.wait();
    --inside;
    return peer.respond(200, "{}");
  });
  HttpTransportOptions options;
  options.connections = 2;
  const auto transport = transportTo(configFor(server), options);
  std::atomic<int> done{0};
  const auto call = [&](const char* target) {
    done += transport->call({"GET", target, {}, ""}, patient()).ok();
  };
  std::thread first(call, "/slow"), second(call, "/slow");
  while (inside < 2) std::this_thread::yield();
  HttpLimits limits = patient();
  limits.deadline = milliseconds(100);
  const Status late = transport->call(kGet, limits).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_FALSE(maybeHappened(late));
  std::thread third(call, "/quick"), fourth(call, "/quick");
  const Status streamed = transport->stream(kGet, patient(), takeAnything, ignoreData);
  EXPECT_TRUE(streamed.ok()) << "a stream does not wait: " << streamed;
  go_on.set();
  for (std::thread* one : {&first, &second, &third, &fourth}) one->join();
  EXPECT_EQ(done, 4);
  EXPECT_LE(most, 3);
}

TEST(HttpTransport, ReachesAServerByItsNameOrNotAtAll) {
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest& request) {
    return peer.respond(200, request.headers.at("host"));
  });
  KubeConfig config = configFor(server);
  config.server = fmt::format("https://localhost:{}", server.port());
  config.tls_server_name = "api.test";
  const auto response = transportTo(config)->call(kGet, patient());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body, "api.test");
  // Longer than a label may be: no name server is asked for it.
  config.server = fmt::format("https://{}.test:6443", std::string(64, 'n'));
  const Status status = transportTo(config)->call(kGet, patient()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_FALSE(maybeHappened(status));
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

}  // namespace
}  // namespace trainyard::control
