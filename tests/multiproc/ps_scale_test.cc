// Parameter servers join and leave a job of real processes that trains: those that stay are not
// started again, all of the model is somewhere at any moment, and the weights are bit for bit those
// of a job whose servers never changed.
#include <signal.h>

#include <fstream>
#include <iostream>

#include "base/process/files.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "google/protobuf/util/json_util.h"
#include "tests/multiproc/scaling_fixture.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr Duration kPsScaleLimit = std::chrono::seconds(120);

// As smallJob(), with about a dozen chunks.
std::string wideJob(int ps, int workers, int steps) {
  std::string yaml = smallJob(ps, workers, steps);
  yaml.replace(yaml.find("hidden: [32]"), 12, "hidden: [512, 256]");
  return yaml;
}

class PsScaleTest : public ScalingTest {
 protected:
  static v1::Membership membershipOf(const JobRun& run) {
    v1::Membership membership;
    const auto text = readFile(run.dir() / "membership.json", 1 << 20);
    EXPECT_TRUE(text.ok() && google::protobuf::util::JsonStringToMessage(*text, &membership).ok());
    return membership;
  }
  // Each element of the model is with one server; bytes by server.
  static std::map<std::uint32_t, std::uint64_t> expectWholeModel(const JobRun& run) {
    std::map<std::uint32_t, std::uint64_t> bytes;
    std::map<std::string, std::map<std::int64_t, std::int64_t>> segments;  // begin -> end
    const RuntimeKeys keys = deriveRuntimeKeys(readToken(run.dir() / "token").value_or(""));
    const v1::Membership membership = membershipOf(run);
    for (const v1::MemberTask& task : membership.tasks()) {
      if (task.id().role() != v1::ROLE_PS) continue;
      const auto stub = v1::ShardTables::NewStub(openSecureChannel(
          fmt::format("{}:{}", task.ip(), task.port()), keys.control, kRuntimeServerName));
      grpc::ClientContext context;
      v1::ShardTable table;
      const grpc::Status status = stub->GetShard(&context, {}, &table);
      EXPECT_TRUE(status.ok()) << status.error_message();
      bytes[task.id().index()] = table.bytes();
      for (const v1::ShardEntry& entry : table.entries()) {
        EXPECT_TRUE(segments[entry.variable()].emplace(entry.begin(), entry.end()).second)
            << entry.variable() << " twice";
      }
    }
    EXPECT_EQ(segments.size(), 7u) << "three layers and global_step";
    for (const auto& [variable, parts] : segments) {
      std::int64_t at = 0;
      for (const auto& [begin, end] : parts) {
        EXPECT_EQ(begin, at) << variable;
        at = end;
      }
    }
    return bytes;
  }
  static void expectEven(const std::map<std::uint32_t, std::uint64_t>& bytes) {
    std::uint64_t total = 0, most = 0;
    for (const auto& [ps, held] : bytes) {
      total += held;
      most = std::max(most, held);
    }
    // The design's bound: an even share and one chunk, which is below 128 KiB here.
    EXPECT_LE(most, total / bytes.size() + (128 << 10));
  }
};

TEST_F(PsScaleTest, TwoThreeOne) {
  constexpr int kSteps = 500;
  JobRun run(folder("job"), wideJob(2, 2, kSteps));
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 3));
  expectEven(expectWholeModel(run));
  const std::vector<std::string> stayers = {"ps-0", "worker-0", "worker-1"};
  const auto lives = livesOf(run, stayers);
  const auto second = livesOf(run, {"ps-1"});
  const std::int64_t first_epoch = newest(run).epoch;

  const TimePoint asked = systemClock().now();
  ASSERT_EQ(scale(run, {"--ps", "3", "--no-wait"}).code, 0);
  ASSERT_TRUE(eventually([&] { return newest(run).epoch > first_epoch; }, kPsScaleLimit))
      << run.output();
  std::cout << fmt::format("first step with a new server {:.2f} s after the number was changed\n",
                           toSeconds(systemClock().now() - asked));
  ProgramEnd end = scale(run, {"--ps", "3"});
  ASSERT_EQ(end.code, 0) << end.output;
  ASSERT_TRUE(goesOn(run));
  EXPECT_EQ(livesOf(run, stayers), lives);
  EXPECT_EQ(livesOf(run, {"ps-1"}), second);
  EXPECT_EQ(statusOf(run).at("ps").value("indices", ""), "0-2");
  auto bytes = expectWholeModel(run);
  EXPECT_EQ(bytes.size(), 3u);
  expectEven(bytes);

  end = scale(run, {"--ps", "1"});
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("run: ps 3 -> 1, step "));
  ASSERT_TRUE(goesOn(run));
  EXPECT_EQ(livesOf(run, stayers), lives);
  EXPECT_EQ(expectWholeModel(run).size(), 1u);
  for (const char* left : {"ps-1", "ps-2"}) {
    EXPECT_THAT(run.taskLog(left), HasSubstr("left on request"));
    EXPECT_THAT(run.taskLog(left), Not(HasSubstr("start 2")));
    EXPECT_EQ(run.agent(left).value("lastExitCode", -1), 0) << left;
  }
  // The coordinator knows of steps by the members' reports, of which there is one a second at rest.
  const std::string told = "has taken its first step";
  EXPECT_TRUE(eventually([&] { return run.taskLog("ps-0").find(told) != std::string::npos; },
                         kPsScaleLimit));
  end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", kSteps)));
  expectUndisturbed(run);
  expectEachPositionOnce(run, 2, kSteps * 2 * 16);
  EXPECT_EQ(run.digest(), undisturbedDigest(wideJob(2, 2, kSteps)))
      << "a move has changed the weights";
  // What one server has written is read by three.
  const std::string more = fmt::format("training.steps={}", kSteps + 5);
  JobRun again(folder("job"), wideJob(3, 2, kSteps), {"--set", more});
  end = again.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr(fmt::format("from step {}", kSteps)));
}

// Servers and workers at once, by one edit of the file, while a checkpoint is being taken.
TEST_F(PsScaleTest, TogetherWithWorkersByTheEditedFile) {
  constexpr int kSteps = 300;
  JobRun run(folder("job"), wideJob(1, 2, kSteps),
             {"--set", "training.checkpoint.everySeconds=1", "--set", "ps.maxReplicas=3"});
  run.launch(run.slowSteps());
  ASSERT_TRUE(run.reaches("worker-0", 3));
  const auto lives = livesOf(run, {"ps-0", "worker-0", "worker-1"});
  const std::filesystem::path file = run.dir() / "job.yaml";
  std::string text = readFile(file, 1 << 20).value_or("");
  for (const auto& [role, number] : {std::pair("\n  ps:", "1"), std::pair("\n  worker:", "2")}) {
    const std::size_t at = text.find(std::string("replicas: ") + number, text.find(role));
    ASSERT_NE(at, std::string::npos);
    text.replace(at, 11, "replicas: 3");
  }
  ASSERT_TRUE(writeFileAtomically(file, text).ok());
  ASSERT_TRUE(eventually([&] { return !run.positions("worker-2").empty(); }, kPsScaleLimit))
      << run.output();
  EXPECT_THAT(run.output(),
              ContainsRegex("job.yaml: ps.replicas: 1 -> 3, worker.replicas: 2 -> 3"));
  ProgramEnd end = scale(run, {"--ps", "3", "--workers", "3"});
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(livesOf(run, {"ps-0", "worker-0", "worker-1"}), lives);
  EXPECT_EQ(expectWholeModel(run).size(), 3u);
  const ProgramEnd above = scale(run, {"--ps", "4"});
  EXPECT_EQ(above.code, 2) << above.output;
  EXPECT_THAT(above.output, HasSubstr("spec.ps.replicas: 4 is above maxReplicas 3"));
  EXPECT_EQ(scale(run, {"--ps", "0"}).code, 2);
  end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  expectUndisturbed(run);
}

// The taker dies in the middle of a move: what it was to have is still where it was.
TEST_F(PsScaleTest, AJoinerThatDiesInAMoveCostsNothing) {
  constexpr int kSteps = 300;
  JobRun run(folder("job"), wideJob(1, 2, kSteps));
  run.launch(run.slowSteps() + ";ps.fetch=crash,task=ps-1,life=1.1");
  ASSERT_TRUE(run.reaches("worker-0", 3));
  const auto lives = livesOf(run, {"ps-0", "worker-0", "worker-1"});
  ProgramEnd end = scale(run, {"--ps", "2"});
  ASSERT_EQ(end.code, 0) << end.output;
  ASSERT_TRUE(goesOn(run));
  EXPECT_EQ(livesOf(run, {"ps-0", "worker-0", "worker-1"}), lives);
  const auto bytes = expectWholeModel(run);
  EXPECT_EQ(bytes.size(), 2u);
  expectEven(bytes);
  end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(statusOf(run).value("lostSteps", 0), 0);
  EXPECT_EQ(statusOf(run).value("restarts", 0), 1);
  expectEachPositionOnce(run, 2, kSteps * 2 * 16);
  EXPECT_EQ(run.digest(), undisturbedDigest(wideJob(1, 2, kSteps)));
}

// The giver dies before the others have what it held: its replicas stand in.
TEST_F(PsScaleTest, ALeaverThatDiesInAMoveCostsNothing) {
  constexpr int kSteps = 300;
  JobRun run(folder("job"), wideJob(2, 2, kSteps));
  run.launch(run.slowSteps() + ";ps.give=crash,task=ps-1,life=1.1");
  ASSERT_TRUE(run.reaches("worker-0", 20));
  ProgramEnd end = scale(run, {"--ps", "1"});
  ASSERT_EQ(end.code, 0) << end.output;
  end = run.releaseAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(statusOf(run).value("lostSteps", 0), 0);
  EXPECT_EQ(run.digest(), undisturbedDigest(wideJob(2, 2, kSteps)));
}

}  // namespace
}  // namespace trainyard
