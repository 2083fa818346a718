#include "runtime/lanes/event_loop.h"

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace trainyard::runtime::lanes {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

// Whose tick wakes it long after the test has given up.
std::unique_ptr<EventLoop> sleepyLoop() {
  auto loop = EventLoop::start(std::chrono::hours(1), [] {});
  EXPECT_TRUE(loop.ok()) << loop.status();
  return *std::move(loop);
}

// Nothing but the loop itself is there to go on with it.
TEST(EventLoop, WhatItPostsToItselfIsDone) {
  const auto loop = sleepyLoop();
  std::promise<int> done;
  std::function<void(int)> next = [&](int turn) {
    if (turn == 100) return done.set_value(turn);
    loop->post([&next, turn] { next(turn + 1); });
  };
  loop->post([&] { next(0); });
  auto result = done.get_future();
  ASSERT_EQ(result.wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(result.get(), 100);
}

TEST(EventLoop, PostsKeepTheirOrderWhoeverMakesThem) {
  const auto loop = sleepyLoop();
  std::vector<int> order;
  std::promise<void> posted;
  std::promise<void> done;
  loop->post([&] {
    loop->post([&] { order.push_back(1); });
    posted.set_value();
    order.push_back(0);
  });
  posted.get_future().wait();
  loop->post([&] {
    order.push_back(2);
    done.set_value();
  });
  ASSERT_EQ(done.get_future().wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(EventLoop, StopCarriesOutWhatWasPostedBefore) {
  const auto loop = sleepyLoop();
  int done = 0;
  loop->post([&] { done = 1; });
  loop->stop();
  loop->post([&] { done = 2; });
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace trainyard::runtime::lanes
