#include "base/core/work_thread.h"

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"

namespace trainyard {
namespace {

using testing::ElementsAre;

TEST(WorkThread, FinishesAllInTheOrderInWhichItCame) {
  std::promise<void> both_added;
  std::vector<int> done;
  WorkThread thread;
  thread.add([&] {
    both_added.get_future().wait();
    done.push_back(1);
    thread.add([&] { done.push_back(3); });
  });
  thread.add([&] { done.push_back(2); });
  both_added.set_value();
  thread.finish();
  EXPECT_THAT(done, ElementsAre(1, 2, 3));
  thread.add([&] { done.push_back(4); });
  thread.stop();
  EXPECT_THAT(done, ElementsAre(1, 2, 3));
}

TEST(WorkThread, StopWaitsForThePieceUnderWayAndBeginsNoOther) {
  std::promise<void> begun;
  std::promise<void> go_on;
  std::vector<int> done;
  WorkThread thread;
  thread.add([&] {
    begun.set_value();
    go_on.get_future().wait();
    done.push_back(1);
    thread.add([&] { done.push_back(3); });
  });
  thread.add([&] { done.push_back(2); });
  begun.get_future().wait();
  const std::future<void> stopped = std::async(std::launch::async, [&] { thread.stop(); });
  const auto drops = [&] {
    const auto probe = std::make_shared<int>();
    thread.add([probe] {});
    return probe.use_count() == 1;
  };
  while (!drops()) std::this_thread::yield();  // until stop() has been called
  go_on.set_value();
  stopped.wait();
  EXPECT_THAT(done, ElementsAre(1));
}

}  // namespace
}  // namespace trainyard
