// Places in a server's window, when what is under way is given up and when chunks change servers;
// servers and workers that keep abreast of each other.
#include "runtime/ps/chunk_transfer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/core/rng.h"
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

// What `take` has given, answered and stored.
void answer(ChunkTransfer& transfer, const std::vector<ChunkTransfer::Sent>& sends,
            const std::set<std::uint32_t>& chunks) {
  for (const auto& [chunk, attempt] : sends) {
    if (!chunks.contains(chunk)) continue;
    ASSERT_TRUE(transfer.onReply(chunk, attempt));
    transfer.storing(chunk);
    ASSERT_TRUE(transfer.onStored(chunk, attempt, true));
  }
}

TEST(ChunkTransfer, NoServerGetsAheadOfTheSlowestByMoreThanAWindow) {
  ChunkTransfer transfer({0, 0, 0, 0, 1, 1, 1, 1}, 2, true);
  transfer.begin(true);
  const auto first = transfer.take(TimePoint{}, 2);
  EXPECT_EQ(first.size(), 4u) << "two for each";
  answer(transfer, first, {0, 1});
  EXPECT_THAT(taken(transfer, 2), IsEmpty()) << "ps-1 has answered nothing yet";
  answer(transfer, first, {4});
  EXPECT_THAT(taken(transfer, 2), ElementsAre(2, 6));
}

TEST(ChunkTransfer, PartsOfWhatServersHoldAreCompared) {
  ChunkTransfer transfer({0, 0, 0, 0, 0, 0, 1, 1}, 1, true);
  transfer.begin(true);
  const auto first = transfer.take(TimePoint{}, 2);
  EXPECT_EQ(first.size(), 2u);
  answer(transfer, first, {0});
  const auto second = transfer.take(TimePoint{}, 2);
  ASSERT_EQ(second.size(), 1u) << "half of ps-1's are under way: half of ps-0's may be";
  answer(transfer, second, {1});
  const auto third = transfer.take(TimePoint{}, 2);
  ASSERT_EQ(third.size(), 1u);
  answer(transfer, third, {2});
  EXPECT_THAT(taken(transfer, 2), IsEmpty());
  answer(transfer, first, {6});
  EXPECT_THAT(taken(transfer, 2), ElementsAre(3, 7));
}

TEST(ChunkTransfer, AServerWithoutWorkYetHoldsNobodyBack) {
  ChunkTransfer transfer({0, 0, 0, 1, 1, 1}, 1, true);
  transfer.begin(false);
  for (const std::uint32_t chunk : {0u, 1u, 2u}) transfer.ready(chunk, false);
  for (const std::uint32_t chunk : {0u, 1u, 2u}) {
    const auto sends = transfer.take(TimePoint{}, 2);
    ASSERT_EQ(sends.size(), 1u);
    answer(transfer, sends, {chunk});
  }
  for (const std::uint32_t chunk : {3u, 4u, 5u}) transfer.ready(chunk, false);
  EXPECT_THAT(taken(transfer, 2), ElementsAre(3));
}

TEST(ChunkTransfer, EachWorkerBeginsWithAnotherServer) {
  const std::vector<int> servers = {0, 1, 2};
  for (const auto& [first, expected] : std::map<std::size_t, std::vector<std::uint32_t>>{
           {0, {0, 1, 2}}, {1, {1, 2, 0}}, {2, {2, 0, 1}}, {4, {1, 2, 0}}}) {
    ChunkTransfer transfer(servers, 4, true, first);
    transfer.begin(true);
    EXPECT_EQ(taken(transfer, 3), expected);
  }
}

// Workers of one step, whose gradients become ready in an order and at times of their own; a chunk
// is answered once all have sent it.
class Step {
 public:
  Step(std::uint64_t seed, std::size_t window) : random_(seed) {
    for (int chunk = 0; chunk < kChunks; ++chunk)
      servers_.push_back(static_cast<int>(random_.below(kServers)));
    for (std::size_t worker = 0; worker < kWorkers; ++worker) {
      Worker& one = workers_.emplace_back(ChunkTransfer(servers_, window, true, worker));
      one.transfer.begin(false);
      for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) one.coming.push_back(chunk);
    }
  }

  // False: nobody can do anything any more.
  bool act() {
    bool any = false;
    for (Worker& worker : workers_) {
      for (std::uint64_t some = random_.below(3); some > 0 && !worker.coming.empty(); --some) {
        std::swap(worker.coming.back(), worker.coming[random_.below(worker.coming.size())]);
        worker.transfer.ready(worker.coming.back(), false);
        worker.coming.pop_back();
      }
      any = any || !worker.coming.empty();
      for (const auto& sent : worker.transfer.take(TimePoint{}, kServers)) {
        worker.sent[sent.chunk] = sent.attempt;
        any = true;
      }
    }
    for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) any = complete(chunk) || any;
    return any;
  }
  bool done() const {
    return std::ranges::all_of(workers_, [](const Worker& w) { return w.transfer.allDone(); });
  }

 private:
  static constexpr int kChunks = 40;
  static constexpr std::size_t kServers = 4, kWorkers = 3;
  struct Worker {
    explicit Worker(ChunkTransfer of) : transfer(std::move(of)) {}
    ChunkTransfer transfer;
    std::vector<std::uint32_t> coming;
    std::map<std::uint32_t, std::uint64_t> sent;
  };

  bool complete(std::uint32_t chunk) {
    if (!std::ranges::all_of(workers_, [&](const Worker& w) { return w.sent.contains(chunk); }))
      return false;
    for (Worker& worker : workers_)
      answer(worker.transfer, {{chunk, worker.sent.extract(chunk).mapped()}}, {chunk});
    return true;
  }

  Rng random_;
  std::vector<int> servers_;
  std::vector<Worker> workers_;
};

TEST(ChunkTransfer, InWhateverOrderGradientsComeNobodyWaitsForEver) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Step step(seed, 1 + seed % 3);
    while (step.act()) {
    }
    EXPECT_TRUE(step.done()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trainyard::runtime::ps
