// Logs of pods, put together by time and followed over losses.
#include "cli/kube/pod_logs.h"

#include <atomic>

#include "cli/kube/cluster_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/fake_apiserver.h"

namespace trainyard::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(SplitStampTest, ReadsTimesOfNodes) {
  const auto nanos = [](std::string_view line) { return splitStamp(line).first; };
  constexpr std::int64_t kBase = 1'700'000'000'000'000'000;
  EXPECT_EQ(nanos("2023-11-14T22:13:20Z x"), kBase);
  EXPECT_EQ(nanos("2023-11-14T22:13:20.5Z x"), kBase + 500'000'000);
  EXPECT_EQ(nanos("2023-11-14T22:13:20.000000007Z x"), kBase + 7);
  EXPECT_EQ(nanos("2023-11-15T00:13:20.000000007+02:00 x"), kBase + 7);
  EXPECT_EQ(splitStamp("2023-11-14T22:13:20Z a b").second, "a b");
  EXPECT_EQ(splitStamp("2023-11-14T22:13:20Z ").second, "");
  EXPECT_EQ(splitStamp("no time here at all, only text"),
            std::pair(std::int64_t{0}, std::string_view("no time here at all, only text")));
  EXPECT_EQ(nanos("2023-11-14T22:13:20.5+zz:00 x"), 0);
}

class PodLogsTest : public FakeClusterTest {
 protected:
  void log(const std::string& task, const std::string& text) {
    server_.on(logOf(task), [text](const HttpRequest&) { return HttpResponse{200, {}, text}; });
  }
  static std::string logOf(const std::string& task) {
    return fmt::format("GET {}/fashion-{}/log", kPodsPath, task);
  }
  Status read(const LogRequest& request) {
    LogPrinter print;
    print.line = [this](const std::string& task, const std::string& line) {
      lines_.push_back(task + ": " + line);
    };
    print.flush = [] { return true; };
    return readPodLogs(*client_, systemClock(), clusterView(sampleJob()).value(), request, print);
  }
  std::vector<std::string> lines_;
};

TEST_F(PodLogsTest, ArePutTogetherByTime) {
  Json waiting = pod("worker-1", R"({"phase": "Pending"})");
  putPods({pod("worker-0", kReady), pod("ps-0", kDone), waiting});
  log("ps-0", "2023-11-14T22:13:20.1Z one\n2023-11-14T22:13:20.12Z two\nbelongs\n");
  log("worker-0", "2023-11-14T22:13:20.11Z middle\n2023-11-14T22:13:21Z half");
  ASSERT_TRUE(read({}).ok());
  EXPECT_THAT(lines_, ElementsAre("ps-0: one", "worker-0: middle", "ps-0: two", "ps-0: belongs",
                                  "worker-0: half"));
  const HttpRequest request = server_.requests(logOf("worker-0")).back();
  EXPECT_THAT(request.target, HasSubstr("container=task&timestamps=true"));
  lines_.clear();
  ASSERT_TRUE(read({"ps-0", 2, false}).ok());
  EXPECT_EQ(lines_.size(), 3u);
  EXPECT_THAT(server_.requests(logOf("ps-0")).back().target, HasSubstr("tailLines=2"));
  EXPECT_EQ(server_.requests(logOf("worker-0")).size(), 1u);
}

TEST_F(PodLogsTest, OneThatCannotBeReadDoesNotHideTheOthers) {
  putPods({pod("ps-0", kReady), pod("worker-0", kReady)});
  server_.refuse(logOf("ps-0"), 403, "Forbidden", "pods/log is forbidden");
  log("worker-0", "2023-11-14T22:13:20Z x\n");
  EXPECT_THAT(textOf(read({})), HasSubstr("pods/log is forbidden"));
  EXPECT_THAT(lines_, ElementsAre("worker-0: x"));
}

TEST_F(PodLogsTest, FollowingGoesOnOverLossesUntilTheJobIsOver) {
  putPods({pod("worker-0", kReady)});
  std::atomic<int> calls = 0;
  server_.on(logOf("worker-0"), [&](const HttpRequest& request) {
    switch (calls++) {
      case 0:  // the connection breaks in the middle of a line
        return HttpResponse{200, {{"X-Broken", "1"}}, "2023-11-14T22:13:20Z one\n2023-11-14T22:1"};
      case 1:  // what was read before comes again; then the container ends
        EXPECT_THAT(request.target, HasSubstr("sinceTime=2023-11-14T22%3A13%3A20Z"));
        EXPECT_THAT(request.target, Not(HasSubstr("tailLines")));
        putPods({pod("worker-0", kKilled)});
        return HttpResponse{200, {}, "2023-11-14T22:13:20Z one\n2023-11-14T22:13:21Z two\n"};
      default:  // its last words, then another pod takes its place
        putPods({pod("worker-0", kDone, "second")});
        log("worker-0", "2023-11-14T22:13:23Z anew\n");
        change([](Json& job) { job["status"]["state"] = "Succeeded"; });
        return HttpResponse{200, {}, "2023-11-14T22:13:22Z three\n"};
    }
  });
  ASSERT_TRUE(read({"", 10, true}).ok());
  EXPECT_THAT(lines_,
              ElementsAre("worker-0: one", "worker-0: two", "worker-0: three", "worker-0: anew"));
  EXPECT_THAT(server_.requests(logOf("worker-0")).front().target, HasSubstr("tailLines=10"));
}

TEST_F(PodLogsTest, AStreamThatIsForgottenIsCutOnceItsContainerHasEnded) {
  putPods({pod("worker-0", kReady)});
  std::atomic<int> calls = 0;
  server_.on(logOf("worker-0"), [&](const HttpRequest& request) {
    if (calls++ == 0) {
      EXPECT_THAT(request.target, HasSubstr("follow=true"));
      putPods({pod("worker-0", kDone)});
      return HttpResponse{200, {{"X-Forgotten", "1"}}, "2023-11-14T22:13:19Z first words\n"};
    }
    EXPECT_THAT(request.target, Not(HasSubstr("follow")));
    change([](Json& job) { job["status"]["state"] = "Succeeded"; });
    return HttpResponse{200, {}, "2023-11-14T22:13:20Z last words\n"};
  });
  ASSERT_TRUE(read({"", std::nullopt, true}).ok());
  EXPECT_THAT(lines_, ElementsAre("worker-0: first words", "worker-0: last words"));
}

TEST_F(PodLogsTest, FollowingEndsWithAJobThatIsGone) {
  putPods({});
  server_.refuse(std::string("GET ") + kJobPath, 404, "NotFound", "not found");
  EXPECT_TRUE(read({"", std::nullopt, true}).ok());
  EXPECT_THAT(lines_, testing::IsEmpty());
}

TEST_F(PodLogsTest, FollowingEndsWithARefusal) {
  putPods({pod("worker-0", kReady)});
  server_.refuse(logOf("worker-0"), 403, "Forbidden", "pods/log is forbidden");
  EXPECT_THAT(textOf(read({"", std::nullopt, true})), HasSubstr("pods/log is forbidden"));
}

}  // namespace
}  // namespace trainyard::cli
