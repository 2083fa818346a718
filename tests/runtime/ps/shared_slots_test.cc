#include "runtime/ps/shared_slots.h"

#include <unistd.h>

#include <cstring>

#include "gmock/gmock.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;

std::shared_ptr<SharedSlots> twoSlots() {
  auto made = SharedSlots::create({{3, 4}, {7, 100}});
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

TEST(SharedSlots, OneCallAtATimeHasAChunksSlot) {
  const auto slots = twoSlots();
  auto hold = slots->take(3);
  ASSERT_NE(hold, nullptr);
  EXPECT_EQ(slots->take(3), nullptr);
  EXPECT_NE(slots->take(7), nullptr);
  EXPECT_EQ(slots->take(4), nullptr) << "a chunk of another server";
  hold = nullptr;
  EXPECT_NE(slots->take(3), nullptr);
}

TEST(SharedSlots, TheServerFindsTheGradientAndLeavesTheWeights) {
  const auto slots = twoSlots();
  const auto hold = slots->take(3);
  const auto gradient = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  // In two pieces, as a chunk of two variables comes.
  hold->write({{std::span<const float>(*gradient).first(1), gradient},
               {std::span<const float>(*gradient).subspan(1), gradient}});
  SharedPeers peers;
  ASSERT_TRUE(peers.open(slots->invitation()).ok());
  const v1::SharedPlace place = hold->place(16);
  const auto memory = peers.find(place.memory());
  ASSERT_NE(memory, nullptr);
  const auto request = partOf(*memory, place.request_offset(), place.request_bytes());
  ASSERT_EQ(request.size(), 16u);
  std::vector<float> seen(4);
  std::memcpy(seen.data(), request.data(), 16);
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4));
  const auto reply = partOf(*memory, place.reply_offset(), place.reply_bytes());
  ASSERT_EQ(reply.size(), 16u);
  const std::vector<float> weights = {9, 8, 7, 6};
  std::memcpy(reply.data(), weights.data(), 16);
  EXPECT_EQ(std::memcmp(hold->reply().data(), weights.data(), 16), 0);
  std::memcpy(seen.data(), request.data(), 16);
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4)) << "both have a place of their own";
}

TEST(SharedSlots, OnlyWhatIsInsideIsAPlace) {
  const auto slots = twoSlots();
  SharedPeers peers;
  ASSERT_TRUE(peers.open(slots->invitation()).ok());
  const auto memory = peers.find(slots->invitation().memory());
  const std::uint64_t end = memory->bytes();
  EXPECT_EQ(partOf(*memory, 64, 4).size(), 4u);
  EXPECT_EQ(partOf(*memory, end - 4, 4).size(), 4u);
  EXPECT_TRUE(partOf(*memory, 0, 4).empty()) << "the label";
  EXPECT_TRUE(partOf(*memory, end, 4).empty());
  EXPECT_TRUE(partOf(*memory, end - 4, 8).empty());
  EXPECT_TRUE(partOf(*memory, 66, 4).empty()) << "not aligned";
  EXPECT_TRUE(partOf(*memory, 64, 6).empty()) << "not whole floats";
  EXPECT_TRUE(partOf(*memory, ~std::uint64_t{3}, 8).empty()) << "around the end of all numbers";
}

TEST(SharedSlots, ANewOfferReplacesTheWorkersFormerOne) {
  const auto first = twoSlots(), second = twoSlots(), other = twoSlots();
  SharedPeers peers;
  v1::ShareMemoryRequest others = other->invitation();
  others.set_worker(1);
  ASSERT_TRUE(peers.open(first->invitation()).ok());
  ASSERT_TRUE(peers.open(others).ok());
  ASSERT_TRUE(peers.open(second->invitation()).ok());
  EXPECT_EQ(peers.find(first->invitation().memory()), nullptr);
  EXPECT_NE(peers.find(second->invitation().memory()), nullptr);
  EXPECT_NE(peers.find(others.memory()), nullptr);
}

TEST(SharedSlots, AStrangersMemoryIsRefused) {
  const auto slots = twoSlots();
  SharedPeers peers;
  v1::ShareMemoryRequest wrong = slots->invitation();
  wrong.set_memory(wrong.memory() + 2);
  EXPECT_EQ(peers.open(wrong).code(), absl::StatusCode::kUnavailable);
  wrong = slots->invitation();
  wrong.set_bytes(8);
  EXPECT_EQ(peers.open(wrong).code(), absl::StatusCode::kInvalidArgument);
  wrong = slots->invitation();
  wrong.set_pid(1 << 29);
  EXPECT_FALSE(peers.open(wrong).ok());
  EXPECT_EQ(peers.find(slots->invitation().memory()), nullptr);
}

}  // namespace
}  // namespace trainyard::runtime::ps
