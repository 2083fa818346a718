// Several threads of one program call at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/runtime/client/client_ranks.h"

namespace trainyard::testing {
namespace {

TEST(Threads, WaitForWorksOfEachOther) {
  runRanks({.size = 2}, [](ty_group* group, int) {
    constexpr int kMany = 40;
    std::vector<std::vector<float>> arrays(kMany, std::vector<float>(50, 1.0f));
    std::vector<ty_work*> works(kMany);
    for (std::size_t i = 0; i < kMany; ++i) {
      const ty_array array = arrayOf(arrays[i]);
      ASSERT_EQ(ty_all_reduce(group, &array, 1, TY_SUM, 1, 1, &works[i]), TY_OK);
    }
    std::vector<std::thread> waiters;
    for (int t = 0; t < 3; ++t) {
      waiters.emplace_back([&, t] {
        for (std::size_t i = static_cast<std::size_t>(t); i < kMany; i += 3) {
          EXPECT_EQ(ty_wait(works[i], -1), TY_OK) << ty_error();
          EXPECT_EQ(arrays[i][49], 2.0f);
        }
      });
    }
    for (std::thread& each : waiters) each.join();
    for (ty_work* work : works) ty_work_free(work);
  });
}

TEST(Threads, AreToldOnceWhenAWorkIsDone) {
  runRanks({.size = 2}, [](ty_group* group, int) {
    constexpr int kMany = 20;
    std::atomic<int> calls = 0;
    std::vector<ty_work*> works(kMany);
    for (ty_work*& work : works) {
      ASSERT_EQ(ty_barrier(group, &work), TY_OK);
      ty_notify(
          work, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &calls);
    }
    for (ty_work* work : works) EXPECT_EQ(ty_wait(work, -1), TY_OK);
    while (calls < kMany) std::this_thread::yield();
    ty_notify(
        works[0], [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &calls);
    EXPECT_EQ(calls, kMany + 1);
    for (ty_work* work : works) ty_work_free(work);
  });
}

TEST(Threads, SendLettersBesideOperations) {
  runRanks({.size = 2}, [](ty_group* group, int rank) {
    std::thread letters([&] {
      std::vector<float> x(100, static_cast<float>(rank)), y(100);
      const ty_array out = arrayOf(x), in = arrayOf(y);
      for (int i = 0; i < 100; ++i) {
        ty_work* work = nullptr;
        ASSERT_EQ(ty_send(group, &out, 1 - rank, 2, &work), TY_OK);
        ASSERT_EQ(ty_receive(group, &in, 1 - rank, 2, nullptr), TY_OK) << ty_error();
        ASSERT_EQ(ty_wait(work, -1), TY_OK);
        ty_work_free(work);
        EXPECT_EQ(y[99], static_cast<float>(1 - rank));
      }
    });
    std::vector<float> sum(64, 1.0f);
    const ty_array array = arrayOf(sum);
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(ty_all_reduce(group, &array, 1, TY_AVERAGE, 1, 1, nullptr), TY_OK) << ty_error();
    }
    EXPECT_EQ(sum[0], 1.0f);
    letters.join();
    ASSERT_EQ(ty_barrier(group, nullptr), TY_OK);
  });
}

TEST(Threads, WaitWhileTheGroupIsLeft) {
  runRanks({.size = 2}, [](ty_group* group, int rank) {
    if (rank == 1) return;
    ty_group* const left = group;
    ty_work* work = nullptr;
    std::vector<float> x(4);
    const ty_array array = arrayOf(x);
    // The other rank leaves at once: whatever comes first, the wait ends.
    ASSERT_EQ(ty_receive(left, &array, 1, 0, &work), TY_OK);
    std::thread waiter([&] { EXPECT_NE(ty_wait(work, -1), TY_OK); });
    waiter.join();
    ty_work_free(work);
  });
}

}  // namespace
}  // namespace trainyard::testing
