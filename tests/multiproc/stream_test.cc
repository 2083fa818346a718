// How much a step takes and how far the data goes: one batch for all workers, passes instead of
// steps with a short last step, and weights of another run, through the programs, with deaths.
#include <signal.h>

#include <set>

#include "base/process/files.h"
#include "fmt/format.h"
#include "runtime/data/sample_stream.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/multiproc/side_by_side.h"

namespace trainyard {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

using Sets = std::vector<std::string>;

// `passes` over `samples` samples, `batch` of them in a step of all workers.
Sets passes(int passes, int samples, int batch) {
  return {"training.steps=null", "training.batchSize=null",
          fmt::format("training.passes={}", passes),
          fmt::format("training.globalBatchSize={}", batch),
          fmt::format("training.data.samples={}", samples)};
}

class StreamTest : public RunTest {
 protected:
  static std::vector<std::string> flags(const Sets& sets) {
    std::vector<std::string> result;
    for (const std::string& set : sets) result.insert(result.end(), {"--set", set});
    return result;
  }
  // A run of its own to its end: the digest.
  std::string digestOf(const std::string& name, int ps, const Sets& sets) {
    JobRun run(folder(name), smallJob(ps, 3, 30), flags(sets));
    const ProgramEnd end = run.launchAndWait();
    EXPECT_EQ(end.code, 0) << end.output;
    return run.digest();
  }
  // Kills a worker's process and waits for its successor.
  static void killWorker(const JobRun& run, const std::string& worker) {
    const pid_t killed = run.runtimePid(worker);
    ASSERT_NO_FATAL_FAILURE(killTask(run, worker));
    ASSERT_TRUE(eventually([&] {
      const pid_t now = run.runtimePid(worker);
      return now > 0 && now != killed;
    }));
  }
  static void expectSteps(const ProgramEnd& end, int steps) {
    ASSERT_EQ(end.code, 0) << end.output;
    EXPECT_THAT(end.lastLine(), StartsWith(fmt::format("result: succeeded steps={} ", steps)));
  }
  // Weights of a checkpoint as one file, without what names the run.
  std::string weightsOf(const JobRun& run, const std::string& step) {
    const std::string out = (root() / "weights.safetensors").string();
    const ProgramEnd end = program(
        {"trainyard", "checkpoint", "export", run.dir().string(), "--output", out, "--step", step});
    EXPECT_EQ(end.code, 0) << end.output;
    const std::string bytes = readFile(out, 1 << 24).value_or("");
    EXPECT_GT(bytes.size(), 4000u);
    std::uint64_t header = 0;
    std::copy_n(bytes.data(), sizeof header, reinterpret_cast<char*>(&header));
    // Behind the header the tensors follow in the order of their names; global_step is one of them.
    const auto json = nlohmann::json::parse(bytes.substr(8, header), nullptr, false);
    std::string weights;
    for (const auto& [name, tensor] : json.items()) {
      if (name == "__metadata__" || name == "global_step") continue;
      const std::size_t begin = tensor.at("data_offsets").at(0);
      const std::size_t end_offset = tensor.at("data_offsets").at(1);
      weights += name + tensor.at("shape").dump();
      weights += bytes.substr(8 + header + begin, end_offset - begin);
    }
    return weights;
  }
};

TEST_F(StreamTest, AGlobalBatchThatDividesIsTheSameAsABatchOfEachWorker) {
  const std::string each = digestOf("each", 2, {"training.batchSize=32"});
  EXPECT_EQ(digestOf("all", 2, {"training.batchSize=null", "training.globalBatchSize=96"}), each);
  EXPECT_NE(digestOf("other", 2, {"training.batchSize=null", "training.globalBatchSize=97"}), each);
}

// 997 samples twice, 50 in a step of 3 workers: 39 full steps, the last has 44.
TEST_F(StreamTest, EverySampleIsUsedOnceInEachPassAlthoughAWorkerDies) {
  constexpr std::int64_t kSamples = 997;
  const Sets sets = passes(2, kSamples, 50);
  JobRun run(folder("killed"), smallJob(2, 3, 30), flags(sets));
  run.launch("worker.push=delay(600000)@20,task=worker-1,life=1.1");
  ASSERT_TRUE(run.reaches("worker-1", 19));
  ASSERT_NO_FATAL_FAILURE(killWorker(run, "worker-1"));
  expectSteps(run.wait(), 40);
  EXPECT_EQ(run.json("status.json").at("status").at("progress").value("steps", 0), 40);
  EXPECT_EQ(run.json("status.json").at("status").value("lostSteps", 0), 0);

  expectEachPositionOnce(run, 3, 2 * kSamples);
  runtime::SampleStream stream(/*seed=*/3, kSamples);
  std::map<std::int64_t, std::set<std::int64_t>> used;  // by pass
  for (const auto& [position, count] : usesOfPositions(run, 3)) {
    std::int64_t sample = -1;
    stream.lookUp(position, {&sample, 1});
    used[position / kSamples].insert(sample);
  }
  ASSERT_EQ(used.size(), 2u);
  for (const auto& [pass, samples] : used) {
    EXPECT_EQ(static_cast<std::int64_t>(samples.size()), kSamples) << "pass " << pass;
  }
  std::map<int, std::int64_t> full;  // by rank, of a full and of the last step
  std::map<int, std::int64_t> last;
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) {
    for (const PositionRecord& record : run.positions(worker)) {
      if (record.step == 38) full[record.rank] = record.count;
      if (record.step == 39) last[record.rank] = record.count;
    }
  }
  EXPECT_EQ(full, (std::map<int, std::int64_t>{{0, 17}, {1, 17}, {2, 16}}));
  EXPECT_EQ(last, (std::map<int, std::int64_t>{{0, 15}, {1, 15}, {2, 14}}));

  const std::string digest = run.digest();
  EXPECT_EQ(digestOf("one", 1, sets), digest);
  EXPECT_EQ(digestOf("three", 3, sets), digest);
}

// 301 samples, 50 in a step: the last step has one sample, that of worker 0.
TEST_F(StreamTest, WorkersWithoutSamplesAreNotWaitedFor) {
  const Sets sets = passes(1, 301, 50);
  const std::string undisturbed = digestOf("undisturbed", 2, sets);
  const std::vector<std::string> victims = {"worker-0", "worker-2"};
  sideBySide(victims.size(), [&](std::size_t i) {
    const std::string& victim = victims[i];
    JobRun run(folder(victim), smallJob(2, 3, 30), flags(sets));
    // Its gradient of the short step is with the servers in part while somebody dies.
    run.launch("worker.push=delay(600000)@6,task=worker-0" + run.untilReleased());
    ASSERT_TRUE(run.reaches("worker-2", 5));
    ASSERT_TRUE(run.reaches("worker-0", 5));
    ASSERT_NO_FATAL_FAILURE(killWorker(run, victim));
    const ProgramEnd end = run.releaseAndWait();
    ASSERT_NO_FATAL_FAILURE(expectSteps(end, 7));
    EXPECT_THAT(end.lastLine(), HasSubstr("accuracy="));
    EXPECT_EQ(run.digest(), undisturbed) << victim;
    EXPECT_EQ(run.json("status.json").at("status").value("lostSteps", 0), 0);
    EXPECT_EQ(run.positions("worker-0").back().step, 6);
    EXPECT_EQ(run.positions("worker-0").back().count, 1);
    for (const char* idle : {"worker-1", "worker-2"}) {
      EXPECT_EQ(run.positions(idle).back().step, 5) << "no part in step 6";
    }
    expectEachPositionOnce(run, 3, 301);
  });
}

TEST_F(StreamTest, AFinishedRunGoesOnWithMorePassesWhereItsDataEnded) {
  JobRun first(folder("more"), smallJob(2, 3, 30), flags(passes(1, 301, 50)));
  expectSteps(first.launchAndWait(), 7);
  const std::string digest = first.digest();
  // Without its result it finds in its checkpoints that nothing is left to do.
  ASSERT_TRUE(std::filesystem::remove(first.dir() / "result.json"));
  expectSteps(first.launchAndWait(), 7);
  EXPECT_EQ(first.digest(), digest);
  EXPECT_THAT(first.output(), HasSubstr("resuming 'small' from step 7, after 1.0 of 1 passes"));

  JobRun more(folder("more"), smallJob(2, 3, 30), flags(passes(3, 301, 50)));
  expectSteps(more.launchAndWait(), 20);  // 7 + 602 / 50
  expectEachPositionOnce(more, 3, 3 * 301);
  const ProgramEnd again = more.launchAndWait();
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.output, HasSubstr("has finished already"));
  JobRun fewer(folder("more"), smallJob(2, 3, 30), flags(passes(2, 301, 50)));
  const ProgramEnd refused = fewer.launchAndWait();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output,
              AllOf(HasSubstr("training.passes: 3 in"), HasSubstr("may only grow")));
}

TEST_F(StreamTest, ARunStartsFromTheWeightsOfAnother) {
  JobRun source(folder("source"), smallJob(2, 2, 40));
  const ProgramEnd learned = source.launchAndWait();
  ASSERT_EQ(learned.code, 0) << learned.output;
  // Another optimizer, number of servers and workers, seed; a run directory, its newest checkpoint.
  JobRun run(folder("next"), smallJob(3, 1, 20),
             flags({fmt::format("training.initFrom={}", source.dir().string()), "training.seed=9",
                    "training.optimizer={name: Adam, learningRate: 0.001}"}));
  const ProgramEnd end = run.launchAndWait();
  ASSERT_NO_FATAL_FAILURE(expectSteps(end, 20));
  EXPECT_EQ(weightsOf(run, "0"), weightsOf(source, "40"));
  EXPECT_NE(weightsOf(run, "20"), weightsOf(source, "40"));
  const ProgramEnd score =
      program({"trainyard", "checkpoint", "evaluate", run.dir().string(), "--step", "0"});
  ASSERT_EQ(score.code, 0) << score.output;
  EXPECT_EQ(fieldsOf(score.lastLine())["accuracy"], fieldsOf(learned.lastLine())["accuracy"]);

  // Once begun it goes on from its own checkpoints, wherever the other run has gone.
  std::filesystem::remove_all(source.dir());
  JobRun longer(folder("next"), smallJob(3, 1, 30),
                flags({fmt::format("training.initFrom={}", source.dir().string()),
                       "training.seed=9", "training.optimizer={name: Adam, learningRate: 0.001}"}));
  expectSteps(longer.launchAndWait(), 30);
  EXPECT_THAT(longer.output(), HasSubstr("resuming 'small' from step 20 of 30"));
}

TEST_F(StreamTest, WeightsThatDoNotFitAreNamed) {
  JobRun source(folder("source"), smallJob(1, 1, 4));
  ASSERT_EQ(source.launchAndWait().code, 0);
  const std::string checkpoints = (source.dir() / "checkpoints").string();
  struct Row {
    const char* name;
    Sets sets;
    std::vector<std::string> words;
  };
  const std::vector<Row> rows = {
      {"missing",
       {fmt::format("training.initFrom={}/absent", root().string())},
       {"absent: No such file or directory"}},
      {"no checkpoint",
       {fmt::format("training.initFrom={}", source.taskDir("ps-0").string())},
       {"tasks/ps-0: holds no checkpoint, expected a run directory"}},
      {"no manifest",
       {fmt::format("training.initFrom={}/status.json", source.dir().string())},
       {"status.json: not the name of a checkpoint"}},
      {"shape",
       {fmt::format("training.initFrom={}", checkpoints), "training.model.hidden=[48]"},
       {"step-4.e1.json: variable hidden1_wei is F32 [64, 32], the model's is F32 [64, 48]"}},
      {"variables",
       {fmt::format("training.initFrom={}", checkpoints), "training.model.hidden=[32, 32]"},
       {"step-4.e1.json: has no variable hidden2_wei, the model's is [32, 32]"}},
  };
  const auto expectFailure = [&](const std::string& name, const Sets& sets,
                                 const std::vector<std::string>& words) {
    SCOPED_TRACE(name);
    JobRun run(folder(name), smallJob(2, 1, 4), flags(sets));
    const ProgramEnd end = run.launchAndWait();
    EXPECT_EQ(end.code, 1);
    EXPECT_THAT(end.lastLine(), StartsWith("result: failed reason="));
    EXPECT_THAT(end.lastLine(), HasSubstr("training.initFrom: "));
    for (const std::string& word : words) EXPECT_THAT(end.lastLine(), HasSubstr(word));
    EXPECT_EQ(run.json("status.json").at("status").value("restarts", 0), 0) << "not tried again";
    EXPECT_TRUE(run.checkpointSteps().empty());
  };
  for (const Row& row : rows) expectFailure(row.name, row.sets, row.words);

  // A flipped bit in the weights of the newest checkpoint; the one before it is not taken instead.
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints)) {
    const std::string path = entry.path().string();
    if (path.find("step-4.") == std::string::npos || !path.ends_with(".safetensors")) continue;
    std::string bytes = readFile(path, 1 << 24).value_or("");
    ASSERT_FALSE(bytes.empty());
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    ASSERT_TRUE(writeFileAtomically(path, bytes).ok());
  }
  expectFailure("damaged", {fmt::format("training.initFrom={}", checkpoints)},
                {"step-4.e1", ".safetensors: SHA-256"});

  JobRun own(folder("own"), smallJob(1, 1, 4));
  ASSERT_EQ(own.launchAndWait().code, 0);
  std::vector<std::string> again = flags({fmt::format("training.initFrom={}", own.dir().string())});
  again.push_back("--new");
  JobRun eater(folder("own"), smallJob(1, 1, 4), again);
  const ProgramEnd refused = eater.launchAndWait();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("lies in the run's own directory"));
  EXPECT_FALSE(own.checkpointSteps().empty());
}

}  // namespace
}  // namespace trainyard
