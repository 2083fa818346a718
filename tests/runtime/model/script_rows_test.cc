// Gradients of a TorchScript module's embeddings, delivered by rows: of which parameters, as its
// code says, and that they are the same gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
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

using testing::ElementsAre;
using testing::IsEmpty;
using trainyard::ScriptOptions;

constexpr std::size_t kTableRows = 16 * kInputs;

// The table as parameter 0, looked up by `look_up` of `rows`, a tensor of sample by pixel.
ScriptOptions lookingUp(const std::string& look_up) {
  ScriptOptions options;
  options.embedding = true;
  options.source = R"(
def loss(self, batch: Dict[str, Tensor]) -> Tensor:
    steps = (batch["images"].flatten(1) * 15.0).long()
    rows = steps + torch.arange(steps.size(1), device=steps.device) * 16
    y = )" + look_up +
                   R"(
    return torch.nll_loss(torch.log_softmax(y + self.bias, 1), batch["labels"])
)";
  return options;
}

constexpr char kRowsOfTable[] = "torch.embedding(self.table, rows, -1, False, True).sum(1)";

// As torch.nn.Embedding looks when it is scripted, and torch.nn.functional.embedding, which it
// calls; `max_norm` is None or a number.
ScriptOptions partOf(const std::string& max_norm, const std::string& call) {
  ScriptOptions options = lookingUp("self.words." + call + ".sum(1)");
  options.words = R"(
def embedding(self, input: Tensor, weight: Tensor, padding_idx: Optional[int], max_norm: Optional[float], norm_type: float, scale_grad_by_freq: bool, sparse: bool) -> Tensor:
    if padding_idx is not None:
        if padding_idx > 0:
            assert padding_idx < weight.size(0), "padding_idx is too large"
    else:
        padding_idx = -1
    if max_norm is not None:
        input = input.contiguous()
        torch.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)

def forward(self, input: Tensor) -> Tensor:
    return self.embedding(input, self.weight, None, )" +
                  max_norm + R"(, 2.0, False, True)
)";
  return options;
}

struct Delivered {
  std::vector<float> values;
  std::vector<std::int64_t> rows;
};

// By variable.
std::vector<Delivered> passOf(Model& model, const Batch& batch) {
  std::vector<Delivered> pass(model.variables().size());
  std::vector<Gradient> held;
  const auto loss =
      model.forwardBackward(batch, [&](Gradient gradient) { held.push_back(gradient); });
  EXPECT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(held.size(), pass.size());
  // Their memory stays as long as they are held.
  for (const Gradient& gradient : held) {
    Delivered& to = pass[static_cast<std::size_t>(gradient.variable)];
    to.values.assign(gradient.values.begin(), gradient.values.end());
    to.rows.assign(gradient.rows.begin(), gradient.rows.end());
  }
  return pass;
}

std::vector<float> whole(const Delivered& rows) {
  std::vector<float> table(kTableRows * kClasses);
  for (std::size_t i = 0; i < rows.values.size(); ++i)
    table[static_cast<std::size_t>(rows.rows[i / kClasses]) * kClasses + i % kClasses] =
        rows.values[i];
  return table;
}

class ScriptRowsTest : public testing::Test {
 protected:
  std::unique_ptr<Model> made(const ScriptOptions& options, const std::string& device = "") {
    writeScript(path_, kInputs, kClasses, options);
    v1::ModelSpec spec;
    spec.set_name("torchscript");
    spec.set_path(path_);
    auto model = makeModel(spec, kShape, kClasses, 1, device);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::vector<int> byRows(const ScriptOptions& options) { return made(options)->deliverRows(); }

  // Rows instead of the whole: the same gradients, bit by bit.
  void expectTheSame(const ScriptOptions& options, const std::string& device) {
    const auto by_rows = made(options, device);
    const auto model = made(options, device);
    ASSERT_THAT(by_rows->deliverRows(), ElementsAre(0));
    for (const int size : {1, 40}) {
      const Batch batch = makeBatch(size, 7);
      const auto rows = passOf(*by_rows, batch);
      const auto expected = passOf(*model, batch);
      EXPECT_THAT(expected[0].rows, IsEmpty());
      ASSERT_EQ(expected[0].values.size(), kTableRows * kClasses);
      ASSERT_EQ(rows[0].values.size(), rows[0].rows.size() * kClasses);
      EXPECT_EQ(std::ranges::adjacent_find(rows[0].rows, std::greater_equal<>()),
                rows[0].rows.end());
      EXPECT_GE(rows[0].rows.size(), 12u);
      EXPECT_LE(rows[0].rows.size(), std::min<std::size_t>(12u * size, kTableRows));
      EXPECT_EQ(std::memcmp(whole(rows[0]).data(), expected[0].values.data(),
                            expected[0].values.size() * sizeof(float)),
                0);
      EXPECT_THAT(rows[1].rows, IsEmpty());
      EXPECT_EQ(rows[1].values, expected[1].values);
    }
  }

  TempDir dir_;
  const std::string path_ = (dir_.path() / "model.pt").string();
};

TEST_F(ScriptRowsTest, RowsAreTheSameGradient) {
  setComputeThreads(1);
  expectTheSame(lookingUp(kRowsOfTable), "");
  expectTheSame(lookingUp(kRowsOfTable), "cpu");
}

// What is looked up twice comes once.
TEST_F(ScriptRowsTest, LookUpsAreAddedUp) {
  setComputeThreads(1);
  expectTheSame(lookingUp(std::string(kRowsOfTable) + " + " + kRowsOfTable), "");
}

TEST_F(ScriptRowsTest, AGpuDeliversRows) {
  const auto gpu = chooseDevice("GPU", gpuSupport(), 0);
  if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  const auto ours = made(lookingUp(kRowsOfTable), gpu->name);
  ASSERT_THAT(ours->deliverRows(), ElementsAre(0));
  const auto expected = passOf(*made(lookingUp(kRowsOfTable)), makeBatch(40, 7));
  EXPECT_THAT(whole(passOf(*ours, makeBatch(40, 7))[0]),
              testing::Pointwise(testing::FloatNear(1e-5), expected[0].values));
}

TEST_F(ScriptRowsTest, APassThatLooksNothingUpDeliversNoRows) {
  const auto model =
      made(lookingUp(std::string(kRowsOfTable) + " if rows.size(0) > 1 else torch.zeros([1, 5])"));
  ASSERT_THAT(model->deliverRows(), ElementsAre(0));
  EXPECT_THAT(passOf(*model, makeBatch(1, 3))[0].rows, IsEmpty());
  EXPECT_FALSE(passOf(*model, makeBatch(2, 3))[0].rows.empty());
}

TEST_F(ScriptRowsTest, EmbeddingsAreFoundInPartsOfTheModule) {
  setComputeThreads(1);
  const auto function = [](const std::string& max_norm) {
    return "embedding(rows, self.words.weight, None, " + max_norm + ", 2.0, False, True)";
  };
  expectTheSame(partOf("None", "forward(rows)"), "");
  expectTheSame(partOf("None", function("None")), "");
  // What runs beside is not looked into.
  EXPECT_THAT(
      byRows(partOf("None", "forward(rows).sum(1) + torch.wait(fork(self.words.forward, rows))")),
      IsEmpty());
  // It writes to the weights.
  EXPECT_THAT(byRows(partOf("1.0", "forward(rows)")), IsEmpty());
  EXPECT_THAT(byRows(partOf("None", function("1.0"))), IsEmpty());
}

TEST_F(ScriptRowsTest, OtherMethodsMayUseTheTableAsTheyLike) {
  ScriptOptions options = lookingUp(kRowsOfTable);
  options.source += R"(
def metrics(self, batch: Dict[str, Tensor]) -> Dict[str, Tensor]:
    return {"accuracy": self.table.sum()}
)";
  EXPECT_THAT(byRows(options), ElementsAre(0));
}

TEST_F(ScriptRowsTest, BagsAndSizesAreNoOtherUse) {
  setComputeThreads(1);
  expectTheSame(lookingUp("torch.embedding_bag(self.table, rows.flatten() % self.table.size(0), "
                          "torch.arange(rows.size(0)) * rows.size(1), False, 0, True)[0]"),
                "");
}

// A table that may have another gradient is delivered whole.
TEST_F(ScriptRowsTest, InDoubtATableIsDeliveredWhole) {
  const std::string rows = kRowsOfTable;
  for (const std::string& look_up : {
           std::string("torch.embedding(self.table, rows, -1, False, False).sum(1)"),
           std::string("torch.embedding(self.table, rows, -1, False, self.training).sum(1)"),
           std::string("torch.embedding(self.table * 1.0, rows, -1, False, True).sum(1)"),
           rows + " + self.table.sum()",
           rows + " if self.training else torch.embedding(self.table, rows).sum(1)",
           std::string("torch.embedding(self.table if rows.size(0) > 1 else self.table, rows, -1, "
                       "False, True).sum(1)"),
           std::string("torch.embedding([self.table][0], rows, -1, False, True).sum(1)"),
           std::string("torch.embedding_bag(self.table, rows.flatten(), rows[0], False, 0, True, "
                       "self.table)[0]"),
           std::string("self.table[0] + 0 * rows.sum()"),
           rows + " + (self if self.training else self).table.sum()",
           rows + "\n    self.table = torch.zeros([1, 5])",
       }) {
    EXPECT_THAT(byRows(lookingUp(look_up)), IsEmpty()) << look_up;
  }
  EXPECT_THAT(byRows({}), IsEmpty()) << "there is none";
}

}  // namespace
}  // namespace trainyard::runtime
