// Whole runs of the models beyond the small ones that the other tests train.
#include <string>

#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::StartsWith;

class ModelsTest : public RunTest {};

// In 32x32 it has 39 million parameters.
TEST_F(ModelsTest, Vgg19TrainsAndEvaluatesItsCheckpoint) {
  JobRun run(folder("vgg19"), R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: vgg19}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2}
  training:
    model: {name: vgg19, dropout: 0.5}
    data: {format: synthetic, shape: [32, 32, 3], classes: 5, samples: 40, evalSamples: 12}
    batchSize: 4
    steps: 2
    optimizer: {name: SGD, learningRate: 0.01}
)");
  const ProgramEnd end = run.launchAndWait();
  ASSERT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded steps=2 "));
  expectEachPositionOnce(run, 2, 16);
  const ProgramEnd evaluation =
      program({"trainyard", "checkpoint", "evaluate", run.dir().string()});
  EXPECT_EQ(evaluation.code, 0) << evaluation.output;
  EXPECT_EQ(fieldsOf(evaluation.lastLine()).at("accuracy"),
            fieldsOf(end.lastLine()).at("accuracy"));
}

}  // namespace
}  // namespace trainyard
