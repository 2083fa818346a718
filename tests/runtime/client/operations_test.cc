// Every operation of the C interface against what it should give.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/runtime/client/client_ranks.h"

namespace trainyard::testing {
namespace {

class EveryGroup : public ::testing::TestWithParam<Ranks> {};

std::vector<float> filled(std::size_t n, float value) {
  return std::vector<float>(n, value);
}

TEST_P(EveryGroup, AllReducesOneAndSeveral) {
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    const int size = ty_size(group);
    std::vector<float> a = filled(1000, static_cast<float>(rank + 1));
    std::vector<float> b = filled(3, static_cast<float>(rank));
    std::vector<float> c = filled(200'000, 1.0f);
    const ty_array arrays[] = {arrayOf(a, "a"), arrayOf(b, "b"), arrayOf(c, "c")};
    ASSERT_EQ(ty_all_reduce(group, arrays, 3, TY_SUM, 2.0, 0.5, nullptr), TY_OK) << ty_error();
    const auto sum = static_cast<float>(size * (size + 1) / 2);
    EXPECT_EQ(a, filled(1000, sum));
    EXPECT_EQ(b, filled(3, sum - static_cast<float>(size)));
    EXPECT_EQ(c, filled(200'000, static_cast<float>(size)));
  });
}

TEST_P(EveryGroup, AveragesIntegersTowardsZero) {
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    std::vector<std::int64_t> x = {-3, 5, rank};
    const ty_array array = {x.data(), 3, TY_INT64, nullptr};
    ASSERT_EQ(ty_all_reduce(group, &array, 1, TY_AVERAGE, 1, 1, nullptr), TY_OK) << ty_error();
    const int size = ty_size(group);
    EXPECT_EQ(x, (std::vector<std::int64_t>{-3, 5, size * (size - 1) / 2 / size}));
  });
}

TEST_P(EveryGroup, ScattersWhatItReduces) {
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    const int size = ty_size(group);
    std::vector<std::int64_t> counts;
    for (int r = 0; r < size; ++r) counts.push_back(r + 1);
    const auto total = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0));
    std::vector<float> in(total);
    std::iota(in.begin(), in.end(), 0.0f);
    const std::vector<float> before = in;
    std::vector<float> out(static_cast<std::size_t>(rank) + 1, -1.0f);
    const ty_array input = arrayOf(in), output = arrayOf(out);
    ASSERT_EQ(ty_reduce_scatter(group, &input, counts.data(), &output, TY_SUM, 1, 1, nullptr),
              TY_OK)
        << ty_error();
    const int begin = rank * (rank + 1) / 2;
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], static_cast<float>(size * (begin + static_cast<int>(i))));
    }
    EXPECT_EQ(in, before);
  });
}

TEST_P(EveryGroup, GathersEqualAndUnequalParts) {
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    const int size = ty_size(group);
    std::vector<float> own = filled(4, static_cast<float>(rank));
    std::vector<float> all(4 * static_cast<std::size_t>(size));
    const ty_array input = arrayOf(own), output = arrayOf(all);
    ASSERT_EQ(ty_all_gather(group, &input, &output, nullptr, nullptr), TY_OK) << ty_error();
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i / 4));
    // Rank r has r elements: the first has none.
    std::vector<std::int64_t> counts(static_cast<std::size_t>(size));
    std::iota(counts.begin(), counts.end(), 0);
    std::vector<float> few = filled(static_cast<std::size_t>(rank), static_cast<float>(rank));
    std::vector<float> joined(static_cast<std::size_t>(size * (size - 1) / 2));
    const ty_array part = arrayOf(few), whole = arrayOf(joined);
    ASSERT_EQ(ty_all_gather(group, &part, &whole, counts.data(), nullptr), TY_OK) << ty_error();
    std::size_t at = 0;
    for (int r = 0; r < size; ++r) {
      for (int k = 0; k < r; ++k) EXPECT_EQ(joined[at++], static_cast<float>(r));
    }
  });
}

TEST_P(EveryGroup, BroadcastsFromEveryRoot) {
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    for (int root = 0; root < ty_size(group); ++root) {
      std::vector<float> x = filled(5000, static_cast<float>(rank));
      const ty_array array = arrayOf(x);
      ASSERT_EQ(ty_broadcast(group, &array, root, nullptr), TY_OK) << ty_error();
      EXPECT_EQ(x, filled(5000, static_cast<float>(root)));
    }
  });
}

TEST_P(EveryGroup, ExchangesUnequalParts) {
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    const int size = ty_size(group);
    std::vector<std::int64_t> sends, receives;
    std::vector<float> out, expected;
    for (int r = 0; r < size; ++r) {
      sends.push_back(rank + r);
      receives.push_back(rank + r);
      out.insert(out.end(), static_cast<std::size_t>(rank + r), static_cast<float>(10 * rank + r));
      expected.insert(expected.end(), static_cast<std::size_t>(rank + r),
                      static_cast<float>(10 * r + rank));
    }
    std::vector<float> in(expected.size(), -1.0f);
    const ty_array send = arrayOf(out), receive = arrayOf(in);
    ASSERT_EQ(ty_all_to_all(group, &send, sends.data(), &receive, receives.data(), nullptr), TY_OK)
        << ty_error();
    EXPECT_EQ(in, expected);
  });
}

TEST_P(EveryGroup, SeveralInFlightAreCarriedOutInTheirOrder) {
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    constexpr int kMany = 50;
    std::vector<std::vector<float>> arrays;
    for (int i = 0; i < kMany; ++i) arrays.push_back(filled(100, static_cast<float>(rank + i)));
    std::vector<ty_work*> works;
    for (auto& each : arrays) {
      const ty_array array = arrayOf(each);
      ty_work* work = nullptr;
      ASSERT_EQ(ty_all_reduce(group, &array, 1, TY_MAX, 1, 1, &work), TY_OK);
      works.push_back(work);
    }
    // The last first: what stands before it is carried out on the way.
    ASSERT_EQ(ty_wait(works.back(), -1), TY_OK) << ty_error();
    for (int i = 0; i < kMany; ++i) {
      EXPECT_EQ(ty_done(works[static_cast<std::size_t>(i)]), 1);
      EXPECT_EQ(ty_wait(works[static_cast<std::size_t>(i)], 0), TY_OK);
      EXPECT_EQ(arrays[static_cast<std::size_t>(i)][99],
                static_cast<float>(ty_size(group) - 1 + i));
      ty_work_free(works[static_cast<std::size_t>(i)]);
    }
  });
}

TEST_P(EveryGroup, PartOfTheRanksIsAGroupOfItsOwn) {
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    const int size = ty_size(group);
    std::vector<int> odd, all;
    for (int r = 0; r < size; ++r) all.push_back(r);
    for (int r = 1; r < size; r += 2) odd.push_back(r);
    ty_group* part = nullptr;
    if (!odd.empty()) {
      ASSERT_EQ(ty_split(group, odd.data(), static_cast<int>(odd.size()), &part), TY_OK)
          << ty_error();
    }
    ASSERT_EQ(part != nullptr, rank % 2 == 1);
    if (part != nullptr) {
      EXPECT_EQ(ty_rank(part), rank / 2);
      std::vector<float> x = filled(10, 1.0f);
      const ty_array array = arrayOf(x);
      ASSERT_EQ(ty_all_reduce(part, &array, 1, TY_SUM, 1, 1, nullptr), TY_OK) << ty_error();
      EXPECT_EQ(x[0], static_cast<float>(odd.size()));
      ty_leave(part);
    }
    // The others still have theirs.
    EXPECT_EQ(ty_barrier(group, nullptr), TY_OK) << ty_error();
  });
}

TEST_P(EveryGroup, HandsOutMemoryWhereRanksShareIt) {
  const bool shares = GetParam().share_memory && GetParam().size > 1;
  runRanks(GetParam(), [&](ty_group* group, int rank) {
    void* memory = nullptr;
    const ty_code code = ty_allocate(group, 4096, &memory);
    if (!shares) {
      EXPECT_EQ(code, TY_NO_ROOM);
      return;
    }
    ASSERT_EQ(code, TY_OK) << ty_error();
    auto* numbers = static_cast<float*>(memory);
    for (int i = 0; i < 1024; ++i) numbers[i] = static_cast<float>(rank);
    const ty_array array = {memory, 1024, TY_FLOAT32, nullptr};
    ASSERT_EQ(ty_all_reduce(group, &array, 1, TY_SUM, 1, 1, nullptr), TY_OK) << ty_error();
    EXPECT_EQ(numbers[1023], static_cast<float>(ty_size(group) * (ty_size(group) - 1) / 2));
    EXPECT_EQ(ty_allocate(group, size_t{1} << 40, &memory), TY_NO_ROOM);
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, EveryGroup,
                         ::testing::Values(Ranks{.size = 1}, Ranks{.size = 2}, Ranks{.size = 3},
                                           Ranks{.size = 2, .share_memory = false},
                                           Ranks{.size = 4, .share_memory = false}),
                         [](const auto& info) {
                           return std::to_string(info.param.size) +
                                  (info.param.share_memory ? "Memory" : "Tcp");
                         });

TEST(Wire, HalvesWhatTravels) {
  runRanks({.size = 2, .wire = TY_BFLOAT16}, [](ty_group* group, int) {
    std::vector<float> x(1000, 1.0f);
    const ty_array array = arrayOf(x);
    ty_totals before = {sizeof(ty_totals), 0, 0, 0, 0}, after = before;
    ASSERT_EQ(ty_group_totals(group, &before), TY_OK);
    ASSERT_EQ(ty_all_reduce(group, &array, 1, TY_SUM, 1, 1, nullptr), TY_OK) << ty_error();
    EXPECT_EQ(x[999], 2.0f);
    ASSERT_EQ(ty_group_totals(group, &after), TY_OK);
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, 2000u);
    EXPECT_EQ(after.operations - before.operations, 1u);
  });
}

}  // namespace
}  // namespace trainyard::testing
