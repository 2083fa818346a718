#include "base/core/helper_pool.h"

#include <atomic>
#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

// Lets callers through once so many of them are there; a bound against hangs alone.
class Meeting {
 public:
  explicit Meeting(int wanted) : wanted_(wanted) {}
  bool attend() {
    std::unique_lock lock(mutex_);
    ++there_;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(20), [this] { return there_ >= wanted_; });
  }

 private:
  const int wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int there_ = 0;
};

TEST(HelperPoolTest, DoesEveryPieceOnce) {
  HelperPool pool(3);
  std::mutex mutex;
  std::multiset<std::size_t> done;
  pool.forEach(100, 4, [&](std::size_t i) {
    const std::lock_guard lock(mutex);
    done.insert(i);
    return true;
  });
  EXPECT_EQ(done.size(), 100u);
  EXPECT_EQ(std::set(done.begin(), done.end()).size(), 100u);
  pool.forEach(0, 4, [](std::size_t) -> bool {
    ADD_FAILURE() << "there is none";
    return true;
  });
}

TEST(HelperPoolTest, WorksSideBySideButNoMoreThanAllowed) {
  HelperPool pool(8);
  Meeting meeting(3);
  std::atomic<int> under_way = 0, most = 0;
  std::atomic<bool> met = true;
  pool.forEach(9, 3, [&](std::size_t i) {
    const int now = ++under_way;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    if (i < 3) met = meeting.attend() && met;
    --under_way;
    return true;
  });
  EXPECT_TRUE(met);
  EXPECT_EQ(most, 3);
}

TEST(HelperPoolTest, OneAtATimeIsInOrderOnTheCallersThread) {
  HelperPool pool(4);
  std::vector<std::size_t> order;
  pool.forEach(4, 1, [&](std::size_t i) {
    order.push_back(i);
    return true;
  });
  EXPECT_THAT(order, testing::ElementsAre(0u, 1u, 2u, 3u));
}

TEST(HelperPoolTest, BeginsNothingAfterAFailure) {
  HelperPool pool(4);
  int calls = 0;
  pool.forEach(10, 1, [&](std::size_t i) {
    ++calls;
    return i < 2;
  });
  EXPECT_EQ(calls, 3);
}

TEST(HelperPoolTest, ACallerGetsOnWhileAllHelpersAreWithOthers) {
  HelperPool pool(1);
  Meeting held(2), let_go(2);
  std::atomic<bool> met = true;
  // Both threads of this batch, the only helper among them, wait until the other caller is done.
  std::thread first([&] {
    pool.forEach(2, 2, [&](std::size_t i) {
      if (i == 0) met = held.attend() && met;
      met = let_go.attend() && met;
      return true;
    });
  });
  met = held.attend() && met;
  std::atomic<int> done = 0;
  pool.forEach(5, 4, [&](std::size_t) {
    ++done;
    return true;
  });
  EXPECT_EQ(done, 5);
  met = let_go.attend() && met;
  first.join();
  EXPECT_TRUE(met);
}

}  // namespace
}  // namespace trainyard
