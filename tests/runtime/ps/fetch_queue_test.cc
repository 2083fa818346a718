// Which chunks are asked for when.
#include "runtime/ps/fetch_queue.h"

#include "gmock/gmock.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Duration kMoment = std::chrono::milliseconds(50);
constexpr Duration kSecond = std::chrono::seconds(1);

std::vector<FetchedChunk> chunksFrom(const std::vector<int>& servers) {
  std::vector<FetchedChunk> chunks;
  for (const int ps : servers) chunks.push_back({static_cast<std::uint32_t>(chunks.size()), ps});
  return chunks;
}

FetchLimits limitsOf(std::size_t window) {
  FetchLimits limits;
  limits.window = window;
  return limits;
}

TEST(FetchQueue, AsksForNoMoreThanItsWindow) {
  FetchQueue queue(chunksFrom({0, 0, 0, 0}), limitsOf(2), kStart);
  EXPECT_THAT(queue.take(kStart), ElementsAre(0u, 1u));
  EXPECT_THAT(queue.take(kStart), IsEmpty());
  queue.onArrived(1, kStart);
  EXPECT_THAT(queue.take(kStart), ElementsAre(2u));
  for (const std::size_t at : {0u, 2u}) queue.onArrived(at, kStart);
  EXPECT_FALSE(queue.done());
  EXPECT_THAT(queue.take(kStart), ElementsAre(3u));
  queue.onArrived(3, kStart);
  EXPECT_TRUE(queue.done());
}

TEST(FetchQueue, AsksAllServersAtOnce) {
  FetchQueue queue(chunksFrom({5, 5, 5, 5, 7, 7, 7, 7}), limitsOf(4), kStart);
  EXPECT_THAT(queue.take(kStart), ElementsAre(0u, 4u, 1u, 5u));
  for (const std::size_t at : {4u, 5u}) queue.onArrived(at, kStart);
  EXPECT_THAT(queue.take(kStart), ElementsAre(6u, 7u)) << "ps-5 takes no more than its half";
  for (const std::size_t at : {6u, 7u}) queue.onArrived(at, kStart);
  EXPECT_THAT(queue.take(kStart), ElementsAre(2u, 3u)) << "but all where nobody else has any";
}

TEST(FetchQueue, WhoRefusesIsLeftAloneForAMoment) {
  FetchQueue queue(chunksFrom({0, 0, 1}), limitsOf(2), kStart);
  EXPECT_THAT(queue.take(kStart), ElementsAre(0u, 2u));
  queue.onFailed(0, kStart);
  EXPECT_THAT(queue.take(kStart), IsEmpty()) << "the others of that server wait too";
  EXPECT_THAT(queue.take(kStart + kMoment), ElementsAre(0u));
}

TEST(FetchQueue, AServerIsSilentOnlyWhileItOwesSomething) {
  FetchQueue queue(chunksFrom({0, 0, 1}), limitsOf(3), kStart);
  queue.take(kStart);
  EXPECT_EQ(queue.silent(kStart + 5 * kSecond), std::nullopt);
  queue.onArrived(2, kStart + 4 * kSecond);
  queue.onArrived(0, kStart + 4 * kSecond);
  EXPECT_EQ(queue.silent(kStart + 6 * kSecond), std::nullopt) << "it has given another one since";
  EXPECT_EQ(queue.silent(kStart + 10 * kSecond), 0);
  queue.onFailed(1, kStart + 10 * kSecond);
  EXPECT_EQ(queue.silent(kStart + 20 * kSecond), std::nullopt);
  EXPECT_THAT(queue.take(kStart + 20 * kSecond), ElementsAre(1u));
  EXPECT_EQ(queue.silent(kStart + 21 * kSecond), std::nullopt) << "it was asked just now";
}

TEST(FetchQueue, IsLateWhenNothingComes) {
  FetchQueue queue(chunksFrom({0, 0}), limitsOf(1), kStart);
  queue.take(kStart);
  queue.onArrived(0, kStart + 50 * kSecond);
  EXPECT_FALSE(queue.late(kStart + 100 * kSecond));
  queue.take(kStart + 100 * kSecond);
  queue.onFailed(1, kStart + 105 * kSecond);
  EXPECT_TRUE(queue.late(kStart + 111 * kSecond)) << "failures are no success";
}

}  // namespace
}  // namespace trainyard::runtime::ps
