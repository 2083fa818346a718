#include "runtime/catalog/catalog.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ModelSpec model(const std::string& name, std::vector<int> hidden = {}) {
  v1::ModelSpec spec;
  spec.set_name(name);
  for (int width : hidden) spec.add_hidden(width);
  return spec;
}

std::vector<std::string> names(const std::vector<Variable>& variables) {
  std::vector<std::string> out;
  for (const Variable& v : variables) out.push_back(v.name);
  return out;
}

std::int64_t trainableElements(const std::vector<Variable>& variables) {
  std::int64_t sum = 0;
  for (const Variable& v : variables) sum += v.trainable ? v.elements() : 0;
  return sum;
}

const Variable& named(const std::vector<Variable>& variables, const std::string& name) {
  return *std::find_if(variables.begin(), variables.end(),
                       [&](const Variable& v) { return v.name == name; });
}

TEST(Catalog, MnistCnnHasTheVariablesOfTheByteTable) {
  const auto variables = catalogVariables(model("mnist_cnn"), {28, 28, 1}, 10);
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_THAT(names(*variables),
              ElementsAre("global_step", "conv1_wei", "conv1_bia", "conv2_wei", "conv2_bia",
                          "fc1_wei", "fc1_bia", "fc2_wei", "fc2_bia"));
  EXPECT_EQ(trainableElements(*variables), 3'274'634);
  EXPECT_THAT((*variables)[1].shape, ElementsAre(5, 5, 1, 32));
  EXPECT_THAT((*variables)[5].shape, ElementsAre(3136, 1024));
  EXPECT_EQ((*variables)[1].initializer.kind, Initializer::Kind::kTruncatedNormal);
  EXPECT_EQ((*variables)[2].initializer.value, 0.1f);
}

TEST(Catalog, GlobalStepIsAScalarIntegerThatIsNotTrained) {
  const auto variables = catalogVariables(model("mlp"), {2, 2, 1}, 3);
  ASSERT_TRUE(variables.ok()) << variables.status();
  const Variable& step = variables->front();
  EXPECT_EQ(step.name, kGlobalStep);
  EXPECT_TRUE(step.shape.empty());
  EXPECT_EQ(step.bytes(), 4);
  EXPECT_EQ(step.dtype, DType::kInt32);
  EXPECT_FALSE(step.trainable);
}

TEST(Catalog, MnistCnnFollowsTheInputAndRoundsPoolsUp) {
  const auto variables = catalogVariables(model("mnist_cnn"), {33, 30, 3}, 7);
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_THAT(named(*variables, "conv1_wei").shape, ElementsAre(5, 5, 3, 32));
  EXPECT_THAT(named(*variables, "fc1_wei").shape, ElementsAre(9 * 8 * 64, 1024));
  EXPECT_THAT(named(*variables, "fc2_wei").shape, ElementsAre(1024, 7));
}

TEST(Catalog, MlpHasItsHiddenLayers) {
  const auto variables = catalogVariables(model("mlp", {4096, 512}), {28, 28, 1}, 10);
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_THAT(names(*variables),
              ElementsAre("global_step", "hidden1_wei", "hidden1_bia", "hidden2_wei", "hidden2_bia",
                          "output_wei", "output_bia"));
  EXPECT_THAT(named(*variables, "hidden2_wei").shape, ElementsAre(4096, 512));
  EXPECT_THAT(named(*variables, "output_wei").shape, ElementsAre(512, 10));
  EXPECT_FLOAT_EQ(named(*variables, "hidden1_wei").initializer.value, 1.0f / 28);
}

TEST(Catalog, Vgg19IsDense) {
  const auto variables = catalogVariables(model("vgg19"), {224, 224, 3}, 1000);
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_EQ(variables->size(), 39u);
  EXPECT_EQ(trainableElements(*variables), 143'667'240);
  EXPECT_THAT(named(*variables, "fc6_wei").shape, ElementsAre(25088, 4096));
  EXPECT_THAT(named(*variables, "conv5_4_wei").shape, ElementsAre(3, 3, 512, 512));
}

TEST(Catalog, WideAndDeepIsItsDenseLayersAndTheWeightsOfNumbers) {
  const auto variables = catalogVariables(model("wide_and_deep", {100, 50}), {1, 13, 429}, 2);
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_THAT(names(*variables),
              ElementsAre("global_step", "hidden1_wei", "hidden1_bia", "hidden2_wei", "hidden2_bia",
                          "output_wei", "output_bia", "numbers_wei"));
  EXPECT_THAT(named(*variables, "hidden1_wei").shape, ElementsAre(429, 100));
  EXPECT_THAT(named(*variables, "output_wei").shape, ElementsAre(50, 1));
  EXPECT_THAT(named(*variables, "output_bia").shape, ElementsAre(1));
  EXPECT_THAT(named(*variables, "numbers_wei").shape, ElementsAre(13));
  EXPECT_FLOAT_EQ(named(*variables, "hidden2_wei").initializer.value, 0.1f);
  EXPECT_EQ(named(*variables, "hidden2_bia").initializer.kind, Initializer::Kind::kZeros);
  EXPECT_EQ(named(*variables, "numbers_wei").initializer.kind, Initializer::Kind::kZeros);
  const auto no_numbers = catalogVariables(model("wide_and_deep", {8}), {1, 0, 16}, 2);
  ASSERT_TRUE(no_numbers.ok()) << no_numbers.status();
  EXPECT_THAT(names(*no_numbers),
              ElementsAre("global_step", "hidden1_wei", "hidden1_bia", "output_wei", "output_bia"));
}

v1::ModelSpec dlrmOf(const std::vector<int>& bottom, std::vector<int> top) {
  v1::ModelSpec spec = model("dlrm", std::move(top));
  for (const int width : bottom) spec.add_bottom_hidden(width);
  return spec;
}

TEST(Catalog, DlrmIsItsBottomAndTopLayers) {
  const auto variables = catalogVariables(dlrmOf({512, 16}, {100, 50}), {26, 13, 16}, 2);
  ASSERT_TRUE(variables.ok()) << variables.status();
  EXPECT_THAT(names(*variables),
              ElementsAre("global_step", "bottom1_wei", "bottom1_bia", "bottom2_wei", "bottom2_bia",
                          "hidden1_wei", "hidden1_bia", "hidden2_wei", "hidden2_bia", "output_wei",
                          "output_bia"));
  EXPECT_THAT(named(*variables, "bottom1_wei").shape, ElementsAre(13, 512));
  EXPECT_THAT(named(*variables, "bottom2_wei").shape, ElementsAre(512, 16));
  EXPECT_THAT(named(*variables, "hidden1_wei").shape, ElementsAre(16 + 27 * 26 / 2, 100));
  EXPECT_THAT(named(*variables, "output_wei").shape, ElementsAre(50, 1));
  EXPECT_FLOAT_EQ(named(*variables, "hidden2_wei").initializer.value, std::sqrt(2.0f / 150));
  EXPECT_FLOAT_EQ(named(*variables, "hidden2_bia").initializer.value, std::sqrt(1.0f / 50));
  EXPECT_EQ(named(*variables, "hidden2_bia").initializer.kind, Initializer::Kind::kTruncatedNormal);
}

TEST(Catalog, ErrorsOfDlrmNameTheField) {
  const auto failure = [](const v1::ModelSpec& spec, std::array<int, 3> shape, int classes = 2) {
    return std::string(catalogVariables(spec, shape, classes).status().message());
  };
  EXPECT_EQ(failure(dlrmOf({4}, {8}), {0, 2, 0}), "training.tables: missing: dlrm needs a table");
  EXPECT_EQ(failure(dlrmOf({4}, {8}), {2, 0, 4}),
            "training.data.columns: missing: dlrm needs a column of kind Number");
  EXPECT_THAT(failure(dlrmOf({4}, {8}), {2, 2, 4}, 3), HasSubstr("training.data: 3 classes"));
  EXPECT_THAT(failure(dlrmOf({4}, {}), {2, 2, 4}), HasSubstr("model.hidden: missing"));
  EXPECT_THAT(failure(dlrmOf({}, {8}), {2, 2, 4}), HasSubstr("model.bottomHidden: missing"));
  EXPECT_EQ(failure(dlrmOf({16, 8}, {8}), {2, 2, 4}),
            "model.bottomHidden: ends in 8, which must be the tables' dim 4");
  EXPECT_THAT(failure(dlrmOf({0, 4}, {8}), {2, 2, 4}), HasSubstr("model.bottomHidden[0]: 0"));
  EXPECT_THAT(failure(dlrmOf({4}, {8, 0}), {2, 2, 4}), HasSubstr("model.hidden[1]: 0"));
}

TEST(Catalog, ErrorsNameTheField) {
  const auto failure = [](const v1::ModelSpec& spec, std::array<int, 3> shape, int classes) {
    return std::string(catalogVariables(spec, shape, classes).status().message());
  };
  EXPECT_THAT(failure(model("resnet"), {28, 28, 1}, 10), HasSubstr("model.name: \"resnet\""));
  EXPECT_THAT(failure(model("mlp", {10, 0}), {28, 28, 1}, 10), HasSubstr("model.hidden[1]: 0"));
  EXPECT_THAT(failure(model("mnist_cnn"), {28, 0, 1}, 10), HasSubstr("data.shape: 0"));
  EXPECT_THAT(failure(model("mnist_cnn"), {28, 28, 1}, 0), HasSubstr("data.classes: 0"));
  EXPECT_THAT(failure(model("vgg19"), {31, 224, 3}, 10), HasSubstr("not 31x224"));
  EXPECT_THAT(failure(model("mlp", {2'000'000'000, 2'000'000'000}), {28, 28, 1}, 10),
              HasSubstr("hidden1_wei would have more than"));
  EXPECT_THAT(failure(model("mlp"), {2'000'000'000, 2'000'000'000, 2'000'000'000}, 10),
              HasSubstr("data.shape"));
  const auto tabular = [&](std::vector<int> hidden, std::array<int, 3> shape, int classes = 2) {
    return failure(model("wide_and_deep", std::move(hidden)), shape, classes);
  };
  EXPECT_THAT(tabular({}, {1, 2, 4}), HasSubstr("model.hidden: missing"));
  EXPECT_THAT(tabular({4, 0}, {1, 2, 4}), HasSubstr("model.hidden[1]: 0"));
  EXPECT_THAT(tabular({4}, {1, 0, 0}), HasSubstr("training.tables: wide_and_deep needs a table"));
  EXPECT_THAT(tabular({4}, {28, 28, 1}), HasSubstr("deep inputs], not [28, 28, 1]"));
  EXPECT_THAT(tabular({4}, {1, 5, 4}), HasSubstr("not [1, 5, 4]"));
  EXPECT_THAT(tabular({4}, {1, -1, 4}), HasSubstr("not [1, -1, 4]"));
  EXPECT_THAT(tabular({4}, {1, 0, -1}), HasSubstr("not [1, 0, -1]"));
  EXPECT_THAT(tabular({4}, {1, 2, 4}, 3), HasSubstr("training.data: 3 classes"));
  EXPECT_THAT(tabular({1000}, {1, 0, 2'000'000'000}), HasSubstr("hidden1_wei would have more"));
}

TEST(Catalog, ImpliedInputIsTheModelsUntilSyntheticDataSaysOtherwise) {
  v1::Training training;
  training.mutable_model()->set_name("vgg19");
  EXPECT_EQ(impliedInput(training).classes, 1000);
  training.mutable_data()->set_format("synthetic");
  for (int d : {64, 48, 3}) training.mutable_data()->add_shape(d);
  training.mutable_data()->set_classes(5);
  EXPECT_EQ(impliedInput(training).classes, 5);
  EXPECT_THAT(impliedInput(training).shape, ElementsAre(64, 48, 3));
  training.mutable_data()->set_format("idx");
  training.mutable_model()->set_name("mnist_cnn");
  EXPECT_THAT(impliedInput(training).shape, ElementsAre(28, 28, 1));
}

TEST(Catalog, ImpliedInputOfTabularDataIsWhatTablesAndNumbersMake) {
  v1::Training training;
  training.mutable_model()->set_name("wide_and_deep");
  const auto column = [&](const std::string& name, const std::string& kind) {
    v1::ColumnSpec& added = *training.mutable_data()->add_columns();
    added.set_name(name);
    added.set_kind(kind);
  };
  const auto table = [&](int dim, const std::vector<std::string>& features) {
    v1::TableSpec& added = *training.add_tables();
    added.set_dim(dim);
    for (const std::string& feature : features) added.add_features(feature);
  };
  column("clicked", "Label");
  column("user", "Id");
  column("words", "Ids");
  column("title", "Text");
  EXPECT_THAT(impliedInput(training).shape, ElementsAre(1, 0, 0));
  table(16, {"user"});
  table(8, {"words", "title"});
  table(1, {"user", "words"});
  EXPECT_THAT(impliedInput(training).shape, ElementsAre(1, 0, 16 + 2 * 8)) << "dim 1 is wide";
  column("age", "Number");
  column("price", "Number");
  EXPECT_THAT(impliedInput(training).shape, ElementsAre(1, 2, 16 + 2 * 8 + 2));
  EXPECT_EQ(impliedInput(training).classes, 2);
  training.mutable_model()->set_name("dlrm");
  EXPECT_THAT(impliedInput(training).shape, ElementsAre(5, 2, 16));
  EXPECT_EQ(impliedInput(training).classes, 2);
  training.clear_tables();
  EXPECT_THAT(impliedInput(training).shape, ElementsAre(0, 2, 0));
}

// Criteo's files have no columns in the job: 13 of them are numbers.
TEST(Catalog, ImpliedInputOfCriteoHasItsIntegers) {
  v1::Training training;
  training.mutable_data()->set_format("criteo");
  training.mutable_model()->set_name("wide_and_deep");
  v1::TableSpec& table = *training.add_tables();
  table.set_dim(16);
  table.add_features("C1");
  table.add_features("C2");
  EXPECT_THAT(impliedInput(training).shape, ElementsAre(1, 13, 2 * 16 + 13));
  EXPECT_EQ(impliedInput(training).classes, 2);
}

Variable normalVariable(const std::string& name, std::int64_t elements, float deviation) {
  return {
      name, {elements}, DType::kFloat32, {Initializer::Kind::kTruncatedNormal, deviation}, true};
}

TEST(Initialise, AnyShardComputesTheSameElements) {
  const Variable variable = normalVariable("fc1_wei", 5000, 0.1f);
  std::vector<float> whole(5000);
  initialise(variable, 7, 0, whole);
  for (const auto& [begin, length] : {std::pair{0, 1}, {17, 1000}, {4999, 1}, {2500, 2500}}) {
    std::vector<float> part(length);
    initialise(variable, 7, begin, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
  }
}

TEST(Initialise, DependsOnSeedAndName) {
  std::vector<float> a(100), b(100), c(100);
  initialise(normalVariable("a", 100, 1), 1, 0, a);
  initialise(normalVariable("b", 100, 1), 1, 0, b);
  initialise(normalVariable("a", 100, 1), 2, 0, c);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

// A standard normal cut off at +-2 has variance 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.7737.
TEST(Initialise, TruncatedNormalHasItsMomentsAndBounds) {
  const int n = 200'000;
  std::vector<float> values(n);
  initialise(normalVariable("w", n, 0.1f), 3, 0, values);
  double sum = 0, squares = 0;
  for (const float v : values) {
    ASSERT_LE(std::fabs(v), 0.2f + 1e-6f);
    sum += v;
    squares += double(v) * v;
  }
  EXPECT_NEAR(sum / n, 0, 1e-3);
  EXPECT_NEAR(squares / n, 0.01 * 0.7737, 1e-4);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), 0.199f);
}

TEST(Initialise, ConstantsAndZeros) {
  Variable variable = normalVariable("b", 4, 0);
  std::vector<float> values(4, 9);
  variable.initializer = {Initializer::Kind::kConstant, 0.1f};
  initialise(variable, 1, 0, values);
  EXPECT_THAT(values, ElementsAre(0.1f, 0.1f, 0.1f, 0.1f));
  variable.initializer = {};
  initialise(variable, 1, 0, values);
  EXPECT_THAT(values, ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace trainyard::runtime
