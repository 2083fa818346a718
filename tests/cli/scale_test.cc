// Another number of workers for a local job that nobody looks after, and edits of its job.yaml.
#include <functional>
#include <utility>

#include "base/process/files.h"
#include "cli/jobs/control.h"
#include "cli/jobs/edited_job.h"
#include "cli/run/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kScaledJob[] = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: fashion}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2, minReplicas: 2, maxReplicas: 4}
  training:
    model: {name: mlp, hidden: [8]}
    data: {format: synthetic, shape: [4, 4, 1], classes: 3, samples: 64, evalSamples: 16}
    batchSize: 8
    steps: 700
    optimizer: {name: SGD, learningRate: 0.1}
)";

constexpr char kJobOfTables[] = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: clicks}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2}
  training:
    model: {name: wide_and_deep, hidden: [8]}
    data:
      format: synthetic_ctr
      samples: 64
      columns: [{name: user, kind: Id, ids: 10}, {name: click, kind: Label}]
    tables: [{name: user, features: [user], dim: 4, rows: {max: 10}}]
    batchSize: 8
    steps: 700
    optimizer: {name: SGD, learningRate: 0.1}
)";

class RecordedJob : public testing::Test {
 protected:
  explicit RecordedJob(const char* text = kScaledJob)
      : paths_{dir_.path() / "fashion"}, record_(paths_) {
    DirectoryOptions options;
    options.dir = paths_.dir.string();
    options.cwd = dir_.path().string();
    const auto job = control::parseJob(text, "job.yaml", {}, nullptr);
    EXPECT_TRUE(job.ok()) << job.status();
    // Its lock is given back at once: nobody looks after it.
    EXPECT_TRUE(openRunDirectory(options, *job, systemClock()).ok());
  }
  std::string yaml() const { return readFile(paths_.jobYaml(), 1 << 20).value_or(""); }
  void edit(const std::string& from, const std::string& to) {
    std::string text = yaml();
    const std::size_t at = text.rfind(from);
    ASSERT_NE(at, std::string::npos) << text;
    ASSERT_TRUE(writeFileAtomically(paths_.jobYaml(), text.replace(at, from.size(), to)).ok());
  }
  v1::TrainingJob job() const { return record_.read().value(); }
  StatusOr<std::string> scale(int workers) {
    return scaleJob(paths_.dir, {.workers = workers}, true, std::chrono::seconds(5), systemClock());
  }

  TempDir dir_;
  const control::RunPaths paths_;
  control::RunRecord record_;
};

class JobOfTables : public RecordedJob {
 protected:
  JobOfTables() : RecordedJob(kJobOfTables) {}
};

// Of a job that somebody looks after, as it is in memory.
class AttendedJob : public JobControl {
 public:
  explicit AttendedJob(v1::TrainingJob job) {
    view_.name = "clicks";
    view_.launcher = 1;
    view_.state = "Running";
    view_.job = std::move(job);
  }
  std::string shown() const override { return view_.name; }
  StatusOr<JobView> read() override { return view_; }
  Status setSuspend(bool) override { return absl::OkStatus(); }
  StatusOr<bool> suspendAtRest() override { return false; }
  StatusOr<std::int64_t> setReplicas(const Replicas& replicas) override {
    asked = replicas;
    return 2;
  }
  Duration look() const override { return std::chrono::milliseconds(1); }

  std::optional<Replicas> asked;

 private:
  JobView view_;
};

TEST_F(JobOfTables, GetsOtherServersWhileItRuns) {
  AttendedJob running(job());
  const Waiting at_once{.wait = false, .limit = std::chrono::seconds(5)};
  EXPECT_TRUE(scaleJob(running, {.ps = 3}, at_once, systemClock()).ok());
  EXPECT_TRUE(running.asked);
}

TEST_F(JobOfTables, StartsNextWithOtherServers) {
  const auto told = scaleJob(paths_.dir, {.ps = 3}, true, std::chrono::seconds(5), systemClock());
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(job().spec().ps().replicas(), 3);
}

TEST_F(JobOfTables, TakesAnotherNumberOfServersFromItsFile) {
  EditedJob edits(paths_, systemClock());
  ASSERT_NO_FATAL_FAILURE(edit("ps:\n    replicas: 2", "ps:\n    replicas: 3"));
  const std::vector<RunEvent> events = edits.look();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, "state");
  EXPECT_THAT(events[0].message, HasSubstr("ps.replicas: 2 -> 3"));
  EXPECT_EQ(job().spec().ps().replicas(), 3);
}

TEST_F(RecordedJob, StartsNextWithTheNumber) {
  const auto told = scale(3);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(*told, HasSubstr("fashion: workers 2 -> 3, from its next start (it is "));
  EXPECT_EQ(job().spec().worker().replicas(), 3);
  EXPECT_EQ(job().metadata().generation(), 2);
  EXPECT_THAT(yaml(), HasSubstr("replicas: 3"));
  ASSERT_TRUE(scale(3).ok());
  EXPECT_EQ(job().metadata().generation(), 2) << "nothing has changed";
}

TEST_F(RecordedJob, ParameterServersTooAndBothAtOnce) {
  const auto told =
      scaleJob(paths_.dir, {.ps = 3, .workers = 4}, true, std::chrono::seconds(5), systemClock());
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_THAT(*told, HasSubstr("fashion: ps 2 -> 3, workers 2 -> 4, from its next start (it is "));
  EXPECT_EQ(job().spec().ps().replicas(), 3);
  EXPECT_EQ(job().spec().worker().replicas(), 4);
  EXPECT_EQ(job().metadata().generation(), 2);
  const Status none =
      scaleJob(paths_.dir, {.ps = 0}, true, std::chrono::seconds(5), systemClock()).status();
  EXPECT_THAT(none.ToString(), HasSubstr("spec.ps.replicas"));
  EXPECT_EQ(job().spec().ps().replicas(), 3);
}

TEST_F(RecordedJob, HasBounds) {
  EXPECT_THAT(scale(5).status().ToString(),
              HasSubstr("spec.worker.replicas: 5 is above maxReplicas 4"));
  EXPECT_THAT(scale(1).status().ToString(),
              HasSubstr("spec.worker.replicas: 1 is below minReplicas 2"));
  EXPECT_TRUE(absl::IsInvalidArgument(scale(0).status()));
  EXPECT_EQ(job().spec().worker().replicas(), 2);
  EXPECT_EQ(job().metadata().generation(), 1);
}

TEST_F(RecordedJob, ThatHasEndedStaysAsItIs) {
  v1::JobStatus status;
  status.set_state("Succeeded");
  v1::Condition* condition = status.add_conditions();
  condition->set_type("Succeeded");
  condition->set_status("True");
  ASSERT_TRUE(record_.writeStatus(job().metadata().resource_version(), status).ok());
  const Status ended = scale(3).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(ended)) << ended;
  EXPECT_THAT(ended.ToString(), HasSubstr("'fashion' has ended already: Succeeded"));
  EXPECT_EQ(job().spec().worker().replicas(), 2);
}

TEST_F(RecordedJob, MayBeLaunchedAgainWithAnotherNumber) {
  v1::TrainingJob other = control::parseJob(kScaledJob, "job.yaml", {}, nullptr).value();
  const auto before = toJson(other.spec());
  other.mutable_spec()->mutable_worker()->set_replicas(4);
  EXPECT_THAT(forbiddenChanges(before, toJson(other.spec())), IsEmpty());
  other.mutable_spec()->mutable_ps()->set_replicas(1);
  EXPECT_THAT(forbiddenChanges(before, toJson(other.spec())), IsEmpty());
  other.mutable_spec()->mutable_ps()->set_max_replicas(3);
  EXPECT_THAT(forbiddenChanges(before, toJson(other.spec())), SizeIs(1));
}

TEST_F(RecordedJob, MayBeLaunchedAgainWithTheOtherStrategy) {
  v1::TrainingJob other = control::parseJob(kScaledJob, "job.yaml", {}, nullptr).value();
  const auto before = toJson(other.spec());
  other.mutable_spec()->set_strategy("AllReduce");
  other.mutable_spec()->clear_ps();
  EXPECT_THAT(forbiddenChanges(before, toJson(other.spec())), IsEmpty());
  EXPECT_THAT(forbiddenChanges(toJson(other.spec()), before), IsEmpty());
  other.mutable_spec()->mutable_training()->set_seed(77);
  EXPECT_THAT(forbiddenChanges(before, toJson(other.spec())), SizeIs(1));
}

TEST_F(RecordedJob, TakesOverWhatMayChangeAndSetsTheRestBack) {
  EditedJob edits(paths_, systemClock());
  EXPECT_THAT(edits.look(), IsEmpty());
  ASSERT_NO_FATAL_FAILURE(edit("  replicas: 2\n    minReplicas", "  replicas: 4\n    minReplicas"));
  ASSERT_NO_FATAL_FAILURE(edit("batchSize: 8", "batchSize: 16"));
  const std::vector<RunEvent> events = edits.look();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].kind, "state");
  EXPECT_THAT(events[0].message, HasSubstr("job.yaml: worker.replicas: 2 -> 4"));
  EXPECT_EQ(events[1].kind, "warning");
  EXPECT_THAT(events[1].message, HasSubstr("cannot change while the job runs, and is set back: "
                                           "training.batchSize: 8 -> 16"));
  EXPECT_EQ(job().spec().worker().replicas(), 4);
  EXPECT_EQ(job().spec().training().batch_size(), 8);
  EXPECT_THAT(yaml(), HasSubstr("batchSize: 8"));
  EXPECT_THAT(edits.look(), IsEmpty());
}

TEST_F(RecordedJob, SaysNothingOfWhatTheVerbsWrite) {
  EditedJob edits(paths_, systemClock());
  ASSERT_TRUE(scale(4).ok());
  EXPECT_THAT(edits.look(), IsEmpty());
  EXPECT_EQ(job().metadata().generation(), 2);
}

TEST_F(RecordedJob, LeavesOutAFileThatIsNoJob) {
  EditedJob edits(paths_, systemClock());
  ASSERT_NO_FATAL_FAILURE(edit("replicas: 2\n    minReplicas", "replicas: many\n    minReplicas"));
  const std::vector<RunEvent> events = edits.look();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, "warning");
  EXPECT_THAT(events[0].message, HasSubstr("the edited file is left out: "));
  EXPECT_THAT(events[0].message, HasSubstr("spec.worker.replicas"));
  EXPECT_EQ(job().metadata().generation(), 1);
}

TEST_F(RecordedJob, MayLoseAField) {
  EditedJob edits(paths_, systemClock());
  ASSERT_NO_FATAL_FAILURE(edit("    maxReplicas: 4\n", ""));
  ASSERT_THAT(edits.look(), SizeIs(1));
  EXPECT_FALSE(job().spec().worker().has_max_replicas());
}

TEST_F(RecordedJob, TakesOverAnotherNumberOfSteps) {
  EditedJob edits(paths_, systemClock());
  ASSERT_NO_FATAL_FAILURE(edit("steps: 700", "steps: 300"));
  const std::vector<RunEvent> events = edits.look();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, "state");
  EXPECT_THAT(events[0].message, HasSubstr("job.yaml: training.steps: 700 -> 300"));
  EXPECT_EQ(job().spec().training().steps(), 300);
  ASSERT_NO_FATAL_FAILURE(edit("steps: 300", "steps: 900"));
  EXPECT_THAT(edits.look(), SizeIs(1));
  EXPECT_EQ(job().spec().training().steps(), 900);
}

TEST_F(RecordedJob, DoesNotTakeStepsForPasses) {
  EditedJob edits(paths_, systemClock());
  ASSERT_NO_FATAL_FAILURE(edit("steps: 700", "passes: 3"));
  const std::vector<RunEvent> events = edits.look();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, "warning");
  EXPECT_THAT(events[0].message, HasSubstr("training.steps: 700 -> nothing"));
  EXPECT_EQ(job().spec().training().steps(), 700);
  EXPECT_FALSE(job().spec().training().has_passes());
  EXPECT_THAT(yaml(), HasSubstr("steps: 700"));
}

// Asked for the time when the file has been read and the record is not locked yet.
class Interruption : public Clock {
 public:
  explicit Interruption(std::function<void()> once) : once_(std::move(once)) {}
  TimePoint now() const override {
    if (const auto once = std::exchange(once_, nullptr)) once();
    return systemClock().now();
  }
  UnixMillis unixMillis() const override { return systemClock().unixMillis(); }

 private:
  mutable std::function<void()> once_;
};

TEST_F(RecordedJob, AnEditThatWasReadBeforeDoesNotUndoANewerNumber) {
  const Interruption clock([&] { EXPECT_TRUE(scale(4).ok()); });
  EditedJob edits(paths_, clock);
  edit("replicas: 2", "replicas: 3");
  edits.look();
  EXPECT_EQ(job().spec().worker().replicas(), 4);
  EXPECT_THAT(edits.look(), IsEmpty());
  EXPECT_EQ(job().spec().worker().replicas(), 4);
  EXPECT_THAT(yaml(), HasSubstr("replicas: 4"));
}

}  // namespace
}  // namespace trainyard::cli
