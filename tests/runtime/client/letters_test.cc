#include <gtest/gtest.h>

#include "tests/runtime/client/client_ranks.h"

namespace trainyard::testing {
namespace {

TEST(Letters, AllSendToAllAtOnceWithoutWaitingForEachOther) {
  runRanks({.size = 3}, [](ty_group* group, int rank) {
    // More than sockets hold, so that nobody could send before somebody receives.
    constexpr std::size_t kLarge = 1 << 20;
    std::vector<std::vector<float>> out, in;
    std::vector<ty_work*> works;
    for (int peer = 0; peer < 3; ++peer) {
      out.emplace_back(kLarge, static_cast<float>(10 * rank + peer));
      in.emplace_back(kLarge, -1.0f);
    }
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      const auto p = static_cast<std::size_t>(peer);
      const ty_array send = arrayOf(out[p]), receive = arrayOf(in[p]);
      works.resize(works.size() + 2);
      ASSERT_EQ(ty_send(group, &send, peer, 4, &works[works.size() - 2]), TY_OK);
      ASSERT_EQ(ty_receive(group, &receive, peer, 4, &works.back()), TY_OK);
    }
    for (ty_work* work : works) {
      EXPECT_EQ(ty_wait(work, -1), TY_OK) << ty_error();
      ty_work_free(work);
    }
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(in[static_cast<std::size_t>(peer)].back(), static_cast<float>(10 * peer + rank));
    }
  });
}

TEST(Letters, TagsAndAnySource) {
  runRanks({.size = 3}, [](ty_group* group, int rank) {
    std::vector<float> x(4, static_cast<float>(rank));
    const ty_array array = arrayOf(x);
    if (rank != 0) {
      ASSERT_EQ(ty_send(group, &array, 0, 10 + static_cast<std::uint64_t>(rank), nullptr), TY_OK);
      ASSERT_EQ(ty_send(group, &array, 0, 1, nullptr), TY_OK);
      ASSERT_EQ(ty_barrier(group, nullptr), TY_OK);
      return;
    }
    // In another order than they were sent.
    for (const int peer : {2, 1}) {
      ASSERT_EQ(ty_receive(group, &array, peer, 10 + static_cast<std::uint64_t>(peer), nullptr),
                TY_OK)
          << ty_error();
      EXPECT_EQ(x[0], static_cast<float>(peer));
    }
    int sources = 0;
    for (int k = 0; k < 2; ++k) {
      ty_work* work = nullptr;
      ASSERT_EQ(ty_receive(group, &array, -1, 1, &work), TY_OK);
      ASSERT_EQ(ty_wait(work, -1), TY_OK) << ty_error();
      EXPECT_EQ(x[3], static_cast<float>(ty_receive_source(work)));
      sources += ty_receive_source(work);
      ty_work_free(work);
    }
    EXPECT_EQ(sources, 3);
    ASSERT_EQ(ty_barrier(group, nullptr), TY_OK);
  });
}

TEST(Letters, AreNotInTheOrderOfOperations) {
  runRanks({.size = 2}, [](ty_group* group, int rank) {
    std::vector<float> sum(10, 1.0f), x(10, static_cast<float>(rank));
    const ty_array operand = arrayOf(sum), array = arrayOf(x);
    ty_work* work = nullptr;
    if (rank == 0) {
      // The other one comes to the operation only after it has this letter.
      ASSERT_EQ(ty_all_reduce(group, &operand, 1, TY_SUM, 1, 1, &work), TY_OK);
      ASSERT_EQ(ty_send(group, &array, 1, 0, nullptr), TY_OK);
    } else {
      ASSERT_EQ(ty_receive(group, &array, 0, 0, nullptr), TY_OK) << ty_error();
      ASSERT_EQ(ty_all_reduce(group, &operand, 1, TY_SUM, 1, 1, &work), TY_OK);
    }
    EXPECT_EQ(ty_wait(work, -1), TY_OK) << ty_error();
    EXPECT_EQ(sum[0], 2.0f);
    ty_work_free(work);
  });
}

TEST(Letters, OfAnotherSizeAreRefusedAndTheGroupLivesOn) {
  runRanks({.size = 2}, [](ty_group* group, int rank) {
    std::vector<float> three(3), two(2);
    const ty_array sent = arrayOf(three), wanted = arrayOf(two);
    if (rank == 0) {
      ASSERT_EQ(ty_send(group, &sent, 1, 0, nullptr), TY_OK);
    } else {
      const Said refused = said(ty_receive(group, &wanted, 0, 0, nullptr));
      EXPECT_EQ(refused.code, TY_MISMATCH);
      EXPECT_EQ(refused.rank, 0);
      EXPECT_EQ(refused.error, "receive of 2 float32 from rank 0: it has sent 3 float32");
    }
    EXPECT_EQ(ty_barrier(group, nullptr), TY_OK) << ty_error();
  });
}

TEST(Letters, ThatDoNotComeFailInTimeNamingTheRank) {
  runRanks({.size = 2, .seconds = 0.3}, [](ty_group* group, int rank) {
    if (rank == 0) {
      std::vector<float> x(3);
      const ty_array array = arrayOf(x);
      const Said late = said(ty_receive(group, &array, 1, 9, nullptr));
      EXPECT_EQ(late.code, TY_TIMEOUT) << late.error;
      EXPECT_EQ(late.rank, 1);
      ASSERT_EQ(ty_send(group, &array, 1, 0, nullptr), TY_OK);
    } else {
      // It is there all the time.
      std::vector<float> x(3);
      const ty_array array = arrayOf(x);
      Said got;
      do {
        got = said(ty_receive(group, &array, 0, 0, nullptr));
      } while (got.code == TY_TIMEOUT);
      EXPECT_EQ(got.code, TY_OK) << got.error;
    }
  });
}

TEST(Letters, ToOneselfOrNobodyAreRefused) {
  runRanks({.size = 1}, [](ty_group* group, int) {
    std::vector<float> x(1);
    const ty_array array = arrayOf(x);
    EXPECT_EQ(ty_send(group, &array, 0, 0, nullptr), TY_INVALID);
    EXPECT_EQ(ty_receive(group, &array, -1, 0, nullptr), TY_INVALID);
  });
}

}  // namespace
}  // namespace trainyard::testing
