#include "operator/local/run_directory.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "operator/local/leftovers.h"
#include "operator/local/volumes.h"
#include "tests/operator/local/local_run.h"

namespace trainyard::control {
namespace {

using testing::HasSubstr;

TEST(RunRecordTest, ANewLauncherStartsFromAJobAtRest) {
  LocalRun run;
  RunRecord record(run.paths());
  ASSERT_TRUE(record.restStatus().ok());
  EXPECT_FALSE(run.job().has_status()) << "never launched";
  v1::JobStatus status;
  status.set_state("Failed");
  status.set_restarts(3);
  status.mutable_worker()->set_finished_indices("0");
  v1::TaskRecord* task = status.add_tasks();
  task->set_task("worker-1");
  task->set_created(4);
  task->set_restarts(3);
  ASSERT_TRUE(record.writeStatus(run.job().metadata().resource_version(), status).ok());
  const std::string version = run.job().metadata().resource_version();
  ASSERT_TRUE(record.restStatus().ok());
  const v1::TrainingJob rest = run.job();
  EXPECT_NE(rest.metadata().resource_version(), version);
  EXPECT_EQ(rest.status().state(), "Suspended");
  EXPECT_FALSE(rest.status().has_restarts());
  EXPECT_EQ(rest.status().worker().finished_indices(), "");
  ASSERT_EQ(rest.status().tasks_size(), 1);
  EXPECT_EQ(rest.status().tasks(0).created(), 4);
  EXPECT_FALSE(rest.status().tasks(0).has_restarts());
}

TEST(RunRecordTest, DamagedFilesAreNamed) {
  LocalRun run;
  std::ofstream(run.paths().status()) << "{\"version\": \"x\"}";
  EXPECT_THAT(std::string(RunRecord(run.paths()).read().status().message()),
              HasSubstr("status.json"));
  std::ofstream(run.paths().job()) << "{";
  EXPECT_THAT(std::string(RunRecord(run.paths()).read().status().message()), HasSubstr("job.json"));
  std::ofstream(run.paths().membership()) << "[]";
  EXPECT_THAT(std::string(RunRecord(run.paths()).readMembership().status().message()),
              HasSubstr("membership.json"));
}

TEST(RunRecordTest, EventsAreLinesOfJson) {
  LocalRun run;
  RunRecord record(run.paths());
  ASSERT_TRUE(
      record.appendEvent(1'700'000'000'000, "Normal", "A", "with \"quotes\"\nand a line").ok());
  ASSERT_TRUE(record.appendEvent(1'700'000'001'000, "Warning", "B", "bad \xff byte").ok());
  std::ifstream in(run.paths().events());
  std::string first, second, rest;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_FALSE(std::getline(in, rest));
  const auto json = nlohmann::json::parse(first);
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(json["message"], "with \"quotes\"\nand a line");
  EXPECT_EQ(nlohmann::json::parse(second)["reason"], "B");
}

TEST(LeftoversTest, FilesOfKilledWritersGoAndThoseOfAnEditStay) {
  LocalRun run;
  const std::filesystem::path task = run.paths().tasks() / "worker-0";
  std::filesystem::create_directories(task);
  const std::vector<std::filesystem::path> unfinished = {run.paths().dir / ".status.json.RwEEdP",
                                                         task / ".agent.json.a1B2c3"};
  const std::vector<std::filesystem::path> others = {
      run.paths().dir / ".job.yaml.RwEEdP", run.paths().dir / ".hidden",
      run.paths().dir / "status.json.backup", task / ".notes.of mine"};
  for (const auto& paths : {unfinished, others}) {
    for (const auto& path : paths) std::ofstream(path) << "{}";
  }
  endLeftoversOf(run.paths(), systemClock());
  for (const auto& path : unfinished) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  for (const auto& path : others) EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

TEST(AgentFileTest, ReadyFollowsTheChildUnlessItIsPublished) {
  LocalRun run;
  const auto path = run.paths().dir / "agent.json";
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return readAgentFile(path).value();
  };
  EXPECT_TRUE(read(R"({"pid": 7, "child": "Running"})").ready);
  EXPECT_FALSE(read(R"({"pid": 7, "child": "Running", "ready": false})").ready);
  EXPECT_FALSE(read(R"({"pid": 7, "child": "Waiting"})").ready);
  std::ofstream(path) << R"({"pid": "7"})";
  EXPECT_EQ(readAgentFile(path).status().code(), absl::StatusCode::kInvalidArgument);
}

class VolumesTest : public testing::Test {
 protected:
  VolumesTest() {
    v1::Volume* volume = job_.mutable_spec()->add_volumes();
    volume->set_name("data");
    volume->set_mount_path("/data");
    volume = job_.mutable_spec()->add_volumes();
    volume->set_name("deep");
    volume->set_mount_path("/data/deep");
  }
  v1::DataSpec& data() { return *job_.mutable_spec()->mutable_training()->mutable_data(); }
  v1::TrainingJob job_;
};

TEST_F(VolumesTest, PathsBelowAMountGoToTheGivenFolder) {
  data().set_images("/data/a/train-images");
  data().set_labels("/data/deep/labels");
  data().set_eval_images("/usr/share/x");
  data().set_eval_labels("near/y");
  job_.mutable_spec()->mutable_training()->set_init_from("/data/runs/other");
  ASSERT_TRUE(resolveVolumes({{"data", "/mnt/d"}, {"deep", "rel"}}, "/here", &job_).ok());
  EXPECT_EQ(data().images(), "/mnt/d/a/train-images");
  EXPECT_EQ(data().labels(), "/here/rel/labels");
  EXPECT_EQ(data().eval_images(), "/usr/share/x");
  EXPECT_EQ(data().eval_labels(), "/here/near/y");
  EXPECT_EQ(job_.spec().training().init_from(), "/mnt/d/runs/other");
}

TEST_F(VolumesTest, FilesOfAListGoThereOneByOne) {
  data().add_files("/data/a/*.csv.gz");
  data().add_files("near/day-?.csv");
  data().add_eval_files("/data/deep/last.csv");
  ASSERT_TRUE(resolveVolumes({{"data", "/mnt/d"}, {"deep", "rel"}}, "/here", &job_).ok());
  EXPECT_THAT(data().files(), testing::ElementsAre("/mnt/d/a/*.csv.gz", "/here/near/day-?.csv"));
  EXPECT_THAT(data().eval_files(), testing::ElementsAre("/here/rel/last.csv"));
  data().add_files("/data/x");
  EXPECT_EQ(resolveVolumes({}, "/here", &job_).message(),
            "training.data.files[2]: /data/x is on volume 'data': give --volume data=DIR");
}

TEST_F(VolumesTest, MissingFolderNamesFieldAndVolume) {
  data().set_images("/data/x");
  EXPECT_EQ(resolveVolumes({}, "/here", &job_).message(),
            "training.data.images: /data/x is on volume 'data': give --volume data=DIR");
}

TEST_F(VolumesTest, ANameThatIsNotBelowIsNotOnTheVolume) {
  data().set_images("/database/x");
  ASSERT_TRUE(resolveVolumes({}, "/here", &job_).ok());
  EXPECT_EQ(data().images(), "/database/x");
}

TEST_F(VolumesTest, UnknownVolumeIsRefused) {
  EXPECT_THAT(std::string(resolveVolumes({{"dta", "/mnt"}}, "/here", &job_).message()),
              HasSubstr("the job has no volume 'dta'"));
}

}  // namespace
}  // namespace trainyard::control
