// What the running servers hold is what `trainyard plan` says of the same job.
#include <signal.h>

#include <algorithm>
#include <tuple>

#include "base/process/files.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "google/protobuf/util/json_util.h"
#include "tests/multiproc/run_fixture.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard {
namespace {

// Variable, begin, end, chunk.
using Entry = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>;

class ShardTest : public RunTest, public testing::WithParamInterface<std::vector<std::string>> {
 protected:
  // By server, sorted by variable and begin.
  std::map<int, std::vector<Entry>> planned(const JobRun& run,
                                            const std::vector<std::string>& flags,
                                            std::map<int, std::int64_t>* bytes) {
    std::vector<std::string> argv = {
        "trainyard", "plan", "-o", "json", "-f", (run.dir().parent_path() / "job.yaml").string()};
    argv.insert(argv.end(), flags.begin(), flags.end());
    const ProgramEnd end = program(argv);
    EXPECT_EQ(end.code, 0) << end.output;
    const auto json = nlohmann::json::parse(end.output, nullptr, false);
    std::map<int, std::vector<Entry>> result;
    for (const auto& chunk : json.at("chunks")) {
      for (const auto& segment : chunk.at("segments")) {
        result[chunk.at("ps")].emplace_back(segment.at("variable"), segment.at("begin"),
                                            segment.at("end"), chunk.at("id"));
      }
    }
    for (const auto& variable : json.at("variables")) {
      if (variable.at("trainable")) continue;  // global_step is a part, but in no chunk
      for (const auto& part : variable.at("parts")) {
        result[part.at("ps")].emplace_back(variable.at("name"), part.at("begin"), part.at("end"),
                                           0);
      }
    }
    for (auto& [ps, entries] : result) std::sort(entries.begin(), entries.end());
    for (const auto& ps : json.at("ps")) (*bytes)[ps.at("index")] = ps.at("bytes");
    return result;
  }

  v1::ShardTable shardOf(const JobRun& run, int ps) {
    v1::Membership membership;
    const auto text = readFile(run.dir() / "membership.json", 1 << 20);
    EXPECT_TRUE(text.ok() && google::protobuf::util::JsonStringToMessage(*text, &membership).ok());
    v1::ShardTable table;
    for (const v1::MemberTask& task : membership.tasks()) {
      if (task.id().role() != v1::ROLE_PS || static_cast<int>(task.id().index()) != ps) continue;
      const std::string address = fmt::format("{}:{}", task.ip(), task.port());
      const RuntimeKeys keys = deriveRuntimeKeys(readToken(run.dir() / "token").value_or(""));
      const auto stub =
          v1::ShardTables::NewStub(openSecureChannel(address, keys.control, kRuntimeServerName));
      grpc::ClientContext context;
      setDeadline(context, std::chrono::seconds(20));
      const grpc::Status status = stub->GetShard(&context, {}, &table);
      EXPECT_TRUE(status.ok()) << status.error_message();
      grpc::ClientContext stranger;
      setDeadline(stranger, std::chrono::seconds(20));
      v1::ShardTable nothing;
      EXPECT_EQ(v1::ShardTables::NewStub(openChannel(address))
                    ->GetShard(&stranger, {}, &nothing)
                    .error_code(),
                grpc::StatusCode::UNAVAILABLE);
    }
    return table;
  }
};

TEST_P(ShardTest, IsWhatThePlanSays) {
  std::vector<std::string> flags;
  for (const std::string& set : GetParam()) flags.insert(flags.end(), {"--set", set});
  flags.insert(flags.end(), {"--set", "training.model.hidden=[300, 100]"});
  JobRun run(folder("shards"), smallJob(2, 1, 5000), flags);
  std::map<int, std::int64_t> bytes;
  const auto plan = planned(run, flags, &bytes);
  ASSERT_EQ(plan.size(), 2u);
  run.launch("worker.compute=delay(50)");
  ASSERT_TRUE(run.reaches("worker-0", 0));
  for (const auto& [ps, want] : plan) {
    const v1::ShardTable table = shardOf(run, ps);
    std::vector<Entry> held;
    for (const v1::ShardEntry& entry : table.entries()) {
      held.emplace_back(entry.variable(), entry.begin(), entry.end(), entry.chunk());
    }
    EXPECT_EQ(held, want) << "ps-" << ps;
    EXPECT_EQ(static_cast<int>(table.id().index()), ps);
    EXPECT_EQ(static_cast<std::int64_t>(table.bytes()), bytes[ps]) << "ps-" << ps;
  }
  ASSERT_TRUE(run.launcher().signal(SIGKILL).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Placements, ShardTest,
    testing::Values(std::vector<std::string>{"training.placement.strategy=RoundRobin"},
                    std::vector<std::string>{"training.placement.strategy=FixedSize",
                                             "training.placement.fixedSize.shards=2"},
                    std::vector<std::string>{"training.placement.strategy=Balanced"}),
    [](const auto& info) { return info.param[0].substr(info.param[0].find('=') + 1); });

}  // namespace
}  // namespace trainyard
