#include "agent/traffic/wire_meter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

TEST(ConnectionTotals, ConnectionsAreAddedUp) {
  ConnectionTotals totals;
  totals.onList({{1, 100, 10}, {2, 200, 20}});
  EXPECT_EQ(totals.total().received, 300u);
  EXPECT_EQ(totals.total().transmitted, 30u);
  totals.onList({{1, 150, 10}, {2, 200, 25}});
  EXPECT_EQ(totals.total().received, 350u);
  EXPECT_EQ(totals.total().transmitted, 35u);
}

TEST(ConnectionTotals, TheLastWordOfAConnectionCountsOnce) {
  ConnectionTotals totals;
  totals.onList({{1, 100, 10}});
  totals.onList({});  // gone, its end not told yet
  EXPECT_EQ(totals.total().received, 100u);
  totals.onEnded({{1, 180, 18}, {7, 5, 6}});  // 7 came and went between two lists
  EXPECT_EQ(totals.total().received, 185u);
  EXPECT_EQ(totals.total().transmitted, 24u);
  EXPECT_EQ(totals.size(), 0u);
  totals.onList({});
  EXPECT_EQ(totals.total().received, 185u);
}

TEST(ConnectionTotals, AConnectionWhoseEndWasNotToldIsNotKeptForEver) {
  ConnectionTotals totals;
  totals.onList({{1, 100, 10}});
  for (int i = 0; i < 1000; ++i) totals.onList({});
  EXPECT_EQ(totals.size(), 0u);
  EXPECT_EQ(totals.total().received, 100u);
  EXPECT_EQ(totals.total().transmitted, 10u);
}

// A server and a client of it on the loopback, each byte of which is known.
class LoopbackTest : public testing::Test {
 protected:
  void SetUp() override {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(listener_.get(), asAddress(address), sizeof address), 0);
    ASSERT_EQ(::listen(listener_.get(), 4), 0);
    socklen_t length = sizeof address;
    ASSERT_EQ(::getsockname(listener_.get(), asAddress(address), &length), 0);
    port_ = ntohs(address.sin_port);
    address_ = address;
  }
  void connect() {
    client_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(client_.get(), asAddress(address_), sizeof address_), 0);
    server_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(server_.valid());
  }
  static sockaddr* asAddress(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }
  // From one end to the other, to the last byte.
  static void transfer(const UniqueFd& from, const UniqueFd& to, std::size_t bytes) {
    const std::string data(1000, 'x');
    std::string received(data.size(), ' ');
    for (std::size_t done = 0; done < bytes; done += data.size()) {
      ASSERT_EQ(::send(from.get(), data.data(), data.size(), 0), static_cast<ssize_t>(data.size()));
      ASSERT_EQ(::recv(to.get(), received.data(), received.size(), MSG_WAITALL),
                static_cast<ssize_t>(data.size()));
    }
  }
  // TCP counts its opening and closing marks as a byte each.
  static bool counts(WireMeter& meter, std::uint64_t received, std::uint64_t transmitted) {
    return eventually(
        [&] {
          const auto bytes = meter.read();
          return bytes && bytes->received >= received && bytes->received <= received + 4 &&
                 bytes->transmitted >= transmitted && bytes->transmitted <= transmitted + 4;
        },
        std::chrono::seconds(20));
  }

  UniqueFd listener_, client_, server_;
  sockaddr_in address_ = {};
  int port_ = 0;
};

TEST_F(LoopbackTest, TheKernelCountsEachByteOfThePort) {
  if (const auto diag = TcpDiag::open(); !diag.ok()) GTEST_SKIP() << diag.status();
  WireMeter meter(port_);
  EXPECT_TRUE(counts(meter, 0, 0)) << "a listening socket carries nothing";
  connect();
  transfer(client_, server_, 300'000);
  transfer(server_, client_, 20'000);
  EXPECT_TRUE(counts(meter, 300'000, 20'000));
  WireMeter other(port_ == 1 ? 2 : 1);
  EXPECT_TRUE(counts(other, 0, 0));
}

TEST_F(LoopbackTest, ConnectionsThatCameAndWentUnseenCount) {
  if (const auto diag = TcpDiag::open(); !diag.ok()) GTEST_SKIP() << diag.status();
  WireMeter meter(port_);
  for (int i = 0; i < 3; ++i) {
    connect();
    transfer(client_, server_, 50'000);
    transfer(server_, client_, 10'000);
    client_.reset();
    server_.reset();
  }
  EXPECT_TRUE(eventually(
      [&] {
        const auto bytes = meter.read();
        return bytes->received >= 150'000 && bytes->transmitted >= 30'000;
      },
      std::chrono::seconds(20)));
  const auto bytes = meter.read();
  EXPECT_LE(bytes->received, 150'000u + 12);
  EXPECT_LE(bytes->transmitted, 30'000u + 12);
}

}  // namespace
}  // namespace trainyard::agent
