#include "base/http/http_server.h"

#include <unistd.h>

#include "base/http/metrics.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "httplib.h"
#include "prometheus/counter.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::Not;

StatusOr<std::unique_ptr<HttpServer>> serve(const std::string& address, int port) {
  return HttpServer::start(address, port,
                           {{"/ok", [] { return HttpReply{.body = "fine\n"}; }},
                            {"/ok?twice", [] { return HttpReply{.body = "fine, fine\n"}; }},
                            {"/asked?how", [] { return HttpReply{.body = "so\n"}; }},
                            {"/not", [] { return HttpReply{.code = 503, .body = "not yet\n"}; }}});
}

TEST(HttpServer, ServesItsPathsAndNothingElse) {
  const auto server = serve("127.0.0.1", 0);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_GT((*server)->port(), 0);
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto ok = client.Get("/ok");
  ASSERT_TRUE(ok);
  EXPECT_EQ(ok->status, 200);
  EXPECT_EQ(ok->body, "fine\n");
  EXPECT_EQ(client.Get("/not")->status, 503);
  EXPECT_EQ(client.Get("/other")->status, 404);
  EXPECT_EQ(client.Post("/ok", "x", "text/plain")->status, 404);
}

TEST(HttpServer, APathIsAnotherWithItsParameter) {
  const auto server = serve("127.0.0.1", 0);
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client("127.0.0.1", (*server)->port());
  EXPECT_EQ(client.Get("/ok?twice")->body, "fine, fine\n");
  EXPECT_EQ(client.Get("/ok?twice=1")->body, "fine, fine\n");
  EXPECT_EQ(client.Get("/ok?thrice")->body, "fine\n");
  EXPECT_EQ(client.Get("/asked?how")->body, "so\n");
  EXPECT_EQ(client.Get("/asked")->status, 404);
}

TEST(HttpServer, RefusesATakenPort) {
  auto first = serve("127.0.0.1", 0);
  ASSERT_TRUE(first.ok());
  const int port = (*first)->port();
  const Status second = serve("127.0.0.1", port).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.message()), HasSubstr(fmt::format("127.0.0.1:{}", port)));
  first->reset();
  EXPECT_TRUE(serve("127.0.0.1", port).ok()) << "free again once the first has ended";
}

TEST(HttpServer, StopsRightAfterItsStart) {
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(serve("127.0.0.1", 0).ok());
}

TEST(MetricsPage, ShowsEachFamilyOnce) {
  MetricsPage page;
  addBuildInfo(page.registry(), "1.2.3", "abc");
  prometheus::BuildCounter().Name("things_total").Help("Things.").Register(page.registry()).Add({});
  page.add(makeProcessMetrics());
  const HttpReply reply = page.render();
  EXPECT_THAT(reply.content_type, HasSubstr("version=0.0.4"));
  EXPECT_THAT(reply.body, HasSubstr("trainyard_build_info{"));
  EXPECT_THAT(reply.body, HasSubstr("version=\"1.2.3\""));
  EXPECT_THAT(reply.body, HasSubstr("things_total 0"));
  for (const char* name : {"process_cpu_seconds_total", "process_resident_memory_bytes",
                           "process_open_fds", "process_max_fds", "process_start_time_seconds"}) {
    const std::string type = fmt::format("# TYPE {} ", name);
    const std::size_t first = reply.body.find(type);
    ASSERT_NE(first, std::string::npos) << name;
    EXPECT_EQ(reply.body.find(type, first + 1), std::string::npos) << name;
  }
}

double valueOf(const std::string& page, const std::string& metric) {
  const std::size_t at = page.find("\n" + metric + " ");
  return at == std::string::npos ? -1 : std::stod(page.substr(at + metric.size() + 2));
}

TEST(ProcessMetrics, AreOfThisProcess) {
  MetricsPage page;
  page.add(makeProcessMetrics());
  const std::string before = page.render().body;
  EXPECT_GT(valueOf(before, "process_resident_memory_bytes"), 1e6);
  EXPECT_GT(valueOf(before, "process_start_time_seconds"), 1.5e9);
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  EXPECT_EQ(valueOf(page.render().body, "process_open_fds"),
            valueOf(before, "process_open_fds") + 2);
  ::close(fds[0]);
  ::close(fds[1]);
}

}  // namespace
}  // namespace trainyard
