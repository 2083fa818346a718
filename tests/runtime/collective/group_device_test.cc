// When a group uses its ranks' devices, and how it does without.
#include "runtime/collective/group_device.h"

#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/collective/group.h"
#include "runtime/stream/tls_stream.h"
#include "tests/runtime/collective/fake_device.h"

namespace trainyard::runtime::collective {
namespace {

using collective::testing::FakeDevices;
using collective::testing::FakeMemory;
using collective::testing::Fault;
using ::testing::HasSubstr;
using transport::TcpListener;

std::string offer(const char* identity) {
  GroupDevice device;
  device.library = FakeDevices().library();
  device.identity = identity;
  return offerOf(device);
}
std::string none(const char* why = "") {
  GroupDevice device;
  device.missing = why;
  return offerOf(device);
}

TEST(GroupDeviceTest, EveryRankNeedsOneOfItsOwn) {
  const auto verdict = [](const std::vector<std::string>& offers) {
    const DeviceVerdict made = decideOnDevices(offers);
    return made.used ? "used" : made.reason;
  };
  EXPECT_EQ(verdict({offer("A")}), "used");
  EXPECT_EQ(verdict({offer("A"), offer("B"), offer("C")}), "used");
  EXPECT_EQ(verdict({offer("A"), offer("B"), offer("A")}), "ranks 0 and 2 have one GPU, A");
  EXPECT_EQ(verdict({offer("A"), none()}), "rank 1: computes on no GPU");
  EXPECT_EQ(verdict({none("built without NCCL"), offer("A")}), "rank 0: built without NCCL");
  EXPECT_EQ(verdict({none(), none("built without NCCL")}), "rank 0: computes on no GPU");
  EXPECT_EQ(verdict({none(), none()}), "") << "there is nothing to say";
}

// A group of ranks as threads, each with a device of its own unless it is changed.
class Ranks {
 public:
  // `hosts`: so many addresses, in turns.
  explicit Ranks(int size, int hosts = 1) : devices_of(static_cast<std::size_t>(size)) {
    options.mesh.token = "token";
    options.collective.timeout = std::chrono::seconds(60);
    for (int r = 0; r < size; ++r) {
      const std::string address = "127.0.0." + std::to_string(r % hosts + 1);
      auto listener = TcpListener::listen(address, 0);
      EXPECT_TRUE(listener.ok()) << listener.status();
      options.mesh.addresses.push_back({address, listener->port()});
      listeners_.push_back(std::move(*listener));
      GroupDevice& device = devices_of[static_cast<std::size_t>(r)];
      device.library = devices.library();
      device.identity = "GPU-" + std::to_string(r);
    }
  }

  // Each rank's sum of what all bring, on the devices ("device 3") or else ("host 3"); or the
  // error.
  std::vector<std::string> sums() {
    ++options.mesh.epoch;
    std::vector<std::string> said(listeners_.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < said.size(); ++r)
      threads.emplace_back(
          [&, r] { said[r] = around([&] { return sumOf(static_cast<int>(r)); }); });
    for (std::thread& thread : threads) thread.join();
    return said;
  }

  FakeDevices devices;
  std::vector<GroupDevice> devices_of;  // by rank
  GroupOptions options;
  std::function<std::string(const std::function<std::string()>&)> around = [](const auto& act) {
    return act();
  };

 private:
  std::string sumOf(int rank) {
    GroupOptions own = options;
    own.mesh.rank = rank;
    own.device = devices_of[static_cast<std::size_t>(rank)];
    auto group = joinGroup(listeners_[static_cast<std::size_t>(rank)], own, {});
    if (!group.ok()) return std::string(group.status().message());
    EXPECT_TRUE(!group->device || !group->arena) << "no shared memory beside devices";
    float value = static_cast<float>(rank + 1);
    Collective& collective = group->device ? *group->device : *group->collective;
    const Status done = collective.allReduce(arrayOf({&value, 1}), Reduction::kSum);
    if (!done.ok()) return std::string(done.message());
    // What goes over the host goes on beside the device.
    const Status met = group->collective->barrier();
    if (!met.ok()) return std::string(met.message());
    return (group->device ? "device " : "host ") + std::to_string(static_cast<int>(value));
  }

  std::vector<TcpListener> listeners_;
};

std::vector<std::string> all(int ranks, const char* said) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks), said);
}

TEST(GroupDeviceTest, RanksWithDevicesOfTheirOwnUseThem) {
  for (const int size : {1, 2, 3}) {
    Ranks ranks(size);
    const std::string sum = "device " + std::to_string(size * (size + 1) / 2);
    EXPECT_EQ(ranks.sums(), all(size, sum.c_str()));
    EXPECT_EQ(ranks.sums(), all(size, sum.c_str())) << "every group joins anew";
  }
}

TEST(GroupDeviceTest, WhereOneHasNoneNobodyUsesThem) {
  Ranks ranks(3);
  ranks.devices_of[1] = {};
  EXPECT_EQ(ranks.sums(), all(3, "host 6"));
  ranks.devices_of[1] = ranks.devices_of[2];
  EXPECT_EQ(ranks.sums(), all(3, "host 6")) << "two on one device";
  EXPECT_EQ(ranks.devices.operations(), 0U);
}

TEST(GroupDeviceTest, OrderAndWireAreTheHosts) {
  Ranks ranks(2);
  ranks.options.collective.deterministic = true;
  EXPECT_EQ(ranks.sums(), all(2, "host 3"));
  ranks.options.collective.deterministic = false;
  ranks.options.collective.wire = ElementType::kBFloat16;
  EXPECT_EQ(ranks.sums(), all(2, "host 3"));
  ranks.options.collective.wire = {};
  EXPECT_EQ(ranks.sums(), all(2, "device 3"));
}

// What devices send each other is not encrypted, and leaves no host then.
TEST(GroupDeviceTest, EncryptedTheyStayWithinAHost) {
  const auto tls = *stream::TlsContext::make(deriveRuntimeKeys("token").control);
  for (const int hosts : {1, 2}) {
    Ranks ranks(2, hosts);
    EXPECT_EQ(ranks.sums(), all(2, "device 3"));
    ranks.options.mesh.encryption = tls;
    EXPECT_EQ(ranks.sums(), all(2, hosts == 1 ? "device 3" : "host 3"));
  }
}

// All do without together, in a new mesh; with the next group they try again.
TEST(GroupDeviceTest, WhatCannotBeJoinedIsDoneWithout) {
  Ranks ranks(3);
  for (const Fault fault : {Fault::kNoId, Fault::kRefusesToJoin}) {
    ranks.devices.fault = fault;
    EXPECT_EQ(ranks.sums(), all(3, "host 6")) << static_cast<int>(fault);
  }
  ranks.devices.fault = Fault::kNone;
  EXPECT_EQ(ranks.sums(), all(3, "device 6"));
}

TEST(GroupDeviceTest, ALibraryThatWaitsForEverIsDoneWithout) {
  Ranks ranks(2);
  ranks.devices.fault = Fault::kNeverJoins;
  ranks.options.mesh.timeout = std::chrono::seconds(5);
  EXPECT_EQ(ranks.sums(), all(2, "host 3"));
}

// Nobody goes on without it.
TEST(GroupDeviceTest, ARankThatIsLostWhileTheyJoinIsNamed) {
  struct Lost {};
  class LosesItsRank : public DeviceLibrary {
   public:
    StatusOr<DeviceGroupId> makeId() override { throw Lost(); }
    StatusOr<std::unique_ptr<DeviceCommunicator>> join(const DeviceGroupId&, int, int) override {
      throw Lost();
    }
  };
  Ranks ranks(3);
  ranks.devices_of[2].library = std::make_shared<LosesItsRank>();
  ranks.options.mesh.timeout = std::chrono::seconds(5);
  ranks.around = [](const std::function<std::string()>& act) -> std::string {
    try {
      return act();
    } catch (const Lost&) {
      return "lost";
    }
  };
  const std::vector<std::string> said = ranks.sums();
  EXPECT_EQ(said[2], "lost");
  for (const int r : {0, 1}) EXPECT_THAT(said[r], HasSubstr("rank 2")) << r;
}

}  // namespace
}  // namespace trainyard::runtime::collective
