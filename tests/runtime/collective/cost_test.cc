// The formulas of cost.h against the counters of real operations, and against each other.
#include "runtime/collective/cost.h"

#include <mutex>
#include <numeric>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/collective/shared_collective.h"
#include "tests/runtime/collective/ranks.h"

namespace trainyard::runtime::collective {
namespace {

using testing::Over;
using testing::runRanks;
using transport::Algorithm;

// What one operation added to the counters of each rank; rounds: of the rank that had most.
struct Measured {
  std::vector<Cost> ranks;
  std::int64_t rounds = 0;
  std::int64_t sent = 0;  // bytes, by all ranks
  std::int64_t received = 0;
};

Measured measure(const testing::Group& group, const CollectiveOptions& options,
                 const std::function<Status(Collective&)>& act) {
  Measured measured;
  measured.ranks.resize(static_cast<std::size_t>(group.ranks));
  std::mutex mutex;
  const auto results = runRanks(group, options, [&](Collective& c) -> Status {
    const Totals before = c.totals();  // forming the group
    TY_RETURN_IF_ERROR(act(c));
    const Totals after = c.totals();
    const auto spent = [&](std::uint64_t Totals::*counter) {
      return static_cast<std::int64_t>(after.*counter - before.*counter);
    };
    std::lock_guard lock(mutex);
    const Cost cost{spent(&Totals::rounds), spent(&Totals::messages_sent),
                    spent(&Totals::bytes_sent)};
    measured.ranks[static_cast<std::size_t>(c.rank())] = cost;
    measured.rounds = std::max(measured.rounds, cost.rounds);
    measured.sent += cost.bytes;
    measured.received += spent(&Totals::bytes_received);
    return absl::OkStatus();
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
  return measured;
}

Measured measure(int ranks, const CollectiveOptions& options,
                 const std::function<Status(Collective&)>& act) {
  return measure({Over::kInProcess, ranks}, options, act);
}

void expectCost(const Measured& measured, const std::function<Cost(int rank)>& formula,
                const std::string& what) {
  for (int r = 0; r < static_cast<int>(measured.ranks.size()); ++r) {
    const Cost& got = measured.ranks[static_cast<std::size_t>(r)];
    const Cost expected = formula(r);
    EXPECT_EQ(got.bytes, expected.bytes) << what << ", rank " << r;
    EXPECT_EQ(got.messages, expected.messages) << what << ", rank " << r;
    EXPECT_EQ(measured.rounds, expected.rounds) << what;
  }
}

constexpr std::int64_t kSizes[] = {1, 6, 1001, 300'007};

TEST(CostTest, AllReduceSendsWhatTheFormulasSay) {
  using Formula = Cost (*)(std::int64_t, std::int64_t, int, int);
  const std::pair<Algorithm, Formula> algorithms[] = {
      {Algorithm::kRing, ringAllReduceCost},
      {Algorithm::kHalvingDoubling, halvingDoublingCost},
      {Algorithm::kDoubling, doublingCost},
      {Algorithm::kDirect, directAllReduceCost}};
  for (const auto& [algorithm, formula] : algorithms) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      for (const std::int64_t n : kSizes) {
        CollectiveOptions options;
        options.algorithm = algorithm;
        const auto measured = measure(ranks, options, [&](Collective& c) {
          std::vector<float> x(static_cast<std::size_t>(n));
          return c.allReduce(arrayOf(x), Reduction::kSum);
        });
        expectCost(
            measured, [&](int r) { return formula(n, 4, r, ranks); },
            fmt::format("{} of {} among {}", nameOf(algorithm), n, ranks));
      }
    }
  }
}

TEST(CostTest, AllReduceSendsHalfWithHalfFloatsOnTheWire) {
  CollectiveOptions options;
  options.wire = ElementType::kBFloat16;
  const auto measured = measure(3, options, [&](Collective& c) {
    std::vector<float> x(1001);
    return c.allReduce(arrayOf(x), Reduction::kSum);
  });
  expectCost(
      measured, [](int r) { return directAllReduceCost(1001, 2, r, 3); }, "wire");
}

TEST(CostTest, OtherOperationsSendWhatTheFormulasSay) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const std::int64_t n : kSizes) {
      const std::string what = fmt::format("{} among {}", n, ranks);
      const auto scattered = measure(ranks, {}, [&](Collective& c) {
        std::vector<float> x(static_cast<std::size_t>(n));
        return c.reduceScatter(arrayOf(x), Reduction::kSum);
      });
      expectCost(
          scattered, [&](int r) { return reduceScatterCost(n, 4, r, ranks); }, what);
      std::vector<std::int64_t> counts;
      for (int r = 0; r < ranks; ++r) counts.push_back(n + r);
      const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      const auto gathered = measure(ranks, {}, [&](Collective& c) {
        std::vector<float> x(static_cast<std::size_t>(total));
        return c.allGather(arrayOf(x), counts);
      });
      expectCost(
          gathered, [&](int r) { return allGatherCost(counts, 4, r); }, what);
      const int root = ranks / 2;
      const auto cast = measure(ranks, {}, [&](Collective& c) {
        std::vector<float> x(static_cast<std::size_t>(n));
        return c.broadcast(arrayOf(x), root);
      });
      expectCost(
          cast, [&](int r) { return broadcastCost(4 * n, root, r, ranks); }, what);
    }
    const auto barrier = measure(ranks, {}, [](Collective& c) { return c.barrier(); });
    expectCost(
        barrier, [&](int) { return barrierCost(ranks); }, "barrier");
  }
}

std::vector<transport::TcpAddress> addressesOf(const std::vector<int>& hosts) {
  std::vector<transport::TcpAddress> addresses;
  for (const int host : hosts) addresses.push_back({std::to_string(host), 1});
  return addresses;
}

TEST(CostTest, HostsWithSeveralRanksSendWhatTheFormulaSays) {
  // The windows of the arenas that joinGroup() makes of 1 MiB, in whole pages.
  const std::size_t arena =
      ((1 << 20) + 2 * windowBytes(1 << 20) + kTinyPlacesBytes + 4095) / 4096 * 4096;
  const auto piece = static_cast<std::int64_t>(windowBytes(arena));
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 1, 0, 1, 1}, {0, 0, 0, 1}, {0, 0, 1, 1, 2, 2}}) {
    for (const std::int64_t n : kSizes) {
      const auto measured = measure(testing::onHosts(hosts), {}, [&](Collective& c) {
        std::vector<float> x(static_cast<std::size_t>(n));
        return c.allReduce(arrayOf(x), Reduction::kSum);
      });
      std::int64_t rounds = 0;
      for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
        const Cost got = measured.ranks[static_cast<std::size_t>(r)];
        const Cost expected =
            hierarchicalAllReduceCost(n, 4, piece, false, hostsOf(addressesOf(hosts), r));
        const std::string what = fmt::format("{} among {}, rank {}", n, hosts.size(), r);
        EXPECT_EQ(got.bytes, expected.bytes) << what;
        EXPECT_EQ(got.messages, expected.messages) << what;
        rounds = std::max(rounds, expected.rounds);
      }
      EXPECT_EQ(measured.rounds, rounds) << n;
      EXPECT_EQ(measured.sent, measured.received) << n;
    }
  }
}

// Of what ranks send, with all of them on H hosts: (H - 1)/H of a rank's share of the array twice,
// where the flat ring sends nearly all of the array twice.
TEST(CostTest, ALinkCarriesAShareOfTheArray) {
  constexpr std::int64_t kElements = 1 << 20;
  const Hosts hosts = hostsOf(addressesOf({0, 0, 0, 0, 1, 1, 1, 1}), 5);
  const Cost cost = hierarchicalAllReduceCost(kElements, 4, 4 << 20, true, hosts);
  const std::int64_t share = kElements / 4 * 4;
  EXPECT_EQ(cost.bytes - 3 * share, 2 * share / 2);
  EXPECT_EQ(cost.rounds, 2 + 2);
}

// All three send the least there is where slices are even: 2 (P - 1) / P of the array a rank.
TEST(CostTest, AllReduceIsOptimalInBytes) {
  constexpr std::int64_t kElements = 1 << 20;
  for (const int ranks : {2, 4, 8, 16}) {
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t least = 2 * (ranks - 1) * (kElements / ranks) * 4;
      EXPECT_EQ(ringAllReduceCost(kElements, 4, r, ranks).bytes, least);
      EXPECT_EQ(halvingDoublingCost(kElements, 4, r, ranks).bytes, least);
      EXPECT_EQ(directAllReduceCost(kElements, 4, r, ranks).bytes, least);
    }
  }
}

}  // namespace
}  // namespace trainyard::runtime::collective
