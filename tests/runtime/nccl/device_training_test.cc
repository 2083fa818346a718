// Models on LibTorch's device "cpu" whose gradients are put together on an imitated one, against
// the way over the host. The same with NCCL on GPUs is in nccl_training_test.cc.
#include "tests/runtime/nccl/device_training.h"

#include "gtest/gtest.h"
#include "runtime/model/model.h"
#include "tests/runtime/collective/fake_device.h"

namespace trainyard::runtime::nccl {
namespace {

TEST(DeviceTrainingTest, TrainsAsOverTheHost) {
  setComputeThreads(1);
  for (const int ranks : {1, 2}) {
    testing::Training training;
    training.ranks = ranks;
    training.compute = [](int) { return "cpu"; };
    const auto over_host = testing::train(training);
    ASSERT_TRUE(over_host.ok()) << over_host.status();
    EXPECT_FALSE(over_host->on_device);
    collective::testing::FakeDevices devices;
    training.device = [&](int rank) {
      collective::GroupDevice device;
      device.library = devices.library();
      // The model's gradients are in the host's memory still.
      device.memory = std::make_shared<collective::testing::FakeMemory>(/*anywhere=*/true);
      device.identity = std::to_string(rank);
      return device;
    };
    const auto on_device = testing::train(training);
    ASSERT_TRUE(on_device.ok()) << on_device.status();
    EXPECT_TRUE(on_device->on_device);
    // Two values have one sum, in whichever order.
    EXPECT_EQ(on_device->losses, over_host->losses);
    EXPECT_EQ(on_device->weights, over_host->weights);
    EXPECT_LT(on_device->losses.back(), 0.9 * on_device->losses.front()) << "nothing is learned";
    EXPECT_GE(devices.operations(), 8U);
  }
}

}  // namespace
}  // namespace trainyard::runtime::nccl
