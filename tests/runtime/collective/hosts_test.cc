// Groups of several hosts: which ranks share memory, and what the factory makes of it.
#include "runtime/collective/hosts.h"

#include <latch>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/collective/group.h"
#include "tests/runtime/collective/ranks.h"

namespace trainyard::runtime::collective {
namespace {

using testing::runHosts;

std::vector<transport::TcpAddress> at(const std::vector<std::string>& hosts) {
  std::vector<transport::TcpAddress> addresses;
  for (std::size_t r = 0; r < hosts.size(); ++r)
    addresses.push_back({hosts[r], static_cast<std::uint16_t>(1000 + r)});
  return addresses;
}

TEST(HostsTest, RanksOfOneAddressAreOnOneHost) {
  const Hosts hosts = hostsOf(at({"b", "a", "b", "a", "b"}), 3);
  EXPECT_EQ(hosts.ranks, (std::vector<std::vector<int>>{{0, 2, 4}, {1, 3}}));
  EXPECT_EQ(hosts.host, 1);
  EXPECT_EQ(hosts.place, 1);
  EXPECT_EQ(hosts.lanes(), 2);
  EXPECT_EQ(hosts.lane(), (std::vector<int>{2, 3}));
  EXPECT_TRUE(hosts.worthwhile());
}

TEST(HostsTest, OneHostAndOneRankOnEachAreNoHierarchy) {
  EXPECT_FALSE(hostsOf(at({"a", "a", "a"}), 1).worthwhile());
  EXPECT_FALSE(hostsOf(at({"a", "b", "c"}), 1).worthwhile());
  EXPECT_TRUE(hostsOf(at({"a", "b", "b"}), 0).worthwhile());
  EXPECT_EQ(hostsOf(at({"a", "b", "b"}), 2).lanes(), 1);
}

void expectAllOk(const std::vector<Status>& results) {
  for (std::size_t r = 0; r < results.size(); ++r) {
    EXPECT_TRUE(results[r].ok()) << "rank " << r << ": " << results[r];
  }
}

GroupOptions smallArena() {
  GroupOptions options;
  options.arena.bytes = 1 << 20;
  return options;
}

// In the arena of some, all or none of the ranks: the same sum, and arrays in the arena stay there.
TEST(HostsTest, ArraysInTheArenaAreReducedWhereTheyAre) {
  constexpr std::size_t kElements = 200'003;  // three windows
  for (const int in_arena : {0, 2, 4}) {
    std::vector<std::uint64_t> rounds(4);
    expectAllOk(runHosts({0, 0, 1, 1}, smallArena(), [&](Group& group, int rank) -> Status {
      if (!group.arena) return absl::InternalError("no shared memory");
      std::vector<float> own(kElements);
      std::span<float> x(own);
      if (rank < in_arena) {
        TY_ASSIGN_OR_RETURN(const auto bytes, group.arena->allocate(kElements * sizeof(float)));
        x = {reinterpret_cast<float*>(bytes.data()), kElements};
      }
      for (int again = 0; again < 3; ++again) {
        for (std::size_t i = 0; i < kElements; ++i)
          x[i] = static_cast<float>((i + static_cast<std::size_t>(rank)) % 100);
        const std::uint64_t before = group.collective->totals().rounds;
        TY_RETURN_IF_ERROR(group.collective->allReduce(arrayOf(x), Reduction::kSum));
        rounds[static_cast<std::size_t>(rank)] = group.collective->totals().rounds - before;
        for (std::size_t i = 0; i < kElements; ++i) {
          float sum = 0;
          for (std::size_t r = 0; r < 4; ++r) sum += static_cast<float>((i + r) % 100);
          if (x[i] != sum) return absl::InternalError("sum");
        }
      }
      return absl::OkStatus();
    }));
    // Both hosts exchange the same pieces in 2 rounds each, the last one, which is tiny, in 1; with
    // fewer meetings where all of a host's arrays are in the arena.
    for (std::uint64_t r = 0; r < 4; ++r) {
      const bool in_place = in_arena == 4 || (in_arena == 2 && r < 2);
      EXPECT_EQ(rounds[r], in_place ? 2 + 5u : 1 + 3 * 2 + 5u) << r << " of " << in_arena;
    }
  }
}

// The bits of rank order cannot be had in two stages: all goes over TCP, and gives them.
TEST(HostsTest, DeterministicGoesOverTcp) {
  GroupOptions options = smallArena();
  options.collective.deterministic = true;
  const auto value = [](int rank) { return rank == 0 ? 1e8F : rank == 1 ? 1.0F : -1e8F; };
  expectAllOk(runHosts({0, 1, 0, 1}, options, [&](Group& group, int rank) -> Status {
    if (group.arena) return absl::InternalError("shared memory");
    std::vector<float> x(100, value(rank));
    TY_RETURN_IF_ERROR(group.collective->allReduce(arrayOf(x), Reduction::kSum));
    volatile float sum = value(0);
    for (int r = 1; r < 4; ++r) sum = sum + value(r);
    return x[50] == sum ? absl::OkStatus() : absl::InternalError("not in the order of ranks");
  }));
}

TEST(HostsTest, WithoutSharedMemoryAllGoOverTcp) {
  GroupOptions options = smallArena();
  options.share_memory = false;
  expectAllOk(runHosts({0, 0, 1, 1}, options, [](Group& group, int) -> Status {
    if (group.arena) return absl::InternalError("shared memory");
    return group.collective->barrier();
  }));
  options.share_memory = true;
  options.arena.bytes = std::size_t{1} << 50;  // more than there is
  expectAllOk(runHosts({0, 0, 1, 1}, options, [](Group& group, int) -> Status {
    if (group.arena) return absl::InternalError("shared memory");
    return group.collective->barrier();
  }));
}

// One rank, or a whole host, is in another operation: found out by all, long before the deadline.
TEST(HostsTest, OtherOperationsAreFoundOut) {
  using Act = std::function<Status(Collective&)>;
  std::vector<float> memory(4 * 100'000);
  const auto reduce = [&](std::int64_t n) {
    return Act([n, &memory](Collective& c) {
      return c.allReduce({reinterpret_cast<std::byte*>(memory.data() + c.rank() * 100'000), n},
                         Reduction::kSum);
    });
  };
  const Act meet = [](Collective& c) { return c.barrier(); };
  const Act spread = [&](Collective& c) {
    return c.broadcast({reinterpret_cast<std::byte*>(memory.data() + c.rank() * 100'000), 10}, 1);
  };
  struct Difference {
    std::string name;
    Act right;
    Act wrong;
    int first_wrong;  // this rank and those above
  };
  for (const Difference& d : std::vector<Difference>{{"a host's size", reduce(100), reduce(101), 2},
                                                     {"a rank's size", reduce(100), reduce(101), 3},
                                                     {"a host's kind", reduce(100), meet, 2},
                                                     {"a large array", reduce(100'000), meet, 2},
                                                     {"a rank's kind", reduce(100), meet, 3},
                                                     {"neither reduces", spread, meet, 2}}) {
    const auto results = runHosts({0, 0, 1, 1}, smallArena(), [&](Group& group, int rank) {
      Collective& c = *group.collective;
      Status status = (rank >= d.first_wrong ? d.wrong : d.right)(c);
      // One that only sends in it may be told in the next.
      for (int i = 0; i < 100 && status.ok(); ++i) status = c.barrier();
      return status;
    });
    bool seen = false;
    for (std::size_t r = 0; r < results.size(); ++r) {
      EXPECT_FALSE(results[r].ok()) << d.name << ", rank " << r;
      EXPECT_NE(results[r].code(), absl::StatusCode::kDeadlineExceeded) << d.name << results[r];
      EXPECT_TRUE(transport::blamedRank(results[r]).has_value()) << d.name << results[r];
      seen = seen || results[r].code() == absl::StatusCode::kFailedPrecondition;
    }
    EXPECT_TRUE(seen) << d.name;
  }
}

// Rank 1 does not come. Rank 0 waits for it in shared memory, rank 2 of the other host for rank 0,
// and its time is over long before that of the others: it knows for whom rank 0 waits.
TEST(HostsTest, WhoWaitsInSharedMemoryIsNotBlamed) {
  constexpr Duration kShort = std::chrono::seconds(6);
  std::vector<transport::TcpListener> listeners;
  GroupOptions options = smallArena();
  options.mesh.token = "token";
  options.tcp.stall_after = std::chrono::milliseconds(200);
  options.tcp.on_stall = [](const transport::Stall&) {};
  for (int r = 0; r < 4; ++r) {
    const std::string address = r < 2 ? "127.0.0.1" : "127.0.0.2";
    auto listener = transport::TcpListener::listen(address, 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    options.mesh.addresses.push_back({address, listener->port()});
    listeners.push_back(std::move(*listener));
  }
  std::vector<Status> results(4);
  std::latch ended(3);
  const auto be = [&](int rank) -> Status {
    GroupOptions own = options;
    own.mesh.rank = rank;
    if (rank == 2) own.collective.timeout = kShort;
    const auto group = joinGroup(listeners[static_cast<std::size_t>(rank)], own, {});
    if (rank == 1) {
      ended.wait();
      return absl::OkStatus();
    }
    std::vector<float> x(100);
    const Status status =
        group.ok() ? group->collective->allReduce(arrayOf(x), Reduction::kSum) : group.status();
    ended.count_down();
    return status;
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r)
    threads.emplace_back([&, r] { results[static_cast<std::size_t>(r)] = be(r); });
  for (std::thread& thread : threads) thread.join();
  for (const std::size_t r : {0, 2, 3})
    EXPECT_EQ(transport::blamedRank(results[r]), 1) << r << ": " << results[r];
  EXPECT_EQ(results[2].code(), absl::StatusCode::kDeadlineExceeded) << results[2];
}

}  // namespace
}  // namespace trainyard::runtime::collective
