#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/supervisor/agent_file.h"
#include "agent/supervisor/child_command.h"
#include "agent/supervisor/port_holder.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ChildEnvironment, KeepsTheAgentsOwnOut) {
  EXPECT_THAT(childEnvironment({"PATH=/bin", "LD_PRELOAD=x.so", "LD_LIBRARY_PATH=/lib",
                                "TRAINYARD_SECRET=1", "TRAINYARD_FAILPOINTS=a=crash",
                                "TRAINYARD_LIBRARY=/l.so", "TRAINYARD_FAILPOINTS_2=b",
                                "OLD_TRAINYARD_X=1", "OMP=LD_X"}),
              ElementsAre("PATH=/bin", "TRAINYARD_FAILPOINTS=a=crash", "TRAINYARD_LIBRARY=/l.so",
                          "OLD_TRAINYARD_X=1", "OMP=LD_X"));
}

TEST(ChildEnvironment, ThreadsOfTheRuntimeSleepWhereTheyWait) {
  EXPECT_THAT(runtimeEnvironment({"PATH=/bin", "LD_PRELOAD=x.so"}),
              ElementsAre("PATH=/bin", "OMP_WAIT_POLICY=passive"));
  for (const char* chosen : {"OMP_WAIT_POLICY=active", "GOMP_SPINCOUNT=7"})
    EXPECT_THAT(runtimeEnvironment({chosen}), ElementsAre(chosen));
}

TEST(ChildArguments, AreTheRuntimesFlags) {
  ChildCommand command{.runtime = "/bin/trainyard-runtime",
                       .id = {},
                       .created = 4,
                       .job_file = "job.json",
                       .job_dir = "dir",
                       .checkpoints = "s3://data/job",
                       .task_dir = "dir/tasks/worker-2",
                       .token_file = "token",
                       .membership_file = "m.json",
                       .agent_socket = "r.sock",
                       .bind = "127.0.0.1",
                       .port = 77,
                       .threads = {2, "two cores"},
                       .program = "program.json",
                       .volumes = {"/data=/x"}};
  command.id.set_role(v1::ROLE_WORKER);
  command.id.set_index(2);
  EXPECT_THAT(
      childArguments(command, 3),
      ElementsAre("/bin/trainyard-runtime", "worker", "--job", "job.json", "--job-dir", "dir",
                  "--task-dir", "dir/tasks/worker-2", "--index", "2", "--created", "4", "--start",
                  "3", "--port", "77", "--agent-socket", "r.sock", "--token", "token",
                  "--membership", "m.json", "--bind", "127.0.0.1", "--threads", "2", "--log-format",
                  "text", "--checkpoints", "s3://data/job", "--threads-reason", "two cores",
                  "--program", "program.json", "--volume", "/data=/x"));
}

TEST(AgentFile, HoldsPortsAndChild) {
  const TempDir dir;
  const AgentAddress address{.ip = "127.0.0.1",
                             .agent_port = 1,
                             .metrics_port = 2,
                             .task_port = 3,
                             .created = 4,
                             .ready = true};
  ChildView view;
  view.child = "Exited";
  view.start = 5;
  view.planned_starts = 2;
  view.last_signal = 9;
  ASSERT_TRUE(writeAgentFile(dir.path() / "agent.json", address, view).ok());
  const auto file = nlohmann::json::parse(readFile(dir.path() / "agent.json", 10'000).value());
  EXPECT_EQ(file, (nlohmann::json{{"pid", ::getpid()},
                                  {"agentPort", 1},
                                  {"metricsPort", 2},
                                  {"taskPort", 3},
                                  {"ip", "127.0.0.1"},
                                  {"created", 4},
                                  {"start", 5},
                                  {"plannedStarts", 2},
                                  {"childPid", 0},
                                  {"childPids", nlohmann::json::array()},
                                  {"child", "Exited"},
                                  {"ready", true},
                                  {"lastExitCode", 0},
                                  {"lastSignal", 9}}));
}

// As a server of ours does; the socket or -1.
int bindLikeAProgram(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

TEST(PortHolder, KeepsThePortUntilReleased) {
  Rng rng(static_cast<std::uint64_t>(::getpid()));
  StatusOr<PortHolder> holder = PortHolder::hold("127.0.0.1", 0, rng);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_EQ(bindLikeAProgram(holder->port()), -1);
  const Status second = PortHolder::hold("127.0.0.1", holder->port(), rng).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.message()),
              HasSubstr(fmt::format("127.0.0.1:{}", holder->port())));
  holder->release();
  const int fd = bindLikeAProgram(holder->port());
  EXPECT_GE(fd, 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  EXPECT_FALSE(holder->holdAgain().ok()) << "the program has it";
  ::close(fd);
  EXPECT_TRUE(holder->holdAgain().ok());
  EXPECT_EQ(bindLikeAProgram(holder->port()), -1);
}

TEST(PortHolder, AvoidsThePortsTheKernelHandsOut) {
  const std::string text = readFile("/proc/sys/net/ipv4/ip_local_port_range", 100).value();
  int low = 0;
  int high = 0;
  ASSERT_EQ(std::sscanf(text.c_str(), "%d %d", &low, &high), 2);
  if (low < 11'000 && high > 65'000) GTEST_SKIP() << "this machine hands out nearly all ports";
  Rng rng(static_cast<std::uint64_t>(::getpid()) + 1);
  for (int i = 0; i < 50; ++i) {
    const StatusOr<PortHolder> holder = PortHolder::hold("127.0.0.1", 0, rng);
    ASSERT_TRUE(holder.ok()) << holder.status();
    EXPECT_TRUE(holder->port() < low || holder->port() > high) << holder->port();
  }
}

// Between release() and the program's start, as between two starts, the port looks free.
TEST(PortHolder, LeavesAloneWhatAnotherHasChosen) {
  const std::uint64_t seed = static_cast<std::uint64_t>(::getpid()) + 3;
  for (const bool neighbour : {false, true}) {
    Rng rng(seed), same(seed), again(seed);
    std::optional<PortHolder> first = *PortHolder::hold("127.0.0.1", 0, rng, neighbour);
    const int port = first->port();
    first->release();
    const auto second = PortHolder::hold("127.0.0.1", 0, same, neighbour);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_NE(second->port(), port);
    // Who is given one has it from somebody who knows.
    EXPECT_TRUE(PortHolder::hold("127.0.0.1", port, rng).ok());
    first.reset();
    const auto third = PortHolder::hold("127.0.0.1", 0, again, neighbour);
    ASSERT_TRUE(third.ok()) << third.status();
    EXPECT_EQ(third->port(), port);
  }
}

TEST(PortHolder, KeepsTheNeighbourToo) {
  Rng rng(static_cast<std::uint64_t>(::getpid()) + 2);
  StatusOr<PortHolder> holder = PortHolder::hold("127.0.0.1", 0, rng, /*neighbour=*/true);
  ASSERT_TRUE(holder.ok()) << holder.status();
  const int port = holder->port();
  EXPECT_EQ(bindLikeAProgram(port), -1);
  EXPECT_EQ(bindLikeAProgram(port + 1), -1);
  holder->release();
  const int own = bindLikeAProgram(port), beside = bindLikeAProgram(port + 1);
  EXPECT_GE(own, 0);
  EXPECT_GE(beside, 0);
  ASSERT_EQ(::listen(beside, 1), 0);
  ::close(own);
  EXPECT_TRUE(holder->holdAgain().ok()) << "whoever has the port beside it";
  EXPECT_EQ(bindLikeAProgram(port), -1);
  holder->release();
  const auto given = PortHolder::hold("127.0.0.1", port, rng, /*neighbour=*/true);
  EXPECT_TRUE(given.ok()) << given.status();
  ::close(beside);
}

TEST(PortHolder, WantsAnAddress) {
  Rng rng(1);
  EXPECT_EQ(PortHolder::hold("localhost", 0, rng).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trainyard::agent
