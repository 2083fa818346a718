#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <set>
#include <string>

#include "base/rpc/channel.h"
#include "base/rpc/token.h"
#include "base/security/job_keys.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/operator/progress/fake_agents.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::control {
namespace {

TEST_F(GrpcProgressTest, CollectsTheTasksAndTheCoordinatorsWord) {
  sayStep(ps_, 40);
  poll();
  const JobReport report = progress_.newest(kJob);
  EXPECT_EQ(report.tasks.size(), 2u);
  ASSERT_TRUE(report.progress.has_value());
  EXPECT_EQ(report.progress->step(), 40);
  EXPECT_EQ(report.progress_created, 1u);
}

TEST_F(GrpcProgressTest, TellsOfChangesOnly) {
  poll();
  EXPECT_EQ(changes_, 1);
  poll();
  EXPECT_EQ(changes_, 1);
  sayStep(ps_, 41);
  poll();
  EXPECT_EQ(changes_, 2);
}

TEST_F(GrpcProgressTest, LastWordStaysWhenTheAgentIsGone) {
  sayStep(ps_, 1000, "succeeded");
  poll();
  directory_.set({worker_.endpoint()});
  poll();
  EXPECT_EQ(progress_.newest(kJob).progress->outcome(), "succeeded");
}

TEST_F(GrpcProgressTest, LaterLifeOutweighsAnEarlierOne) {
  sayStep(ps_, 90, "stopped");
  poll();
  FakeAgent next(kPs0, 2);
  sayStep(next, 91);
  directory_.set({next.endpoint(), worker_.endpoint()});
  poll();
  EXPECT_EQ(progress_.newest(kJob).progress_created, 2u);
  EXPECT_EQ(progress_.newest(kJob).progress->outcome(), "");
}

TEST_F(GrpcProgressTest, AnswerOfAnotherLifeIsNotHeard) {
  AgentEndpoint stale = ps_.endpoint();
  stale.created = 7;
  sayStep(ps_, 5);
  directory_.set({stale});
  poll();
  EXPECT_TRUE(progress_.newest(kJob).tasks.empty());
}

TEST_F(GrpcProgressTest, PushesTheMembershipUntilItIsThere) {
  progress_.follow(kJob, "uid", wish(3, false));
  poll();
  EXPECT_EQ(ps_.pushed(), 3);
  EXPECT_EQ(worker_.pushed(), 3);
  poll();
  poll();
  EXPECT_EQ(ps_.pushes(), 1);
}

TEST_F(GrpcProgressTest, AsksTheCoordinatorToStopUntilItHas) {
  sayStep(ps_, 5);
  progress_.follow(kJob, "uid", wish(1, true));
  poll();
  poll();
  EXPECT_EQ(ps_.stops(), 2);
  EXPECT_GT(ps_.stopSeconds(), 500);
  EXPECT_LT(ps_.stopSeconds(), 600) << "what is left";
  sayStep(ps_, 6, "stopped");
  poll();
  EXPECT_EQ(ps_.stops(), 2);
  EXPECT_EQ(worker_.stops(), 0);
}

TEST_F(GrpcProgressTest, TellsThatTheTimeToStopIsOver) {
  sayStep(ps_, 5);
  JobWish late = wish(1, true);
  late.stop_by = systemClock().now() - std::chrono::seconds(1);
  progress_.follow(kJob, "uid", late);
  poll();
  EXPECT_EQ(ps_.stops(), 1);
  EXPECT_EQ(ps_.stopSeconds(), 0);
}

TEST_F(GrpcProgressTest, SilentAgentIsNoFailure) {
  AgentEndpoint nobody{kWorker0, 1, "127.0.0.1:1"};
  sayStep(ps_, 5);
  directory_.set({nobody, ps_.endpoint()});
  poll();
  EXPECT_EQ(progress_.newest(kJob).tasks.size(), 1u);
}

TEST_F(GrpcProgressTest, AgentsThatAreSilentForLongAreReportedWithTheReason) {
  GrpcProgress progress(directory_, {.timeout = std::chrono::seconds(1), .unreachable_after = {}});
  progress.follow(kJob, "uid", {});
  const AgentEndpoint nobody{kWorker0, 1, "127.0.0.1:1"};
  AgentEndpoint other = ps_.endpoint();
  other.created += 1;  // its former life answers there
  directory_.set({other, nobody});
  ASSERT_TRUE(progress.pollOnce(kJob).ok());
  auto silent = progress.newest(kJob).unreachable;
  ASSERT_EQ(silent.size(), 2u);
  EXPECT_EQ(progress.unreachable(), 2u);
  EXPECT_EQ(silent[kPs0].why.reason, "OtherAnswer");
  EXPECT_EQ(silent[kPs0].created, other.created);
  EXPECT_EQ(silent[kWorker0].why.reason, "ConnectionFailed");
  EXPECT_THAT(silent[kWorker0].why.message, testing::HasSubstr("worker-0 at 127.0.0.1:1"));
  directory_.set({ps_.endpoint()});
  ASSERT_TRUE(progress.pollOnce(kJob).ok());
  EXPECT_TRUE(progress.newest(kJob).unreachable.empty()) << "one answers, the other is gone";
  EXPECT_EQ(progress.unreachable(), 0u);
}

TEST_F(GrpcProgressTest, AnAgentThatDoesNotKnowUsIsReportedAsThat) {
  directory_.setToken(std::string(64, 'b'));
  GrpcProgress progress(directory_, {.timeout = std::chrono::seconds(20), .unreachable_after = {}});
  progress.follow(kJob, "uid", {});
  ASSERT_TRUE(progress.pollOnce(kJob).ok());
  EXPECT_EQ(progress.newest(kJob).unreachable[kPs0].why.reason, "TokenRefused");
}

TEST_F(GrpcProgressTest, AnAgentThatStartsIsNotReported) {
  directory_.set({{kWorker0, 1, "127.0.0.1:1"}});
  poll();
  EXPECT_TRUE(progress_.newest(kJob).unreachable.empty());
}

TEST_F(GrpcProgressTest, UnknownAddressesAreAFailure) {
  directory_.fail(absl::NotFoundError("no such job"));
  EXPECT_EQ(progress_.pollOnce(kJob).code(), absl::StatusCode::kNotFound);
}

TEST_F(GrpcProgressTest, AnotherUidStartsEmptyAndForgetForgets) {
  sayStep(ps_, 5);
  poll();
  progress_.follow(kJob, "another", {});
  EXPECT_TRUE(progress_.newest(kJob).tasks.empty());
  poll();
  EXPECT_EQ(progress_.newest(kJob).tasks.size(), 2u);
  progress_.forget(kJob);
  EXPECT_TRUE(progress_.newest(kJob).tasks.empty());
  EXPECT_EQ(progress_.pollOnce(kJob).code(), absl::StatusCode::kNotFound);
}

// Takes connections and never says a word.
class HungAgent {
 public:
  explicit HungAgent(int port = 0) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int reused = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &reused, sizeof reused);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_, generic, size), 0);
    EXPECT_EQ(::listen(socket_, 64), 0);
    EXPECT_EQ(::getsockname(socket_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~HungAgent() { ::close(socket_); }
  AgentEndpoint endpoint() const { return {kPs0, 1, fmt::format("127.0.0.1:{}", port_)}; }
  int port() const { return port_; }

 private:
  const int socket_;
  int port_ = 0;
};

// A refusal says more than silence; of the two only the first refusal is news.
TEST_F(GrpcProgressTest, HowAnAgentFailsToAnswerDoesNotGoBackAndForth) {
  GrpcProgress progress(directory_, {.timeout = std::chrono::seconds(1), .unreachable_after = {}});
  progress.follow(kJob, "uid", {});
  const auto reason = [&] {
    EXPECT_TRUE(progress.pollOnce(kJob).ok());
    return progress.newest(kJob).unreachable[kPs0].why.reason;
  };
  int port = 0;
  {
    const HungAgent hung;
    port = hung.port();
    directory_.set({hung.endpoint()});
    EXPECT_EQ(reason(), "NoAnswer");
  }
  const TimePoint end = systemClock().now() + std::chrono::seconds(60);
  while (reason() != "ConnectionFailed") ASSERT_LT(systemClock().now(), end);
  const HungAgent again(port);
  // Who is silent is asked in one of sixteen rounds.
  for (int round = 0; round < 20; ++round) EXPECT_EQ(reason(), "ConnectionFailed");
}

// Of a stop with little time left an agent that is asked in one of sixteen rounds would hear too
// late.
TEST_F(GrpcProgressTest, WhoIsSilentForLongIsAskedInEachRoundOfAStop) {
  ps_.silence(true);
  for (int round = 0; round < 40; ++round) poll();
  const int before = ps_.questions();
  EXPECT_LT(before, 10);
  progress_.follow(kJob, "uid", wish(1, true));
  for (int round = 0; round < 10; ++round) poll();
  EXPECT_EQ(ps_.questions(), before + 10);
  ps_.silence(false);
  sayStep(ps_, 5);
  poll();
  EXPECT_EQ(ps_.stops(), 1);
}

// Jobs of several names, each with agents of its own.
class JobsDirectory : public AgentDirectory {
 public:
  StatusOr<std::vector<AgentEndpoint>> agents(const JobKey& key) override {
    ++rounds;
    return agents_of.at(key);
  }
  StatusOr<std::string> token(const JobKey&) override { return kToken; }
  void pushFailed(const JobKey&, const AgentEndpoint&, std::int64_t revision) override {
    helped = revision;
    ++helps;
  }
  StatusOr<std::optional<AgentTls>> tls(const JobKey&) override {
    if (!with_tls) return std::nullopt;
    return AgentTls{keys.client.ca, keys.client.cert, keys.client.key, "agent"};
  }
  std::map<JobKey, std::vector<AgentEndpoint>> agents_of;  // set before it is used
  bool with_tls = false;                                   // set before it is used
  const JobKeys keys = deriveJobKeys(std::string(64, 'r'), "uid");
  std::atomic<std::int64_t> helped = 0;
  std::atomic<int> helps = 0;
  std::atomic<int> rounds = 0;  // of all jobs
};

TEST(GrpcProgressSideBySide, HungAgentsDelayNoOtherJob) {
  FakeAgent well(kPs0, 1);
  HungAgent hung;
  JobsDirectory directory;
  for (int i = 0; i < 8; ++i)
    directory.agents_of[{"default", fmt::format("a-{}", i)}] = {hung.endpoint()};
  directory.agents_of[kJob] = {well.endpoint()};
  // Longer than the whole test: whoever waited for a hung agent would not get on.
  GrpcProgress progress(
      directory, {.interval = std::chrono::milliseconds(1), .timeout = std::chrono::hours(1)});
  for (const auto& [key, agents] : directory.agents_of) progress.follow(key, "uid", {});
  progress.start();
  for (std::int64_t step = 1; step <= 5; ++step) {
    sayStep(well, step);
    EXPECT_TRUE(eventually([&] {
      const auto word = progress.newest(kJob).progress;
      return word && word->step() == step;
    })) << "step "
        << step;
  }
  progress.stop();  // and does not wait for them either
}

// What is told, after so many rounds, of an agent that takes connections and says nothing.
std::set<std::string> reasonsOfSilence(Duration timeout, int rounds) {
  HungAgent hung;
  JobsDirectory directory;
  directory.with_tls = true;
  directory.agents_of[kJob] = {hung.endpoint()};
  GrpcProgress progress(
      directory, {.interval = std::chrono::hours(1), .timeout = timeout, .unreachable_after = {}});
  progress.follow(kJob, "uid", {});
  std::set<std::string> reasons;
  for (int round = 0; round < rounds; ++round) {
    EXPECT_TRUE(progress.pollOnce(kJob).ok());
    reasons.insert(progress.newest(kJob).unreachable.at(hung.endpoint().key).why.reason);
  }
  return reasons;
}

// An attempt to connect that is given up before the call is would look like a refusal.
TEST(GrpcProgressSideBySide, SilenceIsToldFromRefusalHoweverLongACallMayTake) {
  EXPECT_THAT(reasonsOfSilence(std::chrono::seconds(3), 1), testing::ElementsAre(kNoAnswer));
}

// It ends within the second or the third call, which fails then as if it were refused.
TEST(GrpcProgressSideBySide, AnAttemptToConnectThatIsGivenUpIsSilence) {
  EXPECT_THAT(reasonsOfSilence(std::chrono::milliseconds(400), 8), testing::ElementsAre(kNoAnswer));
}

TEST(GrpcProgressSideBySide, OnlySoManyCallsAreUnderWay) {
  FakeAgent well(kPs0, 1);
  HungAgent hung;
  JobsDirectory directory;
  const JobKey first{"default", "a"};
  directory.agents_of[first] = {hung.endpoint()};
  directory.agents_of[kJob] = {well.endpoint()};
  GrpcProgress progress(directory, {.interval = std::chrono::milliseconds(1),
                                    .timeout = std::chrono::milliseconds(200),
                                    .calls = 1});
  progress.follow(first, "uid", {});
  progress.follow(kJob, "uid", {});
  sayStep(well, 7);
  progress.start();
  // One at a time, yet each in its turn.
  EXPECT_TRUE(eventually([&] { return progress.newest(kJob).progress.has_value(); }));
  progress.stop();
}

TEST(GrpcProgressSideBySide, AgentThatStaysSilentIsHelpedByOtherMeans) {
  JobsDirectory directory;
  directory.agents_of[kJob] = {{kPs0, 1, "127.0.0.1:1"}};
  GrpcProgress progress(directory, {.interval = std::chrono::milliseconds(1),
                                    .timeout = std::chrono::milliseconds(50)});
  JobWish wish;
  wish.membership.emplace().set_revision(3);
  progress.follow(kJob, "uid", wish);
  progress.start();
  EXPECT_TRUE(eventually([&] { return directory.helped == 3; }));
  progress.stop();
}

// New connections are made at a measured pace, which must hold up nobody's help.
TEST(GrpcProgressSideBySide, AgentsThatAreNotAskedAreHelpedToo) {
  JobsDirectory directory;
  directory.with_tls = true;
  constexpr int kAgents = 4000;
  for (std::uint32_t i = 0; i < std::uint32_t{kAgents}; ++i) {
    directory.agents_of[kJob].push_back(
        {{v1::ROLE_WORKER, i}, 1, fmt::format("127.0.{}.{}:1", 1 + i / 250, 1 + i % 250)});
  }
  GrpcProgress progress(directory, {.interval = std::chrono::milliseconds(10),
                                    .timeout = std::chrono::milliseconds(50)});
  JobWish wish;
  wish.membership.emplace().set_revision(3);
  progress.follow(kJob, "uid", wish);
  progress.start();
  EXPECT_TRUE(eventually([&] { return directory.helps == kAgents; })) << directory.helps;
  progress.stop();
  EXPECT_EQ(directory.helps, kAgents) << "each once";
}

// Help is a write that takes its time, and is not given to who has been reached meanwhile.
TEST(GrpcProgressSideBySide, WhoIsHeardBeforeItsTurnNeedsNoHelp) {
  class Slow : public FakeDirectory {
   public:
    void pushFailed(const JobKey&, const AgentEndpoint& agent, std::int64_t) override {
      std::unique_lock lock(mutex);
      helped.push_back(agent.key.index);
      changed.notify_all();
      changed.wait(lock, [this] { return !held; });
    }
    void await(std::size_t count) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return helped.size() >= count; });
    }
    void release() {
      const std::lock_guard lock(mutex);
      held = false;
      changed.notify_all();
    }
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::uint32_t> helped;
    bool held = true;
  };
  Slow directory;
  std::vector<std::unique_ptr<FakeAgent>> agents;
  std::vector<AgentEndpoint> endpoints;
  for (std::uint32_t index = 0; index < 3; ++index) {
    agents.push_back(std::make_unique<FakeAgent>(TaskKey{v1::ROLE_WORKER, index}, 1));
    agents.back()->silence(true);
    endpoints.push_back(agents.back()->endpoint());
  }
  directory.set(endpoints);
  GrpcProgress progress(
      directory, {.interval = std::chrono::milliseconds(1), .timeout = std::chrono::seconds(5)});
  JobWish wish;
  wish.membership.emplace().set_revision(3);
  progress.follow(kJob, "uid", wish);
  progress.start();
  directory.await(1);
  const std::uint32_t first = directory.helped[0];
  const std::uint32_t next = first == 0 ? 1 : 0, last = 3 - first - next;
  agents[next]->silence(false);
  ASSERT_TRUE(eventually([&] { return agents[next]->pushed() == 3; }));
  const int then = agents[next]->questions();
  ASSERT_TRUE(eventually([&] { return agents[next]->questions() > then; })) << "it was told of";
  directory.release();
  directory.await(2);
  progress.stop();
  EXPECT_EQ(directory.helped, (std::vector<std::uint32_t>{first, last}));
}

TEST(GrpcProgressSideBySide, WhoMayNotTellAsksAllTheSame) {
  FakeAgent agent(kPs0, 1);
  JobsDirectory directory;
  directory.agents_of[kJob] = {agent.endpoint()};
  std::atomic<bool> leads = false;
  GrpcProgress progress(directory, {.interval = std::chrono::milliseconds(1),
                                    .timeout = std::chrono::seconds(5),
                                    .may_tell = [&leads] { return leads.load(); }});
  JobWish wish;
  wish.membership.emplace().set_revision(3);
  wish.stop_by = systemClock().now();
  progress.follow(kJob, "uid", wish);
  sayStep(agent, 1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(progress.pollOnce(kJob).ok());
  EXPECT_EQ(progress.newest(kJob).progress->step(), 1);
  EXPECT_EQ(agent.pushes() + agent.stops(), 0);
  leads = true;
  ASSERT_TRUE(progress.pollOnce(kJob).ok());
  EXPECT_EQ(agent.pushes(), 1);
  EXPECT_EQ(agent.stops(), 1);
}

// More coordinators than may be connected to at once, as after a change of leaders.
TEST(GrpcProgressSideBySide, WhoMayNotConnectYetWaitsForTheNextRound) {
  constexpr int kJobs = 400;
  JobsDirectory directory;
  directory.with_tls = true;
  for (int i = 0; i < kJobs; ++i) {
    directory.agents_of[{"default", fmt::format("job-{}", i)}] = {{kPs0, 1, "127.0.0.1:1"},
                                                                  {kWorker0, 1, "127.0.0.1:2"}};
  }
  GrpcProgress progress(directory,
                        {.interval = std::chrono::hours(1), .ask_coordinator_only = true});
  for (const auto& [key, agents] : directory.agents_of) progress.follow(key, "uid", {});
  progress.start();
  EXPECT_TRUE(eventually([&] { return directory.rounds >= kJobs; }));
  FakeAgent other(kPs0, 1);  // of an operator with nothing else to do: time passes
  FakeDirectory others;
  others.set({other.endpoint()});
  GrpcProgress beside(others, {.interval = std::chrono::milliseconds(1)});
  beside.follow(kJob, "uid", {});
  beside.start();
  EXPECT_TRUE(eventually([&] { return other.questions() >= 50; }));
  EXPECT_LE(directory.rounds, 2 * kJobs) << "the others' turn comes once a coordinator was asked";
}

TEST_F(GrpcProgressTest, ThreadPollsByItself) {
  progress_.start();
  sayStep(ps_, 123);
  const TimePoint end = systemClock().now() + std::chrono::seconds(20);
  const auto heard = [&] {
    const auto word = progress_.newest(kJob).progress;
    return word && word->step() == 123;
  };
  while (!heard() && systemClock().now() < end) std::this_thread::yield();
  EXPECT_TRUE(heard());
  progress_.stop();
}

}  // namespace
}  // namespace trainyard::control
