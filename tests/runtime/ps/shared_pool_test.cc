// Memory of one process that another reads: both ends, in one process.
#include "runtime/ps/shared_pool.h"

#include <cstring>
#include <fstream>
#include <string>

#include "base/process/memory.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "runtime/ps/chunk_state.h"
#include "runtime/ps/shared_payloads.h"
#include "runtime/ps/shared_peers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kBytes = 1024;

std::shared_ptr<SharedPool> newPool() {
  auto pool = SharedPool::create(kBytes, 4);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *pool;
}

v1::SharedPlace placeOf(const SharedPool& pool, const Weights& weights) {
  const auto place = pool.placeOf(std::as_bytes(std::span<const float>(weights)));
  EXPECT_TRUE(place.has_value());
  return *place;
}

class SharedPoolTest : public testing::Test {
 protected:
  std::vector<float> read(const v1::SharedPlace& place) {
    const auto part = peer_.part(place);
    EXPECT_TRUE(part.ok()) << part.status();
    std::vector<float> values(place.bytes() / sizeof(float));
    if (part.ok()) std::memcpy(values.data(), part->bytes.data(), part->bytes.size());
    return values;
  }
  const std::shared_ptr<SharedPool> pool_ = newPool();
  SharedFiles files_;
  SharedPeer peer_{files_};
};

TEST_F(SharedPoolTest, WhatItHoldsIsReadWhereItLies) {
  const auto weights = makeWeights(3, pool_);
  EXPECT_THAT(*weights, Each(0.0f));
  const v1::SharedPlace place = placeOf(*pool_, *weights);
  *weights = {1, 2, 3};
  EXPECT_THAT(read(place), ElementsAre(1, 2, 3));
  (*weights)[1] = 7;
  EXPECT_THAT(read(place), ElementsAre(1, 7, 3)) << "no copy";
}

TEST_F(SharedPoolTest, LateBlocksAreSharedFromWhenThereIsAPool) {
  LatePool late(128);
  const auto shared = [&](void* block, std::size_t bytes) {
    return pool_->placeOf({static_cast<const std::byte*>(block), bytes}).has_value();
  };
  void* const early = late.allocate(256, alignof(float));
  EXPECT_FALSE(shared(early, 256));
  late.open(pool_);
  void* const block = late.allocate(128, alignof(float));
  void* const small = late.allocate(127, alignof(float));
  EXPECT_TRUE(shared(block, 128));
  EXPECT_FALSE(shared(small, 127));
  late.deallocate(small, 127, alignof(float));
  late.deallocate(early, 256, alignof(float));
  late.deallocate(block, 128, alignof(float));
  EXPECT_EQ(late.allocate(128, alignof(float)), block) << "of the pool again";
}

TEST_F(SharedPoolTest, OthersCanOnlyRead) {
  const auto weights = makeWeights(1, pool_);
  const auto part = peer_.part(placeOf(*pool_, *weights));
  ASSERT_TRUE(part.ok()) << part.status();
  std::ifstream maps("/proc/self/maps");
  const auto from = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(part->memory->data()));
  std::string line;
  while (std::getline(maps, line) && !line.starts_with(from)) {
  }
  EXPECT_THAT(line, HasSubstr(" r--s ")) << from;
}

TEST_F(SharedPoolTest, BlocksComeBackForTheSameSize) {
  auto first = makeWeights(16, pool_);
  const float* const block = first->data();
  const auto other = makeWeights(16, pool_);
  EXPECT_NE(other->data(), block);
  first = nullptr;
  EXPECT_NE(makeWeights(32, pool_)->data(), block);
  const auto again = makeWeights(16, pool_);
  EXPECT_EQ(again->data(), block);
  EXPECT_THAT(*again, Each(0.0f));
}

TEST_F(SharedPoolTest, MoreThanOneFileHolds) {
  const auto first = makeWeights(kBytes / sizeof(float), pool_);
  const auto second = makeWeights(kBytes / sizeof(float), pool_);
  const auto large = makeWeights(kBytes, pool_);
  first->front() = 1;
  second->front() = 2;
  large->back() = 3;
  EXPECT_EQ(placeOf(*pool_, *first).file().id(), pool_->file().id());
  EXPECT_NE(placeOf(*pool_, *second).file().id(), pool_->file().id());
  EXPECT_EQ(read(placeOf(*pool_, *first)).front(), 1);
  EXPECT_EQ(read(placeOf(*pool_, *second)).front(), 2);
  EXPECT_EQ(read(placeOf(*pool_, *large)).back(), 3);
}

// The kernel would refuse nothing, and kill somebody later.
TEST_F(SharedPoolTest, WhatCannotBeSharedIsTheProcesssAlone) {
  const auto left = availableMemory();
  ASSERT_TRUE(left.ok()) << left.status();
  const auto too_much = static_cast<std::size_t>(left->bytes / 3);
  void* const block = pool_->allocate(too_much);
  ASSERT_NE(block, nullptr);
  EXPECT_FALSE(pool_->placeOf({static_cast<const std::byte*>(block), 4}).has_value());
  pool_->deallocate(block, too_much);
  const std::vector<float> elsewhere(4);
  EXPECT_FALSE(pool_->placeOf(std::as_bytes(std::span(elsewhere))).has_value());
  EXPECT_TRUE(pool_->placeOf(std::as_bytes(std::span<const float>(*makeWeights(4, pool_)))));
}

TEST_F(SharedPoolTest, OnlyWhatIsInsideIsAPlace) {
  v1::SharedPlace place = placeOf(*pool_, *makeWeights(1, pool_));
  const std::uint64_t end = place.file().bytes();
  const auto whole = [&](std::uint64_t offset, std::uint64_t bytes) {
    place.set_offset(offset);
    place.set_bytes(bytes);
    const auto part = peer_.part(place);
    if (part.ok()) return part->bytes.size() == bytes;
    EXPECT_THAT(std::string(part.status().message()), HasSubstr("outside of the shared memory"));
    return false;
  };
  EXPECT_TRUE(whole(kSharedAlign, 4));
  EXPECT_TRUE(whole(end - 4, 4));
  EXPECT_FALSE(whole(0, 4)) << "the label";
  EXPECT_FALSE(whole(end, 4));
  EXPECT_FALSE(whole(end - 4, 8));
  EXPECT_FALSE(whole(kSharedAlign + 2, 4)) << "not aligned";
  EXPECT_FALSE(whole(kSharedAlign, 6)) << "not whole floats";
  EXPECT_FALSE(whole(~std::uint64_t{3}, 8)) << "around the end of all numbers";
}

TEST_F(SharedPoolTest, AStrangersMemoryIsRefused) {
  v1::SharedFile wrong = pool_->file();
  wrong.set_id(wrong.id() + 2);
  EXPECT_EQ(peer_.open(wrong).code(), absl::StatusCode::kUnavailable);
  wrong = pool_->file();
  wrong.set_bytes(8);
  EXPECT_EQ(peer_.open(wrong).code(), absl::StatusCode::kInvalidArgument);
  wrong = pool_->file();
  wrong.set_pid(1 << 29);
  wrong.set_id(5);
  EXPECT_FALSE(peer_.open(wrong).ok());
}

TEST_F(SharedPoolTest, FilesAreMappedOnceAndAsLongAsSomebodyReads) {
  auto first = files_.open(pool_->file());
  const auto second = files_.open(pool_->file());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*first)->data(), (*second)->data());
  std::weak_ptr<const SharedMemory> mapped;
  {
    SharedPeer peer(files_);
    v1::SharedFile other = newPool()->file();
    EXPECT_FALSE(peer.open(other).ok()) << "its pool is gone, and so is its file";
    const auto pool = newPool();
    ASSERT_TRUE(peer.open(pool->file()).ok());
    mapped = *files_.open(pool->file());
    EXPECT_FALSE(mapped.expired());
  }
  EXPECT_TRUE(mapped.expired());
}

TEST_F(SharedPoolTest, PayloadsOfAChunkHaveOneBlock) {
  SharedPayloads payloads(pool_);
  const auto gradient = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  const std::span<const float> values(*gradient);
  // In two pieces, as a chunk of two variables comes.
  const std::vector<PayloadPiece> pieces = {{values.first(1), gradient},
                                            {values.subspan(1), gradient}};
  const auto place = payloads.place(3, 1, pieces);
  ASSERT_TRUE(place.has_value());
  EXPECT_THAT(read(*place), ElementsAre(1, 2, 3, 4));
  const auto other = payloads.place(7, 2, pieces);
  ASSERT_TRUE(other.has_value());
  EXPECT_NE(other->offset(), place->offset());
  *gradient = {5, 6, 7, 8};
  const auto next = payloads.place(3, 3, pieces);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->offset(), place->offset());
  EXPECT_THAT(read(*place), ElementsAre(5, 6, 7, 8));
}

// Its thread may have been held up since it took the request, for an epoch and longer.
TEST_F(SharedPoolTest, ALateRequestDoesNotOverwriteTheGradientOfALaterOne) {
  SharedPayloads payloads(pool_);
  const auto late = std::make_shared<std::vector<float>>(std::vector<float>{1, 2});
  const auto newest = std::make_shared<std::vector<float>>(std::vector<float>{3, 4});
  const auto place = payloads.place(3, 8, {{*newest, newest}});
  ASSERT_TRUE(place.has_value());
  EXPECT_FALSE(payloads.place(3, 7, {{*late, late}}).has_value());
  EXPECT_THAT(read(*place), ElementsAre(3, 4));
  EXPECT_TRUE(payloads.place(3, 8, {{*newest, newest}}).has_value()) << "to another server";
}

TEST_F(SharedPoolTest, PayloadsThatLieThereAreNotCopied) {
  SharedPayloads payloads(pool_);
  const auto mean = makeWeights(4, pool_);
  const auto place = payloads.place(0, 1, {{*mean, mean}});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->offset(), placeOf(*pool_, *mean).offset());
}

}  // namespace
}  // namespace trainyard::runtime::ps
