#include <filesystem>

#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "tests/operator/job/job_fixture.h"

namespace trainyard::control::testing {
namespace {

v1::TrainingJob example(const std::string& name) {
  std::vector<JobProblem> problems;
  const auto job = loadJob(sourcePath("examples/" + name), {}, &problems);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : v1::TrainingJob();
}

TEST(Examples, AllAreValid) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(sourcePath("examples"))) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    std::vector<JobProblem> problems;
    EXPECT_TRUE(loadJob(entry.path(), {}, &problems).ok())
        << (problems.empty() ? "" : problems.front().text());
  }
  EXPECT_GE(count, 7);
}

TEST(Examples, TheDemoIsWhatThisReleaseTrains) {
  const v1::TrainingJob job = example("fashion-mnist/ps-sync.yaml");
  EXPECT_TRUE(checkSupported(job).ok()) << checkSupported(job);
  EXPECT_EQ(job.spec().ps().replicas(), 2);
  EXPECT_EQ(job.spec().worker().replicas(), 2);
  EXPECT_EQ(job.spec().training().steps(), 700);
  EXPECT_EQ(job.spec().training().batch_size(), 128);
  EXPECT_EQ(job.spec().volumes(0).name(), "data");
  EXPECT_EQ(job.spec().training().optimizer().decay().every(), 200);
}

TEST(Examples, TheRingIsWhatThisReleaseTrains) {
  const v1::TrainingJob job = example("fashion-mnist/allreduce.yaml");
  EXPECT_TRUE(checkSupported(job).ok()) << checkSupported(job);
  EXPECT_EQ(job.spec().strategy(), "AllReduce");
  EXPECT_FALSE(job.spec().has_ps());
}

TEST(Examples, TheClicksAreWhatThisReleaseTrains) {
  const v1::TrainingJob job = example("ctr/synthetic.yaml");
  EXPECT_TRUE(checkSupported(job).ok()) << checkSupported(job);
  const v1::Training& training = job.spec().training();
  ASSERT_EQ(training.tables_size(), 3);
  EXPECT_EQ(training.tables(0).combiner(), "Mean");
  EXPECT_EQ(training.tables(0).on_full(), "Fail");
  EXPECT_EQ(training.tables(2).initial().distribution(), "Zeros");
  EXPECT_EQ(training.tables(2).features_size(), 2);
  EXPECT_EQ(training.data().columns(1).ids(), 20000);
}

TEST(Examples, TheClicksOfCriteoAreWhatThisReleaseTrains) {
  const v1::TrainingJob job = example("ctr/criteo.yaml");
  EXPECT_TRUE(checkSupported(job).ok()) << checkSupported(job);
  const v1::Training& training = job.spec().training();
  EXPECT_EQ(training.data().format(), "criteo");
  ASSERT_EQ(training.tables_size(), 2);
  for (const v1::TableSpec& table : training.tables()) EXPECT_EQ(table.features_size(), 26);
}

TEST(Examples, TheInteractionsAreWhatThisReleaseTrains) {
  const v1::TrainingJob job = example("ctr/dlrm.yaml");
  EXPECT_TRUE(checkSupported(job).ok()) << checkSupported(job);
  EXPECT_EQ(job.spec().training().model().bottom_hidden(1), 16);
}

TEST(Examples, PlacementsAreOfSevenWorkersAndTwoPs) {
  for (const std::string model : {"mnist", "vgg19"}) {
    for (const auto& [file, strategy] :
         {std::pair{"roundrobin", "RoundRobin"}, std::pair{"fixedsize", "FixedSize"},
          std::pair{"balanced", "Balanced"}}) {
      const v1::TrainingJob job = example("placement/" + model + "-" + file + ".yaml");
      EXPECT_EQ(job.spec().ps().replicas(), 2);
      EXPECT_EQ(job.spec().worker().replicas(), 7);
      EXPECT_EQ(job.spec().training().placement().strategy(), strategy);
    }
  }
  const auto fixed = example("placement/mnist-fixedsize.yaml").spec().training().placement();
  EXPECT_EQ(fixed.fixed_size().shards(), 2);
  EXPECT_EQ(fixed.fixed_size().axis(), 0);
}

}  // namespace
}  // namespace trainyard::control::testing
