#include "runtime/hand_over.h"

#include "gtest/gtest.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {
namespace {

v1::ModelSpec model(const std::string& name, double simulated) {
  v1::ModelSpec spec;
  spec.set_name(name);
  if (simulated > 0) spec.set_simulated_step_seconds(simulated);
  return spec;
}

TEST(HandOver, LibTorchIsForWhoComputesAndWhoReadsModules) {
  EXPECT_TRUE(needsLibTorch(model("mlp", 0), v1::ROLE_WORKER));
  EXPECT_FALSE(needsLibTorch(model("mlp", 0.1), v1::ROLE_WORKER));
  EXPECT_FALSE(needsLibTorch(model("mlp", 0), v1::ROLE_PS));
  EXPECT_TRUE(needsLibTorch(model("torchscript", 0), v1::ROLE_PS));
  EXPECT_TRUE(needsLibTorch(model("torchscript", 0.1), v1::ROLE_WORKER));
}

// This program is linked without, and none is beside it.
TEST(HandOver, SaysWhichProgramIsMissing) {
  EXPECT_FALSE(hasLibTorch());
  char* argv[] = {nullptr};
  const Status status = haveLibTorch(argv);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("hand_over_test-torch"), std::string::npos) << status;
}

// What is refused before anybody computes is refused as with LibTorch.
TEST(HandOver, WithoutLibTorchOnlySimulatedModelsAreMade) {
  EXPECT_TRUE(makeModel(model("mlp", 0.1), {4, 4, 1}, 3, 1).ok());
  EXPECT_TRUE(modelLayout(model("mlp", 0), {4, 4, 1}, 3).ok());
  EXPECT_FALSE(makeModel(model("mlp", 0), {4, 4, 1}, 3, 1).ok());
  EXPECT_FALSE(makeModel(model("lenet", 0.1), {4, 4, 1}, 3, 1).ok());
}

}  // namespace
}  // namespace trainyard::runtime
