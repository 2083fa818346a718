#include "operator/record/event_recorder.h"

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/fakes/fake_cluster.h"

namespace trainyard::control {
namespace {

using std::chrono::minutes;

class EventRecorderTest : public testing::Test {
 protected:
  EventRecorderTest() : job_(fakeJob("job", 1, 1)) { cluster_.addJob(job_); }
  // How many of `n` events were recorded.
  std::size_t record(int n, const std::string& reason = "TaskLost") {
    for (int i = 0; i < n; ++i) recorder_.record(job_, "Warning", reason, fmt::format("no. {}", i));
    last_ = cluster_.takeTrace();
    return last_.size();
  }
  FakeClock clock_;
  FakeCluster cluster_;
  EventRecorder recorder_{cluster_, clock_};
  v1::TrainingJob job_;
  std::vector<std::string> last_;
};

TEST_F(EventRecorderTest, FewEventsPassAsTheyAre) {
  EXPECT_EQ(record(3), 3u);
  EXPECT_EQ(last_[2], "event Warning TaskLost: no. 2");
  EXPECT_EQ(recorder_.dropped(), 0u);
}

TEST_F(EventRecorderTest, ManyOfOneKindAreCutAndCounted) {
  EXPECT_EQ(record(14), 10u);
  EXPECT_EQ(recorder_.dropped(), 4u);
  EXPECT_EQ(record(1, "JobFailed"), 1u) << "another reason is another kind";
  clock_.advance(minutes(10));
  EXPECT_EQ(record(2), 2u);
  EXPECT_EQ(last_[0], "event Warning TaskLost: no. 0 (and 4 more like it before)");
  EXPECT_EQ(last_[1], "event Warning TaskLost: no. 1");
}

TEST_F(EventRecorderTest, OneJobHasABucket) {
  std::size_t recorded = 0;
  for (int kind = 0; kind < 10; ++kind) recorded += record(5, fmt::format("Kind{}", kind));
  EXPECT_EQ(recorded, 25u);
  clock_.advance(minutes(5));
  EXPECT_EQ(record(3, "Other"), 1u);
  clock_.advance(minutes(24 * 60));
  EXPECT_EQ(record(9, "Late"), 9u);
}

TEST_F(EventRecorderTest, JobsDoNotShareABucketAndAnotherUidIsAnotherJob) {
  record(14);
  job_.mutable_metadata()->set_uid("another");
  cluster_.addJob(job_);
  EXPECT_EQ(record(10), 10u);
}

TEST_F(EventRecorderTest, ForgetsTheLongestSilentJob) {
  EventLimits limits;
  limits.similar_max = 1;
  limits.jobs_max = 2;
  EventRecorder recorder(cluster_, clock_, limits);
  const auto tell = [&](const std::string& name) {
    v1::TrainingJob job = fakeJob(name, 1, 1);
    cluster_.addJob(job);
    recorder.record(job, "Normal", "JobRunning", "");
    clock_.advance(std::chrono::seconds(1));
    return cluster_.takeTrace().size();
  };
  EXPECT_EQ(tell("a"), 1u);
  EXPECT_EQ(tell("b"), 1u);
  EXPECT_EQ(tell("a"), 0u);
  EXPECT_EQ(tell("c"), 1u);  // takes the place of b
  EXPECT_EQ(tell("a"), 0u);
  EXPECT_EQ(tell("b"), 1u);
}

}  // namespace
}  // namespace trainyard::control
