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

QueueOptions retrying(Duration base, Duration max) {
  QueueOptions options;
  options.retry_base = base;
  options.retry_max = max;
  return options;
}

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
  WorkQueue queue_{clock_, retrying(milliseconds(50), seconds(30))};
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

TEST_F(WorkQueueTest, NamespacesTakeTurns) {
  for (int i = 0; i < 1000; ++i) queue_.add("crowd/" + std::to_string(i));
  queue_.add("quiet/a");
  queue_.add("third/x");
  queue_.add("quiet/b");
  EXPECT_EQ(queue_.waiting(), 1003u);
  std::vector<std::string> first;
  for (int i = 0; i < 7; ++i) {
    first.push_back(*queue_.tryTake());
    queue_.done(first.back());
  }
  EXPECT_THAT(first, testing::ElementsAre("crowd/0", "quiet/a", "third/x", "crowd/1", "quiet/b",
                                          "crowd/2", "crowd/3"));
  EXPECT_EQ(queue_.waiting(), 996u);
  // One that comes late waits for one look of each other namespace, not for all that are due.
  queue_.add("quiet/c");
  EXPECT_EQ(queue_.tryTake(), "crowd/4");
  EXPECT_EQ(queue_.tryTake(), "quiet/c");
}

class Recorder : public QueueObserver {
 public:
  void waits(const std::string& key) override { heard.push_back("waits " + key); }
  void taken(const std::string& key) override { heard.push_back("taken " + key); }
  void done(const std::string& key) override { heard.push_back("done " + key); }
  std::vector<std::string> heard;
};

TEST_F(WorkQueueTest, TellsTheWayOfAKey) {
  Recorder recorder;
  QueueOptions options;
  options.observer = &recorder;
  WorkQueue queue(clock_, options);
  queue.add("a/1");
  queue.add("a/1");
  ASSERT_EQ(queue.tryTake(), "a/1");
  queue.add("a/1");
  queue.done("a/1");
  ASSERT_EQ(queue.tryTake(), "a/1");
  queue.done("a/1");
  EXPECT_THAT(recorder.heard, testing::ElementsAre("waits a/1", "taken a/1", "done a/1",
                                                   "waits a/1", "taken a/1", "done a/1"));
}

// One that rests is not in line: the rest is no waiting.
TEST_F(WorkQueueTest, AKeyThatRestsDoesNotWait) {
  Recorder recorder;
  QueueOptions options;
  options.observer = &recorder;
  options.pause = milliseconds(500);
  WorkQueue queue(clock_, options);
  queue.add("a/1");
  ASSERT_EQ(queue.tryTake(), "a/1");
  queue.add("a/1");
  queue.done("a/1");
  queue.add("a/1");
  EXPECT_EQ(queue.tryTake(), std::nullopt);
  EXPECT_THAT(recorder.heard, testing::ElementsAre("waits a/1", "taken a/1", "done a/1"));
  clock_.advance(milliseconds(500));
  ASSERT_EQ(queue.tryTake(), "a/1");
  EXPECT_THAT(recorder.heard,
              testing::ElementsAre("waits a/1", "taken a/1", "done a/1", "waits a/1", "taken a/1"));
}

class WorkQueuePause : public WorkQueueTest {
 protected:
  static QueueOptions pausing() {
    QueueOptions options;
    options.pause = milliseconds(500);
    return options;
  }
  void work(const std::string& key) {
    ASSERT_EQ(paused_.tryTake(), key);
    paused_.done(key);
  }
  WorkQueue paused_{clock_, pausing()};
};

TEST_F(WorkQueuePause, AKeyRestsBetweenTwoLooks) {
  paused_.add("a");
  work("a");
  paused_.add("a");
  paused_.add("b");
  work("b");  // one that nobody has looked at comes first
  EXPECT_EQ(paused_.tryTake(), std::nullopt);
  clock_.advance(milliseconds(499));
  EXPECT_EQ(paused_.tryTake(), std::nullopt);
  clock_.advance(milliseconds(1));
  work("a");
  clock_.advance(seconds(1));
  EXPECT_EQ(paused_.tryTake(), std::nullopt) << "b was not added again";
  paused_.add("a");
  work("a");  // it has rested: at once
}

TEST_F(WorkQueuePause, WhatIsAddedDuringWorkRestsToo) {
  paused_.add("a");
  ASSERT_EQ(paused_.tryTake(), "a");
  paused_.add("a");
  paused_.done("a");
  EXPECT_EQ(paused_.tryTake(), std::nullopt);
  EXPECT_EQ(paused_.nextDue(), clock_.now() + milliseconds(500));
  clock_.advance(milliseconds(500));
  work("a");
}

TEST_F(WorkQueuePause, ADelayShorterThanTheRestWaitsForIt) {
  paused_.add("a");
  work("a");
  paused_.addAfter("a", milliseconds(100));
  clock_.advance(milliseconds(100));
  EXPECT_EQ(paused_.tryTake(), std::nullopt);
  clock_.advance(milliseconds(400));
  work("a");
}

TEST_F(WorkQueueTest, NothingAfterShutDown) {
  queue_.add("a");
  queue_.shutDown();
  queue_.add("b");
  EXPECT_EQ(queue_.tryTake(), std::nullopt);
  EXPECT_EQ(queue_.take(), std::nullopt);
}

TEST(WorkQueueThreads, EachKeyIsWorkedOnByOneAtATimeAndNoAddIsLost) {
  WorkQueue queue(systemClock(), retrying(milliseconds(1), milliseconds(5)));
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

// A thread that sleeps until a later time must not sleep through an earlier one, when the thread
// that was told of that is busy.
TEST(WorkQueueThreads, ADelayedKeyComesWhileAnotherThreadIsBusy) {
  WorkQueue queue(systemClock(), {});
  std::atomic<bool> came = false;
  std::vector<std::thread> workers;
  queue.addAfter("late", seconds(3600));
  for (int w = 0; w < 2; ++w) {
    workers.emplace_back([&] {
      while (const auto key = queue.take()) {
        const TimePoint end = systemClock().now() + seconds(20);
        while (*key == "busy" && !came && systemClock().now() < end) std::this_thread::yield();
        if (*key == "soon") came = true;
        queue.done(*key);
      }
    });
  }
  queue.addAfter("soon", milliseconds(20));
  queue.add("busy");
  const TimePoint end = systemClock().now() + seconds(20);
  while (!came && systemClock().now() < end) std::this_thread::yield();
  queue.shutDown();
  for (std::thread& worker : workers) worker.join();
  EXPECT_TRUE(came);
}

}  // namespace
}  // namespace trainyard::control
