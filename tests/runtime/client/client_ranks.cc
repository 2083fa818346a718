#include "tests/runtime/client/client_ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/core/clock.h"
#include "base/core/rng.h"

namespace trainyard::testing {

Said said(ty_code code) {
  if (code == TY_OK) return {};
  return {code, ty_error(), ty_error_rank()};
}

int freePort() {
  // Above those that the kernel gives to others between now and its use.
  constexpr std::uint64_t kFirst = 61'000, kCount = 4'000;
  Rng random(mixKey(static_cast<std::uint64_t>(::getpid()),
                    static_cast<std::uint64_t>(systemClock().now().time_since_epoch().count())));
  for (;;) {
    const int port = static_cast<int>(kFirst + random.below(kCount));
    ty_listener* listener = nullptr;
    if (ty_listen("127.0.0.1", port, &listener) != TY_OK) continue;
    ty_listener_free(listener);
    return port;
  }
}

ty_group* joinAt(int port, int rank, const Ranks& ranks) {
  ty_listener* listener = nullptr;
  EXPECT_EQ(ty_listen("127.0.0.1", 0, &listener), TY_OK) << ty_error();
  const ty_meeting meeting = {sizeof(ty_meeting), rank, ranks.size, "127.0.0.1", port,
                              "secret",           20};
  char** addresses = nullptr;
  EXPECT_EQ(ty_meet(&meeting, listener, &addresses), TY_OK) << ty_error();
  const ty_group_options options = {sizeof(ty_group_options),
                                    rank,
                                    ranks.size,
                                    addresses,
                                    "secret",
                                    /*epoch=*/1,
                                    /*join_seconds=*/20,
                                    ranks.seconds,
                                    ranks.share_memory,
                                    /*deterministic=*/0,
                                    ranks.wire,
                                    /*arena_bytes=*/size_t{1} << 20};
  ty_group* group = nullptr;
  EXPECT_EQ(ty_join(listener, &options, &group), TY_OK) << ty_error();
  ty_addresses_free(addresses, ranks.size);
  ty_listener_free(listener);
  return group;
}

void runRanks(const Ranks& ranks, const std::function<void(ty_group* group, int rank)>& act) {
  const int port = freePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.size; ++rank) {
    threads.emplace_back([&, rank] {
      ty_group* const group = joinAt(port, rank, ranks);
      if (group == nullptr) return;
      act(group, rank);
      ty_leave(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

ty_array arrayOf(std::vector<float>& x, const char* name) {
  return {x.data(), static_cast<std::int64_t>(x.size()), TY_FLOAT32, name};
}

}  // namespace trainyard::testing
