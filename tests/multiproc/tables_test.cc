// Jobs with embedding tables: what they learn is one result, whatever the number of servers and who
// dies on the way.
#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/multiproc/table_jobs.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

// tablesJob() with tables of one dim, for dlrm.
std::string dlrmJob(int ps, int workers, int steps) {
  std::string job = tablesJob(ps, workers, steps);
  const auto begin = job.find("    tables:"), end = job.find("    batchSize:");
  job.replace(begin, end - begin, R"(    tables:
    - {name: user, features: [user], dim: 8, rows: {max: 10000}, initial: {distribution: Uniform, scale: 0.2}}
    - {name: item, features: [item], dim: 8, rows: {max: 10000}, initial: {distribution: Uniform, scale: 0.2}}
)");
  const std::string model = "{name: wide_and_deep, hidden: [16, 8]}";
  return job.replace(job.find(model), model.size(),
                     "{name: dlrm, bottomHidden: [16, 8], hidden: [16, 8]}");
}

StatusOr<runtime::CheckpointReader> newestCheckpoint(const JobRun& run) {
  TY_ASSIGN_OR_RETURN(const std::string path, runtime::findManifest(run.dir().string()));
  TY_ASSIGN_OR_RETURN(const runtime::Manifest manifest, runtime::readManifest(path));
  return runtime::CheckpointReader::open(std::filesystem::path(path).parent_path().string(),
                                         manifest);
}

class TablesTest : public RunTest {
 protected:
  std::string digestOf(const std::string& name, const std::string& yaml,
                       const std::string& failpoints = "") {
    JobRun run(folder(name), yaml);
    const ProgramEnd end = run.launchAndWait(failpoints);
    EXPECT_EQ(end.code, 0) << end.output;
    return end.code == 0 ? run.digest() : name + " failed";
  }
};

TEST_F(TablesTest, OneResultWhateverTheNumberOfServersAndWhoIsLate) {
  const std::string want = digestOf("one", tablesJob(1, 3, 120));
  EXPECT_EQ(
      digestOf("two", tablesJob(2, 3, 120),
               "worker.push=delay(4)@20-35,task=worker-0;ps.request=delay(1)@60-70,task=ps-1"),
      want);
  EXPECT_EQ(digestOf("three", tablesJob(3, 3, 120), "worker.compute=delay(4)@50-70,task=worker-2"),
            want);
  JobRun other(folder("other"), tablesJob(1, 3, 120), {"--set", "training.seed=4"});
  EXPECT_EQ(other.launchAndWait().code, 0);
  EXPECT_NE(other.digest(), want);
}

// Rows have no replicas: all return to the newest checkpoint, to the same bits in the end.
TEST_F(TablesTest, AJobThatWasInterruptedGoesOn) {
  JobRun run(folder("run"), tablesJob(2, 2, 150));
  run.launch(run.slowSteps(60));
  ASSERT_TRUE(run.reaches("worker-0", 60));
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  run.wait();
  const std::vector<std::int64_t> steps = run.checkpointSteps();
  ASSERT_FALSE(steps.empty());
  EXPECT_GE(steps.back(), 60);
  EXPECT_LT(steps.back(), 150);
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(2, 2, 150)));
}

// As in a cluster one that rests may; on one machine the launcher compares the file with the
// former. Rows stay, and ids begin or cease to be counted.
TEST_F(TablesTest, AJobThatGoesOnMayAdmitOtherIds) {
  for (const bool counts_first : {true, false}) {
    const auto dir = folder(counts_first ? "ceases" : "begins");
    const auto job = [&](bool counts) {
      return tablesJob(2, 2, 120, 3000, counts ? kForgets : "");
    };
    JobRun run(dir, job(counts_first));
    run.launch(run.slowSteps(40));
    ASSERT_TRUE(run.reaches("worker-0", 40));
    ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
    run.wait();
    ASSERT_TRUE(writeFileAtomically(run.dir() / "job.yaml", job(!counts_first)).ok());
    JobRun other(dir, job(!counts_first));
    const ProgramEnd end = other.launchAndWait();
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_THAT(end.lastLine(), HasSubstr("succeeded steps=120"));
    const auto reader = newestCheckpoint(other);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->manifest().tables.size(), counts_first ? 3U : 4U);
    EXPECT_GT(reader->rowsOf(0).value_or(0), 300);
  }
}

// The file has every row of the checkpoint once, with its weights.
void expectExported(const JobRun& run, const std::string& path) {
  const ProgramEnd end = runProgram(
      {"trainyard", "checkpoint", "export", run.dir().string(), "--output", path, "--slots"});
  ASSERT_EQ(end.code, 0) << end.output;
  const auto file = runtime::openStored(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto header = runtime::readSafetensorsHeader(**file);
  ASSERT_TRUE(header.ok()) << header.status();
  std::map<std::string, const runtime::SafetensorsEntry*> entries;
  for (const auto& entry : header->entries) entries[entry.name] = &entry;
  const auto reader = newestCheckpoint(run);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::vector<runtime::ManifestTable>& tables = reader->manifest().tables;
  ASSERT_FALSE(tables.empty());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].dim == 0) {  // it counts ids that have no row
      EXPECT_EQ(tables[t].name, "user.counted");
      EXPECT_FALSE(entries.contains(tables[t].name + "/ids"));
      continue;
    }
    std::vector<std::uint64_t> ids;
    std::vector<float> weights;
    ASSERT_TRUE(reader
                    ->walkTable(t, 0, runtime::kTablePartitions,
                                [&](const auto& rows) {
                                  ids.insert(ids.end(), rows.ids.begin(), rows.ids.end());
                                  weights.insert(weights.end(), rows.weights.begin(),
                                                 rows.weights.end());
                                  return absl::OkStatus();
                                })
                    .ok());
    EXPECT_FALSE(ids.empty());
    EXPECT_EQ(reader->rowsOf(t).value_or(-1), static_cast<std::int64_t>(ids.size()));
    const auto read = [&](const std::string& array, std::span<std::byte> into) {
      const auto found = entries.find(tables[t].name + "/" + array);
      ASSERT_NE(found, entries.end()) << array;
      ASSERT_EQ(found->second->end - found->second->begin, into.size()) << array;
      ASSERT_TRUE((*file)->read(header->data_start + found->second->begin, into).ok());
    };
    std::vector<std::uint64_t> exported_ids(ids.size());
    std::vector<float> exported(weights.size());
    read("ids", std::as_writable_bytes(std::span(exported_ids)));
    read("rows", std::as_writable_bytes(std::span(exported)));
    EXPECT_EQ(exported_ids, ids);
    EXPECT_EQ(exported, weights);
    for (const std::string& slot : tables[t].slots)
      EXPECT_TRUE(entries.contains(tables[t].name + "/rows/" + slot));
    EXPECT_TRUE(entries.contains(tables[t].name + "/counts"));
  }
}

// Better than to say of everything that it is not clicked on; `checkpoint evaluate` reads the same
// of the checkpoint.
TEST_F(TablesTest, LearnsAndIsEvaluated) {
  JobRun run(folder("run"), tablesJob(2, 2, 600), {"--set", "training.data.samples=40000"});
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  auto trained = fieldsOf(end.lastLine());
  EXPECT_GT(std::stod(trained["accuracy"]), 0.7);
  EXPECT_GT(std::stod(trained["auc"]), 0.65);
  const ProgramEnd scored = program({"trainyard", "checkpoint", "evaluate", run.dir().string()});
  ASSERT_EQ(scored.code, 0) << scored.output;
  auto read = fieldsOf(scored.lastLine());
  EXPECT_EQ(read["accuracy"], trained["accuracy"]);
  EXPECT_EQ(read["auc"], trained["auc"]);
  expectExported(run, (run.dir() / "model.safetensors").string());
}

// Samples that the rows of table `item` have counted, each of which has one; the newest
// checkpoint's.
std::uint64_t countedSamples(const JobRun& run) {
  constexpr std::size_t kItem = 1;
  const auto reader = newestCheckpoint(run);
  if (!reader.ok()) return 0;
  std::uint64_t samples = 0;
  const auto add = [&](const runtime::TableRows& rows) {
    samples = std::accumulate(rows.counts.begin(), rows.counts.end(), samples);
    return absl::OkStatus();
  };
  EXPECT_TRUE(reader.ok() && reader->walkTable(kItem, 0, runtime::kTablePartitions, add).ok());
  return samples;
}

struct Mode {
  const char* name;
  std::vector<std::string> flags;
  // Who dies.
  std::string failpoints = "worker.push=crash@150,task=worker-2,life=1.1";
};

class TablesInMode : public TablesTest, public testing::WithParamInterface<Mode> {};

// What is pushed is in the rows, once, also where somebody dies in the middle of it.
TEST_P(TablesInMode, LearnsFromEverySampleOnce) {
  constexpr std::uint64_t kSteps = 600;
  std::vector<std::string> flags = GetParam().flags;
  flags.insert(flags.end(), {"--set", "training.deterministic=false"});
  JobRun run(folder("run"), tablesJob(2, 3, static_cast<int>(kSteps)), flags);
  const ProgramEnd end = run.launchAndWait(GetParam().failpoints);
  ASSERT_EQ(end.code, 0) << end.output;
  auto result = fieldsOf(end.lastLine());
  EXPECT_GT(std::stod(result["auc"]), 0.65);
  EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0);
  const bool steps = std::string_view(GetParam().name) == "BackupWorkers";
  const std::uint64_t expected = kSteps * 32 * (steps ? 2 : 1);
  // A push that the death has cut short is one of them, and has come to some parts.
  const std::uint64_t cut = result.contains("partial") ? std::stoull(result["partial"]) : 0;
  EXPECT_LE(cut, 1);
  EXPECT_GE(countedSamples(run), expected - cut * 32);
  EXPECT_LE(countedSamples(run), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, TablesInMode,
    testing::Values(
        Mode{"Async", {"--set", "training.update.mode=Async"}},
        Mode{"BoundedDelay",
             {"--set", "training.update.mode=BoundedDelay", "--set", "training.update.maxDelay=2"}},
        Mode{"BackupWorkers", {"--set", "training.update.backupWorkers=1"}},
        Mode{"AsyncWithReplicas",
             {"--set", "training.update.mode=Async", "--set", "training.chunkReplicas=Always"},
             "ps.replicated=crash@200,task=ps-1,life=1.1"},
        Mode{"BoundedDelayWithReplicas",
             {"--set", "training.update.mode=BoundedDelay", "--set", "training.update.maxDelay=2",
              "--set", "training.chunkReplicas=Always"},
             "ps.request=crash@200,task=ps-0,life=1.1"}),
    [](const auto& info) { return info.param.name; });

TEST_F(TablesTest, DlrmLearnsToOneResultOnAnyNumberOfServers) {
  JobRun run(folder("run"), dlrmJob(2, 2, 600), {"--set", "training.data.samples=40000"});
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  auto trained = fieldsOf(end.lastLine());
  EXPECT_GT(std::stod(trained["auc"]), 0.65);
  const ProgramEnd scored = program({"trainyard", "checkpoint", "evaluate", run.dir().string()});
  ASSERT_EQ(scored.code, 0) << scored.output;
  EXPECT_EQ(fieldsOf(scored.lastLine())["auc"], trained["auc"]);
  JobRun alone(folder("alone"), dlrmJob(1, 2, 600), {"--set", "training.data.samples=40000"});
  EXPECT_EQ(alone.launchAndWait().code, 0);
  EXPECT_EQ(alone.digest(), run.digest());
}

TEST_F(TablesTest, AGradientThatIsNotFiniteEndsTheJobAndIsNamed) {
  JobRun run(folder("run"), tablesJob(2, 2, 60));
  const ProgramEnd end = run.launchAndWait("worker.rows=nan@30,task=worker-1");
  EXPECT_NE(end.code, 0);
  EXPECT_THAT(end.lastLine(), HasSubstr("failed reason=\"Diverged: "));
  EXPECT_THAT(end.lastLine(), HasSubstr("step 30: table user: the gradient of id "));
}

TEST_F(TablesTest, ATableThatIsFullEndsTheJobAndIsNamed) {
  JobRun run(folder("run"), tablesJob(1, 1, 600, 2'000'000, ""),
             {"--set", "training.batchSize=512", "--set", "training.data.samples=300000"});
  const ProgramEnd end = run.launchAndWait();
  EXPECT_NE(end.code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("table user"));
  EXPECT_THAT(end.output, HasSubstr("rows.max is 10,000"));
}

constexpr int kSamples = 640;

// Each sample has a user of its own, and the same item as all.
std::string countedJob(const std::filesystem::path& file) {
  std::ofstream out(file);
  out << "user,item,click\n";
  for (int i = 0; i < kSamples; ++i) out << fmt::format("{},7,{}\n", 1000 + i, i % 2);
  return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: counted}}
spec:
  ps: {{replicas: 2}}
  worker: {{replicas: 2}}
  training:
    model: {{name: wide_and_deep, hidden: [8]}}
    data:
      format: csv
      files: ["{}"]
      columns:
      - {{name: user, kind: Id}}
      - {{name: item, kind: Id}}
      - {{name: click, kind: Label}}
    tables:
    - {{name: user, features: [user], dim: 4, rows: {{max: 10000}}}}
    - {{name: item, features: [item], dim: 2, rows: {{max: 10000}}}}
    - {{name: wide, features: [user, item], dim: 1, rows: {{max: 10000}}}}
    batchSize: 32
    passes: 1
    optimizer: {{name: Adagrad, learningRate: 0.05}}
)",
                     file.string());
}

// By name, of the newest reports of these tasks: a number of each table, added up.
std::map<std::string, std::int64_t> tableSums(const JobRun& run, const std::string& role,
                                              const std::string& number) {
  std::map<std::string, std::int64_t> sums;
  for (const int index : {0, 1}) {
    const auto report = run.json(fmt::format("tasks/{}-{}/report.json", role, index));
    for (const auto& table : report.value("tables", nlohmann::json::array())) {
      sums[table.at("table")] +=
          parseNumber<std::int64_t>(table.value(number, std::string("0"))).value_or(-1);
    }
  }
  return sums;
}

// In one pass in ten steps of two workers; what an id has in common with others is asked for once.
TEST_F(TablesTest, EachServerAndWorkerTellsWhatWasAskedOfWhichTable) {
  JobRun run(folder("run"), countedJob(root() / "clicks.csv"));
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  using Sums = std::map<std::string, std::int64_t>;
  const Sums ids = {{"user", kSamples}, {"item", 1}, {"wide", kSamples + 1}};
  EXPECT_EQ(tableSums(run, "ps", "rows"), ids);
  EXPECT_EQ(tableSums(run, "ps", "created"), ids);
  EXPECT_EQ(tableSums(run, "ps", "refused"), (Sums{{"user", 0}, {"item", 0}, {"wide", 0}}));
  const Sums asked = {{"user", kSamples}, {"item", 20}, {"wide", kSamples + 20}};
  EXPECT_EQ(tableSums(run, "worker", "distinct"), asked);
  EXPECT_EQ(tableSums(run, "ps", "pulled"), asked);
  EXPECT_EQ(tableSums(run, "ps", "pushed"), asked);
  EXPECT_EQ(tableSums(run, "worker", "occurrences"),
            (Sums{{"user", kSamples}, {"item", kSamples}, {"wide", 2 * kSamples}}));
}

// In a pass twenty others take each id's place, which is used in 16 steps and a row for 56 at most;
// what comes once is none.
TEST_F(TablesTest, WhereIdsComeAndGoSoDoRows) {
  const std::vector<std::string> drift = {"--set", "training.data.order=Sequential", "--set",
                                          "training.data.drift=20"};
  JobRun run(folder("run"), tablesJob(2, 2, 300, 500), drift);
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  auto rows = tableSums(run, "ps", "rows"), created = tableSums(run, "ps", "created");
  auto evicted = tableSums(run, "ps", "evicted"), counted = tableSums(run, "ps", "counted");
  EXPECT_GT(created["user"], 1500);
  EXPECT_GT(counted["user"], 0);
  EXPECT_EQ(created["user"] - evicted["user"], rows["user"]);
  EXPECT_GT(rows["user"], 200);
  EXPECT_LT(rows["user"], 2250);
  EXPECT_GT(rows["wide"], created["user"]) << "nothing goes where nothing is to go";
  EXPECT_EQ(evicted["wide"], 0);
  EXPECT_EQ(run.digest(), undisturbedDigest(tablesJob(1, 2, 300, 500), drift));
}

// Payload of variables and rows, over all servers and steps.
TEST_F(TablesTest, PlanForetellsTheBytesOfAStep) {
  constexpr int kSteps = 400;
  JobRun run(folder("run"), tablesJob(2, 2, kSteps),
             {"--set", "training.data.evalSamples=1", "--set", "training.data.samples=40000"});
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  const ProgramEnd planned = program(
      {"trainyard", "plan", "-o", "json", "-f", (run.dir().parent_path() / "job.yaml").string()});
  ASSERT_EQ(planned.code, 0) << planned.output;
  const auto plan = nlohmann::json::parse(planned.output, nullptr, false);
  const auto check = [&](const std::string& role, const std::string& bytes,
                         const std::string& of_variables, const std::string& of_rows) {
    double foretold = 0, moved = 0;
    for (const std::size_t ps : {0U, 1U}) {
      foretold += plan.at("ps").at(ps).at(of_variables).get<double>();
      foretold += plan.at("tableServers").at(ps).at(of_rows).get<double>();
      const auto report = run.json(fmt::format("tasks/ps-{}/report.json", ps));
      for (const auto& peer : report.at("traffic")) {
        if (peer.at("peer").value("role", "") == role)
          moved += parseNumber<double>(peer.at(bytes).get<std::string>()).value_or(0);
      }
    }
    EXPECT_NEAR(moved / kSteps / foretold, 1, 0.02) << of_rows << ": " << moved / kSteps;
  };
  check("ROLE_WORKER", "receivedBytes", "bytesInPerStep", "bytesInPerStep");
  check("ROLE_WORKER", "transmittedBytes", "bytesOutPerStep", "bytesOutPerStep");
  check("ROLE_PS", "receivedBytes", "replicaBytesInPerStep", "replicaBytesPerStep");
}

}  // namespace
}  // namespace trainyard
