#include "runtime/task/part_copier.h"

#include <deque>
#include <map>

#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PartCopierTest : public testing::Test {
 protected:
  Status copy(const v1::EpochInfo& epoch, const std::function<bool()>& over) {
    std::unique_lock lock(mutex_);
    ++asked_[epoch.epoch()];
    changed_.notify_all();
    if (!takes_.empty()) {
      clock_.advance(takes_.front());
      takes_.pop_front();
    }
    while (blocks_ && !over()) changed_.wait_for(lock, std::chrono::milliseconds(1));
    if (over()) return absl::CancelledError("over");
    if (failures_ == 0) return absl::OkStatus();
    --failures_;
    return absl::UnavailableError("ps-0 does not answer");
  }
  void copied(const v1::EpochInfo& epoch) {
    const std::lock_guard lock(mutex_);
    if (++copied_[epoch.epoch()] == 1) asked_first_[epoch.epoch()] = asked_[epoch.epoch()];
    changed_.notify_all();
  }
  void start(std::int64_t epoch) {
    v1::EpochInfo info;
    info.set_epoch(epoch);
    copier_.start(info);
  }
  void await(const std::map<std::int64_t, int>& counts, std::int64_t epoch, int most) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::minutes(2), [&] {
      const auto found = counts.find(epoch);
      return found != counts.end() && found->second >= most;
    }));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, int> asked_;        // by epoch
  std::map<std::int64_t, int> copied_;       // by epoch
  std::map<std::int64_t, int> asked_first_;  // by epoch: asked_ when it told of it first
  FakeClock clock_;                          // the copier's thread's
  std::deque<Duration> takes_;               // what the next ones take
  int failures_ = 0;
  bool blocks_ = false;
  PartCopier copier_{
      clock_, [this](const v1::EpochInfo& epoch, const auto& over) { return copy(epoch, over); },
      [this](const v1::EpochInfo& epoch) { copied(epoch); }};
};

TEST_F(PartCopierTest, StaysCloseBehindOnceItHasAll) {
  start(1);
  await(copied_, 1, 3);
}

// What has come while the first rows were on their way takes a while, and so on.
TEST_F(PartCopierTest, TellsOfItWhenItIsCloseBehind) {
  takes_ = {seconds(20), seconds(4), milliseconds(700), milliseconds(200)};
  start(1);
  await(copied_, 1, 1);
  EXPECT_EQ(asked_first_[1], 4);
}

TEST_F(PartCopierTest, TellsOfItWhenItComesNoCloser) {
  takes_ = {seconds(20), seconds(4), milliseconds(3500)};
  start(1);
  await(copied_, 1, 1);
  EXPECT_EQ(asked_first_[1], 3);
}

TEST_F(PartCopierTest, WhatFailsIsTriedAgain) {
  failures_ = 1;
  start(1);
  await(copied_, 1, 1);
  EXPECT_GE(asked_[1], 2);
}

TEST_F(PartCopierTest, AnotherEpochEndsWhatIsUnderWay) {
  blocks_ = true;
  start(1);
  await(asked_, 1, 1);
  start(2);
  await(asked_, 2, 1);
  copier_.stop();
  start(3);
  await(asked_, 3, 1);
  const std::lock_guard lock(mutex_);
  EXPECT_TRUE(copied_.empty());
  EXPECT_EQ(asked_[1], 1);
}

}  // namespace
}  // namespace trainyard::runtime
