#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/device.h"
#include "runtime/model/model.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/model/script_batch.h"
#include "tests/runtime/model/script_fixture.h"

namespace trainyard::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using trainyard::ScriptOptions;
using trainyard::writeScript;

struct Pass {
  double loss = 0;
  std::vector<int> order;
  std::vector<std::vector<float>> gradients;
};

Pass passOf(Model& model, const Batch& batch) {
  Pass pass;
  pass.gradients.resize(model.variables().size());
  const auto loss = model.forwardBackward(batch, [&](Gradient g) {
    pass.order.push_back(g.variable);
    pass.gradients[g.variable].assign(g.values.begin(), g.values.end());
  });
  EXPECT_TRUE(loss.ok()) << loss.status();
  if (loss.ok()) pass.loss = loss->loss_sum;
  return pass;
}

class TorchScriptTest : public testing::Test {
 protected:
  v1::ModelSpec written(const ScriptOptions& options = {}) {
    writeScript(path_, kInputs, kClasses, options);
    return spec();
  }
  v1::ModelSpec spec() const {
    v1::ModelSpec spec;
    spec.set_name("torchscript");
    spec.set_path(path_);
    return spec;
  }
  std::unique_ptr<Model> made(const v1::ModelSpec& spec, const std::string& device = "") {
    auto model = makeModel(spec, kShape, kClasses, 1, device);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::string refusal(const v1::ModelSpec& spec) {
    const auto model = makeModel(spec, kShape, kClasses, 1);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << model.status();
    EXPECT_EQ(modelLayout(spec, kShape, kClasses).status(), model.status());
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("model.path: " + path_));
    return std::string(model.status().message());
  }

  TempDir dir_;
  const std::string path_ = (dir_.path() / "model.pt").string();
};

TEST_F(TorchScriptTest, ComputesWhatTheSameBuiltInModelComputes) {
  const auto script = made(written());
  v1::ModelSpec mlp;
  mlp.set_name("mlp");
  const auto built_in = made(mlp);
  ASSERT_EQ(script->variables().size(), 2u);
  EXPECT_EQ(script->variables()[0].name, "weight");
  EXPECT_THAT(script->variables()[0].shape, ElementsAre(kInputs, kClasses));
  EXPECT_EQ(script->variables()[1].name, "bias");
  for (int v = 0; v < 2; ++v)
    std::copy(script->weights(v).begin(), script->weights(v).end(), built_in->weights(v).begin());
  const Batch batch = makeBatch(7, 3);
  const Pass ours = passOf(*script, batch);
  const Pass theirs = passOf(*built_in, batch);
  EXPECT_THAT(ours.order, ElementsAre(1, 0));
  EXPECT_NEAR(ours.loss, theirs.loss, 1e-4);
  for (int v = 0; v < 2; ++v)
    EXPECT_THAT(ours.gradients[v],
                testing::Pointwise(testing::FloatNear(1e-5), theirs.gradients[v]));
  // The mean is still zero in a module that has not been trained.
  const auto score = made(spec())->evaluate(batch);
  const auto expected = built_in->evaluate(batch);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->hits, expected->hits);
  EXPECT_NEAR(score->loss_sum, expected->loss_sum, 1e-4);
}

ScriptOptions embedding(bool sparse) {
  ScriptOptions options;
  options.embedding = true;
  options.source = kEmbeddingSource;
  if (!sparse) {
    const std::string as_sparse = "self.logits(batch, True)\n    return";
    options.source.replace(options.source.find(as_sparse), as_sparse.size(),
                           "self.logits(batch, False)\n    return");
  }
  return options;
}

TEST_F(TorchScriptTest, ASparseGradientIsDeliveredDense) {
  const Batch batch = makeBatch(40, 3);  // rows are there several times
  const Pass sparse = passOf(*made(written(embedding(true))), batch);
  const Pass dense = passOf(*made(written(embedding(false))), batch);
  EXPECT_EQ(sparse.loss, dense.loss);
  ASSERT_EQ(sparse.gradients[0].size(), 16u * kInputs * kClasses);
  EXPECT_THAT(sparse.gradients[0],
              testing::Pointwise(testing::FloatNear(1e-5), dense.gradients[0]));
  EXPECT_THAT(sparse.gradients[0], testing::Contains(testing::Ne(0.0F)));
  EXPECT_EQ(sparse.gradients[1], dense.gradients[1]);
}

TEST_F(TorchScriptTest, TheNextPassUsesWhatWasWrittenToTheWeights) {
  const auto model = made(written());
  const Batch batch = makeBatch(4, 3);
  const Pass before = passOf(*model, batch);
  for (float& w : model->weights(1)) w = 0;
  for (float& w : model->weights(0)) w = 0;
  EXPECT_NEAR(passOf(*model, batch).loss, 4 * std::log(5.0), 1e-4);
  EXPECT_NE(before.loss, 4 * std::log(5.0));
}

TEST_F(TorchScriptTest, TheSamePassGivesTheSameBitsWheneverItComes) {
  setComputeThreads(1);
  const auto model = made(written());
  const Batch batch = makeBatch(6, 4);
  const Pass first = passOf(*model, batch);
  for (int i = 0; i < 4; ++i) passOf(*model, makeBatch(5, 10 + i));
  const Pass later = passOf(*model, batch);
  EXPECT_EQ(first.loss, later.loss);
  EXPECT_EQ(first.gradients, later.gradients);
}

TEST_F(TorchScriptTest, RandomNumbersFollowFromTheSeedAndTheSamples) {
  ScriptOptions options;
  options.source = R"(
def loss(self, batch: Dict[str, Tensor]) -> Tensor:
    x = torch.dropout(batch["images"].flatten(1), 0.5, self.training)
    return (x.matmul(self.weight) + self.bias).sum()
)";
  const auto model = made(written(options));
  Batch batch = makeBatch(3, 4);
  const double loss = passOf(*model, batch).loss;
  EXPECT_EQ(passOf(*model, batch).loss, loss);
  batch.keys[0] += 1;
  EXPECT_NE(passOf(*model, batch).loss, loss);
}

TEST_F(TorchScriptTest, BuffersAreKeptAndGivenBack) {
  const auto trained = made(written());
  for (int i = 0; i < 3; ++i) passOf(*trained, makeBatch(8, 20 + i));
  const Batch batch = makeBatch(50, 9);
  const auto other = made(spec());
  const auto expected = trained->evaluate(batch);
  EXPECT_NE(other->evaluate(batch)->loss_sum, expected->loss_sum);
  ASSERT_TRUE(other->loadState(trained->saveState()).ok());
  EXPECT_EQ(other->evaluate(batch)->loss_sum, expected->loss_sum);
  EXPECT_EQ(other->evaluate(batch)->hits, expected->hits);
  EXPECT_EQ(other->loadState("nothing").code(), absl::StatusCode::kInvalidArgument);
  writeScript(path_, kInputs + 1, kClasses);
  EXPECT_THAT(std::string(made(spec())->loadState(trained->saveState()).message()),
              HasSubstr("buffer mean is [12], expected [13]"));
}

// Weights and gradients are copied between the host and a device, be it the processor.
void expectTheSame(Model& ours, Model& theirs) {
  for (int i = 0; i < 3; ++i) {
    const Batch batch = makeBatch(7, 30 + i);
    const Pass pass = passOf(ours, batch);
    const Pass expected = passOf(theirs, batch);
    EXPECT_NEAR(pass.loss, expected.loss, 1e-5 * expected.loss);
    EXPECT_EQ(pass.order, expected.order);
    for (int v = 0; v < 2; ++v) {
      EXPECT_THAT(pass.gradients[v],
                  testing::Pointwise(testing::FloatNear(1e-5), expected.gradients[v]));
      for (Model* model : {&ours, &theirs})
        for (float& w : model->weights(v)) w *= 0.5f;
    }
  }
  const auto score = ours.evaluate(makeBatch(40, 9));
  const auto expected = theirs.evaluate(makeBatch(40, 9));
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->hits, expected->hits);
  EXPECT_NEAR(score->loss_sum, expected->loss_sum, 1e-5 * expected->loss_sum);
  // The buffers have come along.
  EXPECT_TRUE(theirs.loadState(ours.saveState()).ok());
  EXPECT_NEAR(theirs.evaluate(makeBatch(40, 9))->loss_sum, expected->loss_sum,
              1e-5 * expected->loss_sum);
}

TEST_F(TorchScriptTest, ADeviceComputesTheSame) {
  setComputeThreads(1);
  const auto ours = made(written(), "cpu");
  expectTheSame(*ours, *made(spec()));
}

TEST_F(TorchScriptTest, ADeviceKeepsGradientsWhereTheyAreWanted) {
  setComputeThreads(1);
  const auto model = made(written(), "cpu");
  const Batch batch = makeBatch(7, 3);
  const Pass to_host = passOf(*model, batch);
  ASSERT_TRUE(model->deliverOnDevice(true));
  int on_device = 0;
  const auto loss = model->forwardBackward(batch, [&](Gradient g) {
    on_device += g.on_device;
    EXPECT_THAT(g.values, testing::ElementsAreArray(to_host.gradients[g.variable]));
  });
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(on_device, 2);
  EXPECT_FALSE(made(spec())->deliverOnDevice(true)) << "the processor has no device";
}

TEST_F(TorchScriptTest, AGpuComputesTheSame) {
  const auto gpu = chooseDevice("GPU", gpuSupport(), 0);
  if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  setComputeThreads(1);
  setGpuArithmetic(true);
  const auto ours = made(written(), gpu->name);
  expectTheSame(*ours, *made(spec()));
}

TEST_F(TorchScriptTest, TheLayoutBringsTheFilesValues) {
  const auto model = made(written());
  const auto layout = modelLayout(spec(), kShape, kClasses);
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->variables.size(), 3u);
  EXPECT_EQ(layout->variables[0].name, "global_step");
  EXPECT_FALSE(layout->variables[0].trainable);
  EXPECT_TRUE(layout->values[0].empty());
  for (int v = 0; v < 2; ++v) {
    EXPECT_EQ(layout->variables[v + 1].name, model->variables()[v].name);
    const auto weights = model->weights(v);
    EXPECT_EQ(layout->values[v + 1], std::vector<float>(weights.begin(), weights.end()));
  }
}

TEST_F(TorchScriptTest, WithoutMetricsItTrainsButDoesNotEvaluate) {
  ScriptOptions options;
  options.source = trainyard::kScriptLoss;
  const auto model = made(written(options));
  passOf(*model, makeBatch(2, 1));
  EXPECT_THAT(std::string(model->canEvaluate().message()),
              AllOf(HasSubstr(path_), HasSubstr("no method metrics(batch")));
  EXPECT_TRUE(made(written())->canEvaluate().ok());
}

TEST_F(TorchScriptTest, FilesThatDoNotFitAreNamedWithWhatTheyLack) {
  const auto absent = makeModel(spec(), kShape, kClasses, 1).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("model.path: " + path_));
  std::ofstream(path_) << "weights";
  EXPECT_THAT(refusal(spec()), HasSubstr("no TorchScript module that LibTorch"));
  ScriptOptions options;
  options.source = trainyard::kScriptMetrics;
  EXPECT_THAT(refusal(written(options)), HasSubstr("no method loss(batch: Dict[str, Tensor])"));
  options.source = "def loss(self, images: Tensor) -> Tensor:\n    return images.sum()\n";
  EXPECT_THAT(refusal(written(options)), HasSubstr("loss is loss("));
  options = {};
  options.trained = false;
  EXPECT_THAT(refusal(written(options)), HasSubstr("no parameter requires gradients"));
  options = {};
  options.tied = true;
  EXPECT_THAT(refusal(written(options)), HasSubstr("weight and again share their memory"));
  options = {};
  options.double_weight = true;
  options.source =
      "def loss(self, batch: Dict[str, Tensor]) -> Tensor:\n    return self.bias.sum()\n";
  EXPECT_THAT(refusal(written(options)), HasSubstr("parameter weight is Double, expected"));
}

TEST_F(TorchScriptTest, APassThatFailsSaysWhy) {
  ScriptOptions options;
  options.source =
      "def loss(self, batch: Dict[str, Tensor]) -> Tensor:\n    return self.bias * 2\n";
  const auto shaped = made(written(options));
  const auto ignore = [](const Gradient&) {};
  EXPECT_THAT(std::string(shaped->forwardBackward(makeBatch(2, 1), ignore).status().message()),
              HasSubstr("loss(batch) is a tensor of shape [5], expected one number"));
  options.source =
      "def loss(self, batch: Dict[str, Tensor]) -> Tensor:\n    return batch[\"weights\"].sum()\n";
  const auto lacking = made(written(options));
  const auto status = lacking->forwardBackward(makeBatch(2, 1), ignore).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("weights"));
}

// How LibTorch speaks of a GPU that fails, here from the module.
TEST_F(TorchScriptTest, AGpuThatFailsIsTriedAgainAndAModelThatFailsIsNot) {
  ScriptOptions options;
  const auto classOf = [&](const std::string& text) {
    options.source = "def loss(self, batch: Dict[str, Tensor]) -> Tensor:\n    assert False, \"" +
                     text + "\"\n    return self.bias.sum()\n";
    const auto model = made(written(options));
    const auto status = model->forwardBackward(makeBatch(2, 1), [](const Gradient&) {}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    return failureClass(status);
  };
  EXPECT_EQ(classOf("CUDA error: unspecified launch failure"), FailureClass::kRetry);
  EXPECT_EQ(classOf("CUDA out of memory. Tried to allocate 2 GiB"), FailureClass::kPermanent);
  EXPECT_EQ(classOf("The size of tensor a must match"), FailureClass::kPermanent);
}

}  // namespace
}  // namespace trainyard::runtime
