// Training on GPUs with gradients put together by NCCL, against the way over the host; ranks are
// threads, each with a GPU of its own. Skipped where there is no GPU.
#include <algorithm>

#include "gtest/gtest.h"
#include "runtime/model/device.h"
#include "runtime/model/model.h"
#include "runtime/nccl/cuda_device.h"
#include "runtime/nccl/cuda_memory.h"
#include "tests/runtime/nccl/device_training.h"

namespace trainyard::runtime::nccl {
namespace {

TEST(NcclTrainingTest, TrainsAsOverTheHost) {
  const StatusOr<int> gpus = countGpus();
  if (!gpus.ok()) GTEST_SKIP() << "skipped: " << gpus.status().message();
  const auto chosen = chooseDevice("GPU", gpuSupport(), 0);
  if (!chosen.ok()) GTEST_SKIP() << "skipped: no GPU: " << chosen.status().message();
  setGpuArithmetic(/*deterministic=*/true);
  for (int ranks = 1; ranks <= std::min(2, *gpus); ++ranks) {
    testing::Training training;
    training.ranks = ranks;
    training.compute = [](int rank) { return chooseDevice("GPU", gpuSupport(), rank)->name; };
    const auto over_host = testing::train(training);
    ASSERT_TRUE(over_host.ok()) << over_host.status();
    training.device = makeGroupDevice;
    const auto on_device = testing::train(training);
    ASSERT_TRUE(on_device.ok()) << on_device.status();
    EXPECT_TRUE(on_device->on_device);
    EXPECT_LT(testing::distance(on_device->weights, over_host->weights), 1e-3) << ranks;
    EXPECT_NEAR(on_device->losses.back(), over_host->losses.back(), 1e-3) << ranks;
    EXPECT_LT(on_device->losses.back(), 0.9 * on_device->losses.front()) << "nothing is learned";
  }
}

}  // namespace
}  // namespace trainyard::runtime::nccl
