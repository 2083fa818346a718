// Whole runs of an embedding with sparse gradients, under AllReduce: the workers send rows, and end
// with the weights that they would have if they sent all of the table.
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/multiproc/metrics_page.h"
#include "tests/multiproc/run_fixture.h"
#include "tests/runtime/model/script_fixture.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kPixels = 36;
constexpr int kClasses = 4;
constexpr int kTableRows = 16 * kPixels;
constexpr int kRowsWorkers = 2;
constexpr int kRowsBatch = 2;  // of each worker: rows are few

class RowsTest : public RunTest {
 protected:
  // The table's gradient is sparse in a pass, or whole.
  std::string job(bool sparse) {
    const std::string file = (root() / (sparse ? "sparse.pt" : "whole.pt")).string();
    ScriptOptions options;
    options.embedding = true;
    options.source = kEmbeddingSource;
    const std::string look_up = "self.logits(batch, True)\n    return torch.nll";
    if (!sparse) {
      options.source.replace(options.source.find(look_up), look_up.size(),
                             "self.logits(batch, False)\n    return torch.nll");
    }
    writeScript(file, kPixels, kClasses, options);
    return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: rows}}
spec:
  strategy: AllReduce
  worker: {{replicas: {}}}
  training:
    model: {{name: torchscript, path: {}}}
    data: {{format: synthetic, shape: [6, 6, 1], classes: {}, samples: 401, evalSamples: 100}}
    batchSize: {}
    steps: 150
    optimizer: {{name: Momentum, learningRate: 0.1, clipNorm: 0.5}}
)",
                       kRowsWorkers, file, kClasses, kRowsBatch);
  }

  // What worker-0 sent in all-reduces for a step, on average over the first ones.
  double bytesOfStep(bool sparse) {
    constexpr int kSteps = 30;
    JobRun run(folder(sparse ? "sparse" : "whole"), job(sparse), kTcp);
    // All workers stay in these steps: what they report has time to arrive.
    run.launch(fmt::format("worker.compute=delay(6000)@{}-{}", kSteps, kSteps + 10));
    // From one report, and so of one moment.
    double steps = 0;
    double bytes = 0;
    EXPECT_TRUE(eventually(
        [&] {
          const std::string page = metricsPage(run, "worker-0");
          steps = metricOf(page, "trainyard_worker_step_duration_seconds_count");
          bytes = metricOf(page, "trainyard_collective_bytes_total",
                           R"(op="all_reduce",direction="transmit")");
          return steps >= kSteps;
        },
        std::chrono::seconds(60)));
    EXPECT_TRUE(run.launcher().signal(SIGKILL).ok());
    if (HasFailure()) run.printLogs();
    return bytes / steps;
  }

  // Ranks that do not have one address share no memory.
  const std::vector<std::string> kTcp = {"--task-address", "worker-0=127.0.0.1", "--task-address",
                                         "worker-1=127.0.0.2"};
};

// 401 samples of two workers with two each: the last step of a pass has a worker without samples.
// Gradients are clipped; a worker that dies comes back, and nothing is lost.
TEST_F(RowsTest, TheWeightsAreThoseOfWholeGradients) {
  std::vector<std::string> digests;
  for (const std::string deterministic : {"true", "false"}) {
    std::vector<std::string> flags = kTcp;
    flags.insert(flags.end(), {"--set", "training.deterministic=" + deterministic});
    JobRun tcp(folder("tcp-" + deterministic), job(true), flags);
    EXPECT_EQ(tcp.launchAndWait("worker.compute=crash@60,task=worker-1,life=1.1").code, 0);
    EXPECT_THAT(tcp.taskLog("worker-0"), HasSubstr("table: only the rows that a step uses are"));
    digests.push_back(tcp.digest());
    flags = {"--set", "training.deterministic=" + deterministic};
    JobRun memory(folder("memory-" + deterministic), job(true), flags);
    EXPECT_EQ(memory.launchAndWait().code, 0);
    digests.push_back(memory.digest());
    if (HasFailure()) tcp.printLogs();
  }
  JobRun whole(folder("whole"), job(false), kTcp);
  EXPECT_EQ(whole.launchAndWait().code, 0);
  EXPECT_THAT(whole.taskLog("worker-0"), Not(HasSubstr("only the rows")));
  // Two ranks: a sum has one order.
  EXPECT_THAT(digests, testing::Each(whole.digest()));
}

TEST_F(RowsTest, AStepSendsTheRowsThatItUses) {
  constexpr double kMostRows = kPixels * kRowsBatch;
  constexpr double kTableBytes = kTableRows * kClasses * 4;
  const double by_rows = bytesOfStep(true);
  const double whole = bytesOfStep(false);
  fmt::print("bytes sent in a step: {:.0f} by rows, {:.0f} whole\n", by_rows, whole);
  EXPECT_GT(whole, kTableBytes);
  EXPECT_GT(by_rows, kPixels * (8 + 4 * kClasses));
  // With what else there is: the bias, the loss, how many rows there are.
  EXPECT_LT(by_rows, kMostRows * (8 + 4 * kClasses) + 400);
}

}  // namespace
}  // namespace trainyard
