// What the kernel has measured of real connections.
#include "runtime/lanes/pace.h"

#include <sys/socket.h>

#include <array>

#include "gtest/gtest.h"
#include "tests/base/process/recording_relay.h"

namespace trainyard::runtime::lanes {
namespace {

TEST(Pace, IsKnownOnceSomethingWasAcknowledged) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), at, size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), at, &size), 0);
  const UniqueFd caller = connectTo(ntohs(address.sin_port));
  const UniqueFd called(::accept(listener.get(), nullptr, nullptr));
  std::array<char, 4096> bytes{};
  std::optional<Pace> pace;
  for (int i = 0; i < 10000 && !pace; ++i) {
    sendAll(caller.get(), {bytes.data(), bytes.size()});
    ASSERT_EQ(::recv(called.get(), bytes.data(), bytes.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
    pace = paceOf(caller.get());
  }
  ASSERT_TRUE(pace.has_value());
  EXPECT_GT(pace->bytes_per_second, 0);
  EXPECT_GT(pace->round_trip, Duration{});
  EXPECT_LT(pace->round_trip, std::chrono::seconds(60)) << "microseconds";
}

TEST(Pace, OfSomethingElseIsNothing) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd one(pair[0]);
  const UniqueFd other(pair[1]);
  EXPECT_FALSE(paceOf(one.get()).has_value());
  EXPECT_FALSE(paceOf(-1).has_value());
}

}  // namespace
}  // namespace trainyard::runtime::lanes
