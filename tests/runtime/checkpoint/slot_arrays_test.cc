#include "runtime/checkpoint/slot_arrays.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;

TEST(SlotArrays, CopiesShareUntilOneIsWritten) {
  SlotArrays slots(SlotArrays::Arrays{{1, 2}, {3, 4}});
  SlotArrays copy = slots;
  EXPECT_EQ(copy[1].data(), slots[1].data());
  slots.own()[1][0] = 7;
  EXPECT_THAT(slots[1], ElementsAre(7, 4));
  EXPECT_THAT(copy[1], ElementsAre(3, 4));
  const float* const own = copy[1].data();
  copy.own()[1][0] = 8;
  EXPECT_EQ(copy[1].data(), own) << "the other has gone its own way";
  EXPECT_THAT(slots[1], ElementsAre(7, 4));
}

TEST(SlotArrays, NothingIsCopiedWhereNobodyElseHasThem) {
  SlotArrays slots(SlotArrays::Arrays{{1, 2}});
  const float* const own = slots[0].data();
  { const SlotArrays copy = slots; }
  EXPECT_EQ(slots.own()[0].data(), own);
  SlotArrays moved = std::move(slots);
  EXPECT_EQ(moved.own()[0].data(), own);
  const SlotArrays assigned = moved;
  moved = SlotArrays(SlotArrays::Arrays{{5}});
  EXPECT_THAT(moved[0], ElementsAre(5));
  EXPECT_EQ(assigned[0].data(), own);
}

// As a file is written from a copy while steps go on. What a reader has read is not written behind
// its back; for the thread sanitizer.
TEST(SlotArrays, AReaderThatEndsIsNoRace) {
  SlotArrays slots(SlotArrays::Arrays(1, std::vector<float>(1000, 0)));
  for (int round = 1; round < 200; ++round) {
    const auto value = static_cast<float>(round);
    std::thread reader([copy = std::make_unique<SlotArrays>(slots), value]() mutable {
      for (const float read : (*copy)[0]) EXPECT_EQ(read, value - 1);
      copy.reset();
    });
    for (float& each : slots.own()[0]) each = value;
    reader.join();
  }
}

}  // namespace
}  // namespace trainyard::runtime
