#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/catalog/catalog.h"
#include "runtime/catalog/memory.h"

namespace trainyard::runtime {
namespace {

v1::ModelSpec specOf(const std::string& name) {
  v1::ModelSpec spec;
  spec.set_name(name);
  return spec;
}

ActivationBytes activations(const v1::ModelSpec& spec, const std::array<int, 3>& shape,
                            int classes) {
  return activationBytes(spec, *catalogVariables(spec, shape, classes), shape);
}

TEST(ActivationBytes, OfAnMlpAreItsLayersOutputs) {
  v1::ModelSpec spec = specOf("mlp");
  spec.add_hidden(100);
  spec.add_hidden(20);
  const ActivationBytes bytes = activations(spec, {4, 4, 1}, 10);
  EXPECT_EQ(bytes.evaluation, (100 + 20) * 4);
  EXPECT_EQ(bytes.training, (16 + 100 + 20 + 10) * 4 + bytes.evaluation);
}

TEST(ActivationBytes, OfMnistCnnCountThePooledPicturesAndTheirWinners) {
  const ActivationBytes bytes = activations(specOf("mnist_cnn"), {28, 28, 1}, 10);
  const std::int64_t pooled = 14 * 14 * 32 + 7 * 7 * 64;
  EXPECT_EQ(bytes.training - bytes.evaluation, (28 * 28 + 2 * pooled + 1024 + 10) * 4);
  // The first convolution's input, output, pooled output and winners.
  EXPECT_GE(bytes.evaluation, (1 + 32) * 28 * 28 * 4);
  EXPECT_LT(bytes.evaluation, 200'000);
}

// 16 convolutions keep 14,852,096 numbers of a picture (Simonyan and Zisserman's configuration E).
TEST(ActivationBytes, OfVgg19CountEveryConvolution) {
  const std::int64_t convolutions = 224 * 224 * 64 * 2 + 112 * 112 * 128 * 2 + 56 * 56 * 256 * 4 +
                                    28 * 28 * 512 * 4 + 14 * 14 * 512 * 4;
  EXPECT_EQ(convolutions, 14'852'096);
  const std::int64_t pools =
      112 * 112 * 64 + 56 * 56 * 128 + 28 * 28 * 256 + 14 * 14 * 512 + 7 * 7 * 512;
  const ActivationBytes bytes = activations(specOf("vgg19"), {224, 224, 3}, 1000);
  EXPECT_EQ(bytes.evaluation, 2 * 224 * 224 * 64 * 4);
  EXPECT_EQ(bytes.training - bytes.evaluation,
            (224 * 224 * 3 + convolutions + pools + 4096 + 4096 + 1000) * 4 + pools * 4);
}

TEST(ActivationBytes, OfWideAndDeepAreItsDeepInputsAndItsLayersOutputs) {
  v1::ModelSpec spec = specOf("wide_and_deep");
  spec.add_hidden(100);
  spec.add_hidden(20);
  const ActivationBytes bytes = activations(spec, {1, 3, 16}, 2);
  EXPECT_EQ(bytes.evaluation, (100 + 20) * 4);
  EXPECT_EQ(bytes.training, (16 + 100 + 20 + 1) * 4 + bytes.evaluation);
}

TEST(ActivationBytes, OfDlrmAreItsLayersOutputsAndTheVectorsWithTheirGradients) {
  v1::ModelSpec spec = specOf("dlrm");
  spec.add_bottom_hidden(64);
  spec.add_bottom_hidden(16);
  spec.add_hidden(20);
  const std::int64_t vectors = (1 + 3) * 16, products = 16 + 4 * 3 / 2;
  const ActivationBytes bytes = activations(spec, {3, 5, 16}, 2);
  EXPECT_EQ(bytes.evaluation, (64 + 16) * 4);
  EXPECT_EQ(bytes.training, (5 + 64 + 16 + 2 * vectors + products + 20 + 1) * 4 + bytes.evaluation);
}

TEST(ActivationBytes, AreUnknownOutsideTheCatalogue) {
  EXPECT_EQ(activationBytes(specOf("torchscript"), {}, {28, 28, 1}).training, 0);
}

TEST(MemoryNeed, OfAWorkerGrowsWithItsSamples) {
  const v1::ModelSpec spec = specOf("vgg19");
  const std::array<int, 3> shape{224, 224, 3};
  const auto variables = *catalogVariables(spec, shape, 1000);
  const MemoryNeed two = workerMemory(spec, variables, shape, 2);
  const MemoryNeed three = workerMemory(spec, variables, shape, 3);
  EXPECT_EQ(two.parts[0].bytes, 574'668'960);
  EXPECT_EQ(two.parts[1].bytes, 574'668'960);
  EXPECT_EQ(three.bytes() - two.bytes(), activations(spec, shape, 1000).training);
  EXPECT_THAT(two.text(), testing::StartsWith("weights 575 MB, gradients 575 MB, activations "
                                              "of 2 samples "));
}

TEST(MemoryNeed, OfAWorkerWithAGpuHasNoActivations) {
  const v1::ModelSpec spec = specOf("vgg19");
  const std::array<int, 3> shape{224, 224, 3};
  const auto variables = *catalogVariables(spec, shape, 1000);
  EXPECT_EQ(workerMemory(spec, variables, shape, 0).text(), "weights 575 MB, gradients 575 MB");
}

TEST(MemoryNeed, OfASimulatedWorkerIsItsWeightsAndOneGradient) {
  v1::ModelSpec spec = specOf("vgg19");
  spec.set_simulated_step_seconds(0.5);
  const std::array<int, 3> shape{224, 224, 3};
  const auto variables = *catalogVariables(spec, shape, 1000);
  EXPECT_EQ(workerMemory(spec, variables, shape, 32).bytes(), 574'668'960 + 25088LL * 4096 * 4);
}

TEST(MemoryNeed, OfTablesIsARowAndItsGradientForEachFeatureOfASample) {
  v1::Training training;
  EXPECT_TRUE(rowsMemory(training, 32).parts.empty());
  for (const int dim : {64, 1}) {
    v1::TableSpec& table = *training.add_tables();
    table.set_dim(dim);
    table.add_features("user");
    table.add_features("words");
  }
  EXPECT_EQ(rowsMemory(training, 1000).least(), 2LL * 1000 * (2 * 64 + 2) * 4);
  EXPECT_EQ(rowsMemory(training, 1000).text(), "rows of 1000 samples and their gradients 1.04 MB");
}

TEST(MemoryNeed, OfAServerAloneIsItsPartAndWhatACheckpointHolds) {
  const MemoryNeed need = serverMemory({.held = 1000}, 1);
  EXPECT_EQ(need.least(), 2000 + 1000);
  EXPECT_EQ(need.bytes(), need.least() + 1000 + 1000)
      << "steps go on while the checkpoint is written: slots and a third version of the weights";
  EXPECT_EQ(serverMemory({.held = 1'000'000}, 0).text(), "two versions of the weights 2 MB");
  EXPECT_EQ(serverMemory({.held = 1'000'000}, 2).text(),
            "two versions of the weights 2 MB, slots of the optimizer 2 MB");
}

TEST(MemoryNeed, OfAServerCountsReplicasOnBothSides) {
  const MemoryNeed need = serverMemory({.held = 1000, .replicated = true, .replicas = 300}, 2);
  EXPECT_EQ(need.bytes() - serverMemory({.held = 1000}, 2).bytes(), 1000 + (2 + 2) * 300);
}

TEST(MemoryNeed, EachServerKeepsReplicasOfTheOneBefore) {
  v1::JobSpec spec;
  const auto kept = [&](const std::vector<std::int64_t>& held) {
    std::vector<std::int64_t> replicas;
    for (const ServerLoad& load : serverLoads(spec, held))
      replicas.push_back(load.replicated ? load.replicas : -1);
    return replicas;
  };
  EXPECT_THAT(kept({10, 20, 30}), testing::ElementsAre(30, 10, 20));
  EXPECT_THAT(kept({10}), testing::ElementsAre(0)) << "the first worker has them";
  v1::Training& training = *spec.mutable_training();
  training.mutable_update()->set_mode("Async");
  EXPECT_THAT(kept({10, 20}), testing::ElementsAre(-1, -1));
  training.set_chunk_replicas("Always");
  EXPECT_THAT(kept({10, 20}), testing::ElementsAre(20, 10));
  EXPECT_THAT(kept({10}), testing::ElementsAre(0));
  training.mutable_update()->set_mode("Sync");
  training.set_chunk_replicas("Never");
  EXPECT_THAT(kept({10, 20}), testing::ElementsAre(-1, -1));
}

TEST(MemoryNeed, SamplesOfAWorkerAreItsShareRoundedUp) {
  v1::JobSpec spec;
  spec.mutable_worker()->set_replicas(3);
  spec.mutable_training()->set_batch_size(8);
  EXPECT_EQ(samplesPerWorker(spec), 8);
  spec.mutable_training()->clear_batch_size();
  spec.mutable_training()->set_global_batch_size(100);
  EXPECT_EQ(samplesPerWorker(spec), 34);
}

}  // namespace
}  // namespace trainyard::runtime
