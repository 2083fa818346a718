#include "operator/queue/work_queue.h"

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "gmock/gmock.h"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class WorkQueueTest : public testing::Test {
 protected:
  std::string takeAll() {
    std::string all;
    while (const auto key = queue_.tryTake()) {
      all += *key + " ";
      queue_.done(*key);
    }
    return all;
  }
  FakeClock clock_;
  WorkQueue queue_{clock_, QueueOptions{milliseconds(50), seconds(30)}};
};

TEST_F(WorkQueueTest, KeepsOrderAndMergesDoubles) {
  for (const char* key : {"a", "b", "a", "c", "b"}) queue_.add(key);
  EXPECT_EQ(queue_.waiting(), 3u);
  EXPECT_EQ(takeAll(), "a b c ");
  EXPECT_EQ(queue_.adds(), 5u);
}

TEST_F(WorkQueueTest, NeverHandsOutAKeyThatIsWorkedOn) {
  queue_.add("a");
  ASSERT_EQ(queue_.tryTake(), "a");
  queue_.add("a");
  queue_.add("a");
  EXPECT_EQ(queue_.tryTake(), std::nullopt);
  queue_.done("a");
  EXPECT_EQ(queue_.tryTake(), "a");
  queue_.done("a");
  EXPECT_EQ(queue_.tryTake(), std::nullopt);
}

TEST_F(WorkQueueTest, DelayedKeysComeInTime) {
  queue_.addAfter("late", seconds(2));
  queue_.addAfter("soon", seconds(1));
  queue_.addAfter("now", seconds(0));
  EXPECT_EQ(takeAll(), "now ");
  EXPECT_EQ(queue_.nextDue(), clock_.now() + seconds(1));
  clock_.advance(milliseconds(999));
  EXPECT_EQ(takeAll(), "");
  clock_.advance(milliseconds(1));
  EXPECT_EQ(takeAll(), "soon ");
  clock_.advance(seconds(1));
  EXPECT_EQ(takeAll(), "late ");
  EXPECT_EQ(queue_.nextDue(), std::nullopt);
}

TEST_F(WorkQueueTest, OfSeveralDelaysTheEarliestCounts) {
  queue_.addAfter("a", seconds(10));
  queue_.addAfter("a", seconds(3));
  queue_.addAfter("a", seconds(20));
  EXPECT_EQ(queue_.nextDue(), clock_.now() + seconds(3));
  clock_.advance(seconds(3));
  EXPECT_EQ(takeAll(), "a ");
  clock_.advance(seconds(60));
  EXPECT_EQ(takeAll(), "");
}

TEST_F(WorkQueueTest, DelayThatEndsDuringWorkComesAfterIt) {
  queue_.add("a");
  ASSERT_EQ(queue_.tryTake(), "a");
  queue_.addAfter("a", seconds(1));
  clock_.advance(seconds(1));
  EXPECT_EQ(queue_.tryTake(), std::nullopt);
  queue_.done("a");
  EXPECT_EQ(queue_.tryTake(), "a");
  queue_.done("a");
}

TEST_F(WorkQueueTest, BackOffDoublesUpToItsMaximumAndIsForgotten) {
  std::vector<double> delays;
  for (int i = 0; i < 12; ++i) {
    queue_.addRateLimited("a");
    delays.push_back(toSeconds(*queue_.nextDue() - clock_.now()));
    clock_.advance(*queue_.nextDue() - clock_.now());
    EXPECT_EQ(takeAll(), "a ");
  }
  EXPECT_DOUBLE_EQ(delays[0], 0.05);
  EXPECT_DOUBLE_EQ(delays[1], 0.1);
  EXPECT_DOUBLE_EQ(delays[4], 0.8);
  EXPECT_DOUBLE_EQ(delays[10], 30);
  EXPECT_DOUBLE_EQ(delays[11], 30);
  EXPECT_EQ(queue_.retries(), 12u);
  queue_.forget("a");
  queue_.addRateLimited("a");
  EXPECT_EQ(queue_.nextDue(), clock_.now() + milliseconds(50));
}

TEST_F(WorkQueueTest, BackOffOfManyFailuresDoesNotOverflow) {
  for (int i = 0; i < 200; ++i) {
    queue_.addRateLimited("a");
    clock_.advance(seconds(30));
    EXPECT_EQ(takeAll(), "a ");
  }
  queue_.addRateLimited("a");
  EXPECT_EQ(queue_.nextDue(), clock_.now() + seconds(30));
}

TEST_F(WorkQueueTest, NothingAfterShutDown) {
  queue_.add("a");
  queue_.shutDown();
  queue_.add("b");
  EXPECT_EQ(queue_.tryTake(), std::nullopt);
  EXPECT_EQ(queue_.take(), std::nullopt);
}

TEST(WorkQueueThreads, EachKeyIsWorkedOnByOneAtATimeAndNoAddIsLost) {
  WorkQueue queue(systemClock(), {milliseconds(1), milliseconds(5)});
  constexpr int kKeys = 5;
  std::atomic<int> inside[kKeys] = {};
  std::atomic<int> version[kKeys] = {}, worked[kKeys] = {};
  std::atomic<bool> overlap = false;
  std::vector<std::thread> workers;
  for (int w = 0; w < 3; ++w) {
    workers.emplace_back([&] {
      while (const auto key = queue.take()) {
        const int k = (*key)[0] - '0';
        if (++inside[k] != 1) overlap = true;
        worked[k] = version[k].load();
        --inside[k];
        queue.done(*key);
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    const int k = i % kKeys;
    ++version[k];
    const std::string key(1, static_cast<char>('0' + k));
    if (i % 3 == 0) {
      queue.addAfter(key, std::chrono::microseconds(i % 500));
    } else {
      queue.add(key);
    }
  }
  // Every version is worked on in the end; bounded against a hang only.
  const auto done = [&] {
    for (int k = 0; k < kKeys; ++k) {
      if (worked[k] != version[k]) return false;
    }
    return true;
  };
  const TimePoint end = systemClock().now() + seconds(20);
  while (!done() && systemClock().now() < end) std::this_thread::yield();
  queue.shutDown();
  for (std::thread& worker : workers) worker.join();
  EXPECT_TRUE(done());
  EXPECT_FALSE(overlap);
}

}  // namespace
}  // namespace trainyard::control
