#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/core/strings.h"
#include "cli/run/directory.h"
#include "cli/run/programs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "operator/job/template.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kDirectoryJob[] = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: small}
spec:
  volumes: [{name: data, mountPath: /data}]
  ps: {replicas: 1}
  worker: {replicas: 2}
  training:
    model: {name: mnist_cnn}
    data: {format: idx, images: /data/images, labels: /data/labels, evalImages: /data/ei, evalLabels: /data/el}
    batchSize: 128
    steps: 700
    optimizer: {name: SGD, learningRate: 0.1}
)";

class RunDirectoryTest : public testing::Test {
 protected:
  RunDirectoryTest() {
    std::string name = testing::TempDir() + "run_directory_XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~RunDirectoryTest() override { fs::remove_all(root_); }

  v1::TrainingJob job(std::vector<std::pair<std::string, std::string>> overrides = {}) {
    std::vector<control::JobProblem> problems;
    auto parsed = control::parseJob(kDirectoryJob, "job.yaml", {std::move(overrides)}, &problems);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.ok() ? *parsed : v1::TrainingJob();
  }
  StatusOr<OpenedRun> open(const v1::TrainingJob& job, bool start_anew = false) {
    DirectoryOptions options;
    options.dir = dir();
    options.cwd = root_;
    options.volumes = {{"data", "images"}};
    options.start_anew = start_anew;
    return openRunDirectory(options, job, systemClock());
  }
  std::string dir() const { return root_ + "/run"; }
  std::string problemOf(const v1::TrainingJob& job, bool start_anew = false) {
    return std::string(fromAbsl(open(job, start_anew).status().message()));
  }
  void finish(std::int64_t steps) {
    RunResult result;
    result.outcome = "succeeded";
    result.steps = steps;
    result.dir = "run";
    std::ofstream(dir() + "/result.json") << resultJson(result).dump();
  }

  std::string root_;
};

TEST_F(RunDirectoryTest, AFreshRunIsRecorded) {
  const auto run = open(job());
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(run->headline, HasSubstr("starting 'small'"));
  struct stat status {};
  ASSERT_EQ(::stat(dir().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat((dir() + "/token").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, 65);
  const v1::TrainingJob recorded = control::RunRecord(run->paths).read().value();
  EXPECT_EQ(recorded.metadata().uid().size(), 32u);
  EXPECT_EQ(recorded.spec().training().data().images(), root_ + "/images/images");
}

TEST_F(RunDirectoryTest, TheDirectoryIsForOneLauncher) {
  const auto run = open(job());
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(open(job()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RunDirectoryTest, TheNextLaunchKeepsTheUid) {
  std::string uid;
  {
    const auto run = open(job());
    ASSERT_TRUE(run.ok());
    uid = run->job.metadata().uid();
  }
  const auto again = open(job({{"training.steps", "900"}, {"training.checkpoint.keep", "7"}}));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job.metadata().uid(), uid);
  EXPECT_EQ(again->job.metadata().generation(), 2);
  EXPECT_THAT(again->headline, HasSubstr("again from step 0"));
}

TEST_F(RunDirectoryTest, ChangedFieldsAreNamed) {
  ASSERT_TRUE(open(job()).ok());
  EXPECT_THAT(problemOf(job({{"training.batchSize", "64"}})), HasSubstr("training.batchSize: "));
  EXPECT_THAT(problemOf(job({{"training.model.dropout", "0.25"}})),
              HasSubstr("training.model.dropout: "));
  EXPECT_THAT(problemOf(job({{"ps.maxReplicas", "3"}})), HasSubstr("ps.maxReplicas: "));
  EXPECT_THAT(
      problemOf(job({{"training.steps", "600"}})),
      HasSubstr("training.steps: 700 in " + dir() + "/job.yaml, now 600: it may only grow"));
  EXPECT_TRUE(open(job({{"training.batchSize", "64"}}), true).ok()) << "--new";
}

TEST_F(RunDirectoryTest, AFinishedRunIsNotRepeated) {
  ASSERT_TRUE(open(job()).ok());
  finish(700);
  {
    const auto run = open(job());
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_TRUE(run->finished.has_value());
    EXPECT_EQ(run->finished->steps, 700);
    EXPECT_THAT(run->headline, HasSubstr("has finished already"));
  }
  const auto more = open(job({{"training.steps", "800"}}));
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_FALSE(more->finished.has_value());
}

TEST_F(RunDirectoryTest, PassesMayOnlyGrowToo) {
  const auto passes = [&](const char* count) {
    return job({{"training.steps", ""}, {"training.passes", count}});
  };
  ASSERT_TRUE(open(passes("3")).ok());
  finish(70);
  EXPECT_TRUE(open(passes("3"))->finished.has_value());
  EXPECT_THAT(problemOf(passes("2")),
              HasSubstr("training.passes: 3 in " + dir() + "/job.yaml, now 2: it may only grow"));
  EXPECT_THAT(problemOf(job()), HasSubstr("it cannot change in a run that was begun"));
  const auto more = open(passes("4"));
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_FALSE(more->finished.has_value());
  EXPECT_FALSE(fs::exists(dir() + "/result.json"));
}

TEST_F(RunDirectoryTest, WeightsOfTheSameDirectoryAreRefused) {
  ASSERT_TRUE(open(job()).ok());
  for (const std::string& from : {dir(), dir() + "/checkpoints", dir() + "/../run/checkpoints"}) {
    EXPECT_THAT(problemOf(job({{"training.initFrom", from}}), true),
                HasSubstr("lies in the run's own directory"))
        << from;
  }
  EXPECT_TRUE(fs::exists(dir() + "/job.json"));
  EXPECT_TRUE(open(job({{"training.initFrom", root_ + "/running"}}), true).ok());
}

TEST_F(RunDirectoryTest, NewRemovesOnlyOurOwn) {
  ASSERT_TRUE(open(job()).ok());
  fs::create_directories(dir() + "/tasks/ps-0");
  std::ofstream(dir() + "/metrics.jsonl") << "{}";
  std::ofstream(dir() + "/thesis.tex") << "x";
  EXPECT_THAT(problemOf(job(), true), HasSubstr("'thesis.tex'"));
  EXPECT_TRUE(fs::exists(dir() + "/metrics.jsonl"));
  fs::remove(dir() + "/thesis.tex");
  ASSERT_TRUE(open(job(), true).ok());
  EXPECT_FALSE(fs::exists(dir() + "/metrics.jsonl"));
}

// docs/run_directory.md lists what a run may leave.
TEST_F(RunDirectoryTest, NewRemovesWhateverARunLeaves) {
  ASSERT_TRUE(open(job()).ok());
  const auto put = [&](const char* file) {
    const fs::path path = fs::path(dir()) / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path;
  };
  for (const char* file :
       {"timeline.json", "metrics.former.jsonl", "records/metrics.jsonl",
        "records/events/events.out.tfevents.1.job", "events/events.out.tfevents.1.job",
        "checkpoints/writer-3.json", "checkpoints/finished.json",
        "checkpoints/buffers.step-1200.pt", "checkpoints/buffers.step-1200.safetensors",
        "checkpoints/program-state.step-1200.bin", "checkpoints/program-state.step-1400.bin.tmp"}) {
    put(file);
  }
  EXPECT_EQ(foreignEntry(dir()), "");
  for (const char* foreign : {"checkpoints/photo.pt", "checkpoints/backup.bin", "records/notes.txt",
                              "records/events/notes.txt"}) {
    const fs::path path = put(foreign);
    EXPECT_EQ(foreignEntry(dir()), foreign);
    fs::remove(path);
  }
  const auto anew = open(job(), true);
  ASSERT_TRUE(anew.ok()) << anew.status();
  for (const char* left : {"timeline.json", "metrics.former.jsonl", "records", "checkpoints"}) {
    EXPECT_FALSE(fs::exists(fs::path(dir()) / left)) << left;
  }
}

TEST_F(RunDirectoryTest, ADamagedRecordIsNamed) {
  const auto damaged = [&](const std::string& name, const std::string& text) {
    EXPECT_TRUE(open(job(), true).ok());
    fs::create_directories((fs::path(dir()) / name).parent_path());
    std::ofstream(dir() + "/" + name) << text;
    return problemOf(job());
  };
  EXPECT_THAT(damaged("token", "secret"), HasSubstr("/token: expected a token"));
  EXPECT_THAT(damaged("job.json", "{}"), HasSubstr("/job.json: metadata: "));
  EXPECT_THAT(damaged("job.json", "{"), HasSubstr("/job.json: is not a JSON object"));
  const std::string membership = damaged("membership.json", "{");
  EXPECT_THAT(membership, HasSubstr("/membership.json: "));
  EXPECT_EQ(membership.find('\n'), std::string::npos) << membership;
  EXPECT_THAT(damaged("checkpoints", "x"), HasSubstr("/checkpoints: is no folder"));
  EXPECT_THAT(damaged("tasks/ps-0", "x"), HasSubstr("/tasks/ps-0: is no folder"));
}

TEST_F(RunDirectoryTest, CheckpointsThatAreLeftOutAreNamed) {
  ASSERT_TRUE(open(job()).ok());
  fs::create_directories(dir() + "/checkpoints");
  std::ofstream(dir() + "/checkpoints/step-300.e2.json") << "{";
  const auto run = open(job());
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->warnings.size(), 1u);
  EXPECT_THAT(run->warnings[0], HasSubstr("left out: " + dir() + "/checkpoints/step-300.e2.json"));
  EXPECT_THAT(run->headline, HasSubstr("again from step 0"));
}

TEST_F(RunDirectoryTest, SomebodyElsesFolderIsLeftAlone) {
  fs::create_directories(dir() + "/checkpoints");
  std::ofstream(dir() + "/checkpoints/letter.txt") << "x";
  EXPECT_THAT(problemOf(job()), HasSubstr("'checkpoints/letter.txt'"));
  EXPECT_FALSE(fs::exists(dir() + "/lock"));
}

TEST_F(RunDirectoryTest, AMissingVolumeLeavesTheOldRunAlone) {
  ASSERT_TRUE(open(job()).ok());
  DirectoryOptions options;
  options.dir = dir();
  options.cwd = root_;
  options.start_anew = true;
  const auto run = openRunDirectory(options, job(), systemClock());
  EXPECT_THAT(std::string(fromAbsl(run.status().message())), HasSubstr("give --volume data=DIR"));
  EXPECT_TRUE(fs::exists(dir() + "/job.json"));
}

TEST(JobOfCommand, IsNamedAfterTheScriptAndKeepsItsWords) {
  EXPECT_EQ(jobNameOf({"/usr/bin/python3", "-u", "dir/My_train.py", "--x"}), "my-train");
  EXPECT_EQ(jobNameOf({"./2nd-Try!.sh"}), "nd-try");
  EXPECT_EQ(jobNameOf({"bash", "-c", "echo a b"}), "bash");
  EXPECT_EQ(jobNameOf({"/7/8"}), "command");
  EXPECT_LE(jobNameOf({std::string(300, 'a')}).size(), 48u);

  const auto job = jobOfCommand(
      {.command = {"a", "'b' \"c\" $(RANK)\n", "\xc3\xa9", "yes", ""}, .processes = 3});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec().worker().replicas(), 3);
  const auto command = control::taskCommand(*job, v1::ROLE_WORKER);
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_THAT(command->argv,
              testing::ElementsAre("a", "'b' \"c\" $(RANK)\n", "\xc3\xa9", "yes", ""));
  EXPECT_EQ(commandText(command->argv), "a ''\\''b'\\'' \"c\" $(RANK)\n' '\xc3\xa9' yes ''");
  EXPECT_FALSE(jobOfCommand({.command = {"\xff"}}).ok());
}

TEST(JobOfCommand, OfAClusterHasAnImageAndGpus) {
  const CommandJob command{.command = {"python3", "train.py"},
                           .processes = 16,
                           .horovod = true,
                           .name = "try",
                           .image = "registry/x:1",
                           .gpus = 2};
  const auto json = documentOf(command);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->at("metadata").at("name"), "try");
  EXPECT_EQ(json->at("spec").at("worker").at("replicas"), 16);
  const auto& container =
      json->at("spec").at("worker").at("template").at("spec").at("containers")[0];
  EXPECT_EQ(container.at("image"), "registry/x:1");
  EXPECT_EQ(container.at("resources").at("limits").at("nvidia.com/gpu"), "2");
  EXPECT_EQ(container.at("command").dump(), R"(["python3","-m","trainyard.compat","train.py"])");
  EXPECT_TRUE(jobOfCommand(command).ok()) << jobOfCommand(command).status();
}

TEST(WithHorovodNames, StartsPythonScriptsByOurModule) {
  const auto words = [](const std::vector<std::string>& command) {
    const auto changed = withHorovodNames(command);
    return changed.ok() ? commandText(*changed) : std::string(changed.status().message());
  };
  EXPECT_EQ(words({"python3", "train.py", "-m", "1"}), "python3 -m trainyard.compat train.py -m 1");
  EXPECT_EQ(words({"/usr/bin/python3.12", "-uB", "-W", "ignore", "-Xdev", "a/b.py"}),
            "/usr/bin/python3.12 -uB -W ignore -Xdev -m trainyard.compat a/b.py");
  EXPECT_EQ(words({"python3", "-u", "-m", "a.train", "-x"}),
            "python3 -u -m trainyard.compat -m a.train -x");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"./train.py"},
                                                  {"bash", "x.sh"},
                                                  {"python3"},
                                                  {"python3", "-"},
                                                  {"python3", "-c", "pass"},
                                                  {"python3", "-m"},
                                                  {"python3", "-W"},
                                                  {"python3", "--version"},
                                                  {}}) {
    EXPECT_THAT(words(command), HasSubstr("is no Python program: python3 SCRIPT ARGUMENTS"));
  }
}

}  // namespace
}  // namespace trainyard::cli
