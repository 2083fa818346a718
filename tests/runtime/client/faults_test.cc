// What the C interface says where something is wrong.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/client/client_ranks.h"

namespace trainyard::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class OverBoth : public ::testing::TestWithParam<bool> {};

TEST_P(OverBoth, SizesThatDifferAreToldOnAllRanksWithBoth) {
  runRanks({.size = 3, .share_memory = GetParam()}, [](ty_group* group, int rank) {
    std::vector<float> x(rank == 2 ? 12 : 10, 1.0f);
    const ty_array array = arrayOf(x, "fc1.weight");
    const Said wrong = said(ty_all_reduce(group, &array, 1, TY_SUM, 1, 1, nullptr));
    EXPECT_EQ(wrong.code, TY_MISMATCH) << rank << ": " << wrong.error;
    EXPECT_TRUE(contains(wrong.error, "of 10 float32")) << wrong.error;
    EXPECT_TRUE(contains(wrong.error, "of 12 float32")) << wrong.error;
    EXPECT_TRUE(contains(wrong.error, "fc1.weight")) << wrong.error;
    EXPECT_GE(wrong.rank, 0) << wrong.error;
    // The group is of no more use, and says why.
    const Said later = said(ty_barrier(group, nullptr));
    EXPECT_EQ(later.code, TY_MISMATCH);
  });
}

TEST_P(OverBoth, ARankThatSumsFindsOneThatAverages) {
  runRanks({.size = 2, .share_memory = GetParam()}, [](ty_group* group, int rank) {
    std::vector<float> x(5, 1.0f);
    const ty_array array = arrayOf(x);
    const int reduction = rank == 0 ? TY_AVERAGE : TY_SUM;
    const Said wrong = said(ty_all_reduce(group, &array, 1, reduction, 1, 1, nullptr));
    EXPECT_EQ(wrong.code, TY_MISMATCH) << rank << ": " << wrong.error;
    EXPECT_TRUE(contains(wrong.error, "average")) << wrong.error;
    EXPECT_TRUE(contains(wrong.error, "sum")) << wrong.error;
  });
}

TEST_P(OverBoth, AnotherOperationIsTold) {
  runRanks({.size = 2, .share_memory = GetParam()}, [](ty_group* group, int rank) {
    std::vector<float> x(10, 1.0f);
    const ty_array array = arrayOf(x);
    const Said wrong = said(rank == 0 ? ty_all_reduce(group, &array, 1, TY_SUM, 1, 1, nullptr)
                                      : ty_barrier(group, nullptr));
    EXPECT_EQ(wrong.code, TY_MISMATCH) << rank << ": " << wrong.error;
  });
}

TEST_P(OverBoth, ARankThatLeavesIsLost) {
  runRanks({.size = 3, .share_memory = GetParam()}, [](ty_group* group, int rank) {
    if (rank == 1) return;
    std::vector<float> x(10, 1.0f);
    const ty_array array = arrayOf(x);
    const Said lost = said(ty_all_reduce(group, &array, 1, TY_SUM, 1, 1, nullptr));
    EXPECT_EQ(lost.code, TY_RANK_LOST) << lost.error;
    EXPECT_EQ(lost.rank, 1) << lost.error;
  });
}

TEST_P(OverBoth, ARankThatGivesUpSaysWhy) {
  runRanks({.size = 2, .share_memory = GetParam()}, [](ty_group* group, int rank) {
    std::vector<float> x(10, 1.0f);
    const ty_array array = arrayOf(x);
    if (rank == 0) {
      const Said lost = said(ty_all_reduce(group, &array, 1, TY_SUM, 1, 1, nullptr));
      EXPECT_EQ(lost.code, TY_RANK_LOST) << lost.error;
      EXPECT_EQ(lost.rank, 1);
      EXPECT_TRUE(contains(lost.error, "no more data")) << lost.error;
    } else {
      ty_abort(group, "no more data");
      EXPECT_EQ(ty_barrier(group, nullptr), TY_CANCELLED);
    }
  });
}

TEST_P(OverBoth, OneThatAbortsWhatItIsInTellsTheOthers) {
  runRanks({.size = 2, .share_memory = GetParam()}, [](ty_group* group, int rank) {
    if (rank == 0) {
      // Waits for the other, which never comes; a second thread ends that.
      ty_work* work = nullptr;
      ASSERT_EQ(ty_barrier(group, &work), TY_OK);
      EXPECT_EQ(ty_wait(work, 0.05), TY_PENDING);
      ty_abort(group, "interrupted by hand");
      EXPECT_EQ(ty_wait(work, -1), TY_CANCELLED);
      ty_work_free(work);
    } else {
      std::vector<float> x(4);
      const ty_array array = arrayOf(x);
      // Whatever it does next: the receive waits until the group ends.
      const Said lost = said(ty_receive(group, &array, 0, 5, nullptr));
      EXPECT_EQ(lost.code, TY_RANK_LOST) << lost.error;
      // The other one may have come to its barrier before it gave up.
      Said barrier = said(ty_barrier(group, nullptr));
      if (barrier.code == TY_OK) barrier = said(ty_barrier(group, nullptr));
      EXPECT_EQ(barrier.code, TY_RANK_LOST) << barrier.error;
      EXPECT_TRUE(contains(barrier.error, "interrupted by hand")) << barrier.error;
    }
  });
}

TEST_P(OverBoth, ASilentRankIsNamed) {
  std::atomic<bool> over = false;
  runRanks({.size = 2, .share_memory = GetParam(), .seconds = 0.3}, [&](ty_group* group, int rank) {
    if (rank == 0) {
      const Said silent = said(ty_barrier(group, nullptr));
      EXPECT_EQ(silent.code, TY_TIMEOUT) << silent.error;
      EXPECT_EQ(silent.rank, 1);
      over = true;
    } else {
      while (!over) std::this_thread::yield();
    }
  });
}

TEST_P(OverBoth, AnInterruptedWaitEndsAndTheOthersHearOfIt) {
  static std::atomic<bool> interrupts;
  static thread_local bool is_first = false;
  interrupts = false;
  ty_set_interrupt([](void*) { return is_first && interrupts ? 1 : 0; }, nullptr);
  runRanks({.size = 2, .share_memory = GetParam()}, [](ty_group* group, int rank) {
    if (rank == 0) {
      is_first = interrupts = true;
      EXPECT_EQ(ty_barrier(group, nullptr), TY_CANCELLED);
    } else {
      std::vector<float> x(4);
      const ty_array array = arrayOf(x);
      EXPECT_EQ(ty_receive(group, &array, 0, 5, nullptr), TY_RANK_LOST) << ty_error();
    }
  });
  ty_set_interrupt(nullptr, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Groups, OverBoth, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Memory" : "Tcp"; });

TEST(Faults, ComparedPlansNameTheTensorBothRanksAndBothSizes) {
  runRanks({.size = 2}, [](ty_group* group, int rank) {
    const ty_array arrays[] = {{nullptr, 10, TY_FLOAT32, "a"},
                               {nullptr, rank == 0 ? 5 : 6, TY_FLOAT32, "b"}};
    const Said differs = said(ty_compare(group, arrays, 2));
    EXPECT_EQ(differs.code, TY_MISMATCH);
    EXPECT_TRUE(contains(differs.error,
                         "tensor 1 is b of 5 float32 on rank 0 and b of 6 float32 on rank 1"))
        << differs.error;
    EXPECT_EQ(ty_compare(group, arrays, 1), TY_OK) << ty_error();
  });
}

TEST(Faults, CountsThatDoNotFitAreToldOnAllRanksAndTheGroupLivesOn) {
  runRanks({.size = 2}, [](ty_group* group, int rank) {
    std::vector<float> out(4), in(4);
    const std::int64_t even[] = {2, 2}, odd[] = {1, 3};
    const ty_array send = arrayOf(out), receive = arrayOf(in);
    const Said wrong =
        said(ty_all_to_all(group, &send, rank == 0 ? even : odd, &receive, even, nullptr));
    EXPECT_EQ(wrong.code, TY_MISMATCH);
    EXPECT_EQ(wrong.error, "all_to_all: rank 1 sends 1 elements to rank 0, which expects 2");
    EXPECT_EQ(ty_barrier(group, nullptr), TY_OK) << ty_error();
  });
}

TEST(Faults, BadArgumentsSendNothing) {
  runRanks({.size = 2}, [](ty_group* group, int rank) {
    std::vector<float> x(10, 1.0f);
    const ty_array array = arrayOf(x, "w");
    ty_array unknown = array, negative = array, nowhere = array;
    unknown.type = 77;
    negative.elements = -1;
    nowhere.data = nullptr;
    for (const ty_array& wrong : {unknown, negative, nowhere}) {
      EXPECT_EQ(ty_all_reduce(group, &wrong, 1, TY_SUM, 1, 1, nullptr), TY_INVALID);
      EXPECT_TRUE(contains(ty_error(), "tensor 'w'")) << ty_error();
    }
    EXPECT_EQ(ty_all_reduce(group, &array, 1, 99, 1, 1, nullptr), TY_INVALID);
    EXPECT_EQ(ty_all_reduce(group, &array, 1, TY_BIT_AND, 1, 1, nullptr), TY_INVALID);
    const ty_array bytes = {x.data(), 4, TY_INT8, nullptr};
    EXPECT_EQ(ty_all_reduce(group, &bytes, 1, TY_SUM, 0.5, 1, nullptr), TY_INVALID);
    EXPECT_EQ(ty_all_reduce(group, nullptr, 1, TY_SUM, 1, 1, nullptr), TY_INVALID);
    EXPECT_EQ(ty_broadcast(group, &array, 2, nullptr), TY_INVALID);
    EXPECT_EQ(ty_all_gather(group, &array, &array, nullptr, nullptr), TY_INVALID);
    const int descending[] = {1, 0};
    ty_group* part = nullptr;
    EXPECT_EQ(ty_split(group, descending, 2, &part), TY_INVALID);
    EXPECT_EQ(ty_send(group, &array, rank, 0, nullptr), TY_INVALID);
    EXPECT_EQ(ty_barrier(group, nullptr), TY_OK) << ty_error();
    EXPECT_EQ(ty_barrier(nullptr, nullptr), TY_DEAD);
  });
}

TEST(Faults, OptionsOfAnotherVersionAndMissingOnesAreRefused) {
  ty_group_options options = {};
  ty_group* group = nullptr;
  EXPECT_EQ(ty_join(nullptr, &options, &group), TY_INVALID);
  options.bytes = sizeof(options);
  EXPECT_EQ(ty_join(nullptr, &options, &group), TY_INVALID);
  options.size = 2;
  EXPECT_EQ(ty_join(nullptr, &options, &group), TY_DEAD);
  ty_listener* listener = nullptr;
  EXPECT_EQ(ty_listen("no address", 0, &listener), TY_UNREACHABLE);
  ASSERT_EQ(ty_listen("127.0.0.1", 0, &listener), TY_OK);
  ty_listener* second = nullptr;
  EXPECT_EQ(ty_listen("127.0.0.1", ty_listener_port(listener), &second), TY_UNREACHABLE)
      << ty_error();
  EXPECT_EQ(ty_join(listener, &options, &group), TY_INVALID);
  ty_listener_free(listener);
}

Said meetAt(int port, int rank, int size, const char* secret, double seconds) {
  ty_listener* listener = nullptr;
  EXPECT_EQ(ty_listen("127.0.0.1", 0, &listener), TY_OK);
  const ty_meeting meeting = {sizeof(ty_meeting), rank, size, "127.0.0.1", port, secret, seconds};
  char** addresses = nullptr;
  const Said result = said(ty_meet(&meeting, listener, &addresses));
  if (result.code == TY_OK) ty_addresses_free(addresses, size);
  ty_listener_free(listener);
  return result;
}

TEST(Faults, TwoProcessesOfOneRankAreTold) {
  const int port = freePort();
  std::vector<Said> all(3);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] { all[i] = meetAt(port, i == 0 ? 0 : 1, 3, "secret", 20); });
  }
  for (std::thread& each : threads) each.join();
  for (const Said& each : all) {
    EXPECT_EQ(each.code, TY_REFUSED) << each.error;
    EXPECT_EQ(each.rank, 1);
    EXPECT_TRUE(contains(each.error, "two processes say that they are rank 1")) << each.error;
  }
}

TEST(Faults, WhoHasComeHearsWhoHasNot) {
  const int port = freePort();
  Said host;
  std::thread first([&] { host = meetAt(port, 0, 3, "secret", 1); });
  const Said visitor = meetAt(port, 1, 3, "secret", 20);
  first.join();
  for (const Said& each : {host, visitor}) {
    EXPECT_EQ(each.code, TY_TIMEOUT) << each.error;
    EXPECT_EQ(each.rank, 2);
    EXPECT_TRUE(contains(each.error, "without rank 2")) << each.error;
  }
}

// Its place is free again, and rank 0 does not spin meanwhile.
TEST(Faults, ARankThatGoesBeforeAllHaveComeMayComeAgain) {
  const int port = freePort();
  Said host;
  std::thread first([&] { host = meetAt(port, 0, 3, "secret", 20); });
  EXPECT_EQ(meetAt(port, 1, 3, "secret", 0.5).code, TY_TIMEOUT);
  Said again, last;
  std::thread second([&] { again = meetAt(port, 1, 3, "secret", 20); });
  std::thread third([&] { last = meetAt(port, 2, 3, "secret", 20); });
  for (std::thread* each : {&first, &second, &third}) each->join();
  for (const Said& each : {host, again, last}) EXPECT_EQ(each.code, TY_OK) << each.error;
}

TEST(Faults, AnotherSecretIsRefused) {
  const int port = freePort();
  Said host;
  std::thread first([&] { host = meetAt(port, 0, 2, "one", 1); });
  const Said visitor = meetAt(port, 1, 2, "another", 1);
  first.join();
  EXPECT_EQ(visitor.code, TY_REFUSED) << visitor.error;
  EXPECT_EQ(visitor.rank, 0);
  EXPECT_TRUE(contains(visitor.error, "rank 0 at 127.0.0.1")) << visitor.error;
  EXPECT_EQ(host.code, TY_TIMEOUT) << host.error;
  EXPECT_EQ(host.rank, 1);
  EXPECT_TRUE(contains(host.error, "without rank 1; somebody came and left unproved"))
      << host.error;
}

TEST(Faults, AForkedChildHasNothingOfTheGroup) {
  runRanks({.size = 2}, [](ty_group* group, int rank) {
    if (rank == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        const bool dead = ty_barrier(group, nullptr) == TY_DEAD && ty_rank(group) == -1;
        ty_leave(group);
        ::_exit(dead ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(ty_barrier(group, nullptr), TY_OK) << ty_error();
  });
}

}  // namespace
}  // namespace trainyard::testing
