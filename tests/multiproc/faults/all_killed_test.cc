// All processes that compute die at once, their agents live on: nobody is left who has taken the
// steps, and they are counted all the same.
#include <signal.h>

#include <string>

#include "fmt/format.h"
#include "tests/multiproc/faults/killed_run.h"
#include "tests/multiproc/metrics_page.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

constexpr int kAllKilledSteps = 200;

TEST_F(RunTest, StepsThatNobodySurvivesAreCounted) {
  const std::string yaml = smallJob(2, 2, kAllKilledSteps);
  JobRun run(folder("all"), yaml);
  run.launch(run.slowSteps(80));
  ASSERT_TRUE(run.reaches("worker-0", 80));
  // The agent, who lives on and tells the next coordinator, has heard from this one of steps: of
  // their loss.
  const auto heard = [&] {
    return metricsPage(run, "ps-0").find("trainyard_training_loss{") != std::string::npos;
  };
  ASSERT_TRUE(eventually(heard));
  for (const int signal : {SIGSTOP, SIGKILL}) {  // none of them sees another die
    for (const char* task : {"ps-0", "ps-1", "worker-0", "worker-1"})
      ASSERT_NO_FATAL_FAILURE(killTask(run, task, signal));
  }
  const ProgramEnd end = run.releaseAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(run.digest(), undisturbedDigest(yaml));
  const std::int64_t told = run.json("status.json").at("status").value("lostSteps", 0);
  fmt::print("{} of {} steps that were taken again are told of\n", told, repeatedSteps(run, 2));
  EXPECT_GT(told, 0);
  EXPECT_LE(told, repeatedSteps(run, 2));
}

}  // namespace
}  // namespace trainyard
