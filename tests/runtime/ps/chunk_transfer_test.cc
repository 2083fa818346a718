// Places in a server's window, when what is under way is given up and when chunks change servers.
#include "runtime/ps/chunk_transfer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::uint32_t> taken(ChunkTransfer& transfer, std::size_t servers) {
  std::vector<std::uint32_t> chunks;
  for (const auto& sent : transfer.take(TimePoint{}, servers)) chunks.push_back(sent.chunk);
  return chunks;
}

TEST(ChunkTransfer, WhatIsGivenUpFreesItsPlace) {
  ChunkTransfer transfer({0, 0, 0}, 2, true);
  for (int again = 0; again < 5; ++again) {
    transfer.begin(true);
    EXPECT_THAT(taken(transfer, 1), ElementsAre(0, 1)) << "begun " << again << " times before";
    EXPECT_THAT(taken(transfer, 1), IsEmpty());
  }
}

TEST(ChunkTransfer, ANewEpochFreesAllPlacesOnce) {
  ChunkTransfer transfer({0, 0, 0}, 2, true);
  transfer.begin(true);
  EXPECT_THAT(taken(transfer, 1), ElementsAre(0, 1));
  transfer.forgetSent();
  transfer.begin(true);
  EXPECT_THAT(taken(transfer, 1), ElementsAre(0, 1));
  EXPECT_THAT(taken(transfer, 1), IsEmpty()) << "no more than two at once";
  transfer.forgetSent();
  transfer.resume();
  for (const std::uint32_t chunk : {0u, 1u, 2u}) transfer.ready(chunk, false);
  EXPECT_THAT(taken(transfer, 1), ElementsAre(0, 1));
  EXPECT_THAT(taken(transfer, 1), IsEmpty());
}

TEST(ChunkTransfer, ChunksGoWhereTheyAreHeldNow) {
  ChunkTransfer transfer({0, 0, 1}, 1, false);
  EXPECT_TRUE(transfer.wantsReceipt(0));
  EXPECT_FALSE(transfer.wantsReceipt(1));
  transfer.begin(true);
  EXPECT_THAT(taken(transfer, 2), ElementsAre(0, 2));
  transfer.forgetSent();
  transfer.setServers({0, 3, 1});
  transfer.begin(true);
  EXPECT_EQ(transfer.serverOf(1), 3);
  EXPECT_FALSE(transfer.wantsReceipt(0));
  EXPECT_THAT(taken(transfer, 2), ElementsAre(0, 2)) << "ps-3 is not known yet";
  EXPECT_THAT(taken(transfer, 4), ElementsAre(1));
  transfer.forgetSent();
  transfer.setServers({0, 0, 0});
  transfer.begin(true);
  EXPECT_THAT(taken(transfer, 1), ElementsAre(0));
}

}  // namespace
}  // namespace trainyard::runtime::ps
