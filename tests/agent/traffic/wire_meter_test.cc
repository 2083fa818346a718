#include "agent/traffic/wire_meter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/process/child_process.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

TEST(ConnectionTotals, ConnectionsAreAddedUp) {
  ConnectionTotals totals;
  totals.onList({{1, {100, 10}}, {2, {200, 20}}});
  EXPECT_EQ(totals.total().total.received, 300u);
  EXPECT_EQ(totals.total().total.transmitted, 30u);
  totals.onList({{1, {150, 10}}, {2, {200, 25}}});
  EXPECT_EQ(totals.total().total.received, 350u);
  EXPECT_EQ(totals.total().total.transmitted, 35u);
}

TEST(ConnectionTotals, TheLastWordOfAConnectionCountsOnce) {
  ConnectionTotals totals;
  totals.onList({{1, {100, 10}}});
  totals.onList({});  // gone, its end not told yet
  EXPECT_EQ(totals.total().total.received, 100u);
  totals.onEnded({{1, {180, 18}}, {7, {5, 6}}});  // 7 came and went between two lists
  EXPECT_EQ(totals.total().total.received, 185u);
  EXPECT_EQ(totals.total().total.transmitted, 24u);
  EXPECT_EQ(totals.size(), 0u);
  totals.onList({});
  EXPECT_EQ(totals.total().total.received, 185u);
}

TEST(ConnectionTotals, WhatHasLeftTheListIsAwaitedUntilItsEndIsTold) {
  ConnectionTotals totals;
  totals.onList({{1, {100, 10}}, {2, {7, 7}}});
  EXPECT_FALSE(totals.awaitsEnds());
  totals.onList({{2, {7, 7}}});
  EXPECT_TRUE(totals.awaitsEnds());
  totals.onEnded({{1, {180, 18}}});
  EXPECT_FALSE(totals.awaitsEnds());
}

TEST(ConnectionTotals, AConnectionWhoseEndWasNotToldIsNotKeptForEver) {
  ConnectionTotals totals;
  totals.onList({{1, {100, 10}}});
  for (int i = 0; i < 1000; ++i) totals.onList({});
  EXPECT_EQ(totals.size(), 0u);
  EXPECT_EQ(totals.total().total.received, 100u);
  EXPECT_EQ(totals.total().total.transmitted, 10u);
}

TEST(ConnectionTotals, BytesStayWithTheFirstKnownPeer) {
  ConnectionTotals totals;
  totals.onList({{1, {100, 10}, "worker-0"}, {2, {7, 7}, "worker-1"}});
  totals.onList({{1, {150, 10}, "other"}, {2, {8, 8}, "worker-1"}});
  totals.onEnded({{1, {160, 10}, ""}, {3, {1, 1}, "other"}});
  const WireReading reading = totals.total();
  EXPECT_EQ(reading.peers.at("worker-0").received, 160u);
  EXPECT_EQ(reading.peers.at("worker-1").received, 8u);
  EXPECT_EQ(reading.peers.at("other").received, 1u);
  EXPECT_EQ(reading.total.received, 169u);
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
          return bytes && bytes->total.received >= received &&
                 bytes->total.received <= received + 4 && bytes->total.transmitted >= transmitted &&
                 bytes->total.transmitted <= transmitted + 4;
        },
        std::chrono::seconds(20));
  }

  // At once, which is faster than the kernel tells of them.
  static void endOthers(int count) {
    std::vector<UniqueFd> others;
    for (int i = 0; i < count; ++i) {
      others.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_TRUE(others.back().valid());
    }
  }
  // Waits until the kernel has told everybody of what has ended.
  static bool allTold() {
    auto observer = TcpDiag::open();
    const TimePoint deadline = systemClock().now() + std::chrono::seconds(20);
    if (observer.ok()) observer->waitForEndsOfBefore(deadline);
    return observer.ok() && systemClock().now() < deadline;
  }

  // Two tasks at the loopback address: ps-0, which takes connections, and worker-0.
  std::shared_ptr<v1::Membership> membership() const {
    auto made = std::make_shared<v1::Membership>();
    for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER}) {
      v1::MemberTask* task = made->add_tasks();
      task->mutable_id()->set_role(role);
      task->set_ip("127.0.0.1");
      task->set_port(role == v1::ROLE_PS ? static_cast<std::uint32_t>(port_) : 1);
    }
    return made;
  }
  WireScope scope(v1::Role role) const {
    TaskIdentity self{.job = {.name = "demo", .ns = "", .uid = "u"}, .id = {}, .created = 1};
    self.id.set_role(role);
    return {self, [made = membership()] { return made; }};
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
        return bytes->total.received >= 150'000 && bytes->total.transmitted >= 30'000;
      },
      std::chrono::seconds(20)));
  const auto bytes = meter.read();
  EXPECT_LE(bytes->total.received, 150'000u + 12);
  EXPECT_LE(bytes->total.transmitted, 30'000u + 12);
}

// While a test has one of these nothing else runs on its processor, kernel threads included, unless
// the test waits.
class NobodyBeside {
 public:
  NobodyBeside() {
    CPU_ZERO(&before_);
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(::sched_getcpu(), &here);
    const sched_param first{.sched_priority = 1};
    granted_ = ::sched_setaffinity(0, sizeof here, &here) == 0 &&
               ::sched_setscheduler(0, SCHED_FIFO, &first) == 0;
  }
  ~NobodyBeside() {
    const sched_param usual{};
    ::sched_setscheduler(0, SCHED_OTHER, &usual);
    ::sched_setaffinity(0, sizeof before_, &before_);
  }
  NobodyBeside(const NobodyBeside&) = delete;
  NobodyBeside& operator=(const NobodyBeside&) = delete;
  bool granted() const { return granted_; }

 private:
  cpu_set_t before_;
  bool granted_ = false;
};

// A kernel thread tells of ends, a moment after them: a program's last report must not be made
// before.
TEST_F(LoopbackTest, ASettledMeterHasTheLastBytesOfWhatJustEnded) {
  if (const auto diag = TcpDiag::open(); !diag.ok()) GTEST_SKIP() << diag.status();
  for (const bool listed : {true, false}) {
    WireMeter meter(port_);
    connect();
    if (listed) {
      ASSERT_TRUE(meter.read());
    }
    transfer(client_, server_, 50'000);
    const NobodyBeside alone;
    if (!alone.granted()) GTEST_SKIP() << "no right to keep kernel threads waiting";
    client_.reset();
    server_.reset();
    meter.settle(systemClock().now() + std::chrono::seconds(20));
    EXPECT_GE(meter.read()->total.received, 50'000u) << listed;
  }
}

// The kernel tells of all that ends in the network namespace, of others' connections too.
TEST_F(LoopbackTest, ManyEndsOfOthersBetweenTwoReadsLoseNothing) {
  if (const auto diag = TcpDiag::open(); !diag.ok()) GTEST_SKIP() << diag.status();
  if (::geteuid() != 0) GTEST_SKIP() << "only root may have room for so many ends";
  WireMeter meter(port_);
  connect();
  transfer(client_, server_, 50'000);
  endOthers(2000);
  client_.reset();
  server_.reset();
  ASSERT_TRUE(allTold());
  EXPECT_GE(meter.read()->total.received, 50'000u);
}

// What was lost will not be told however long one waits.
TEST_F(LoopbackTest, NobodyWaitsForWhatWasLost) {
  auto narrow = TcpDiag::open(/*told_bytes=*/1);
  if (!narrow.ok()) GTEST_SKIP() << narrow.status();
  WireMeter meter(port_, std::nullopt, std::move(narrow));
  connect();
  transfer(client_, server_, 1000);
  ASSERT_TRUE(meter.read());
  endOthers(200);
  client_.reset();
  server_.reset();
  ASSERT_TRUE(allTold());
  const TimePoint deadline = systemClock().now() + std::chrono::seconds(60);
  meter.settle(deadline);
  EXPECT_LT(systemClock().now(), deadline);
}

TEST_F(LoopbackTest, OfTasksAtOneAddressTheHolderOfASocketTellsWhoIsWho) {
  if (const auto diag = TcpDiag::open(); !diag.ok()) GTEST_SKIP() << diag.status();
  // A child with that environment holds the client's end.
  connect();
  SpawnOptions options;
  options.argv = {"/bin/sleep", "600"};
  options.env = {"TRAINYARD_JOB=demo", "TRAINYARD_ROLE=worker", "TRAINYARD_INDEX=0"};
  options.keep_fds = {client_.get()};
  options.die_with_spawning_thread = true;
  StatusOr<ChildProcess> holder = ChildProcess::spawn(options);
  ASSERT_TRUE(holder.ok()) << holder.status();
  // Before it runs its program, it has this process's environment.
  const std::string environment = fmt::format("/proc/{}/environ", holder->pid());
  ASSERT_TRUE(eventually(
      [&] {
        return readFile(environment, 1 << 20).value_or("").find("TRAINYARD_INDEX=0") !=
               std::string::npos;
      },
      std::chrono::seconds(20)));
  transfer(client_, server_, 60'000);
  transfer(server_, client_, 5'000);
  WireMeter ps(port_, scope(v1::ROLE_PS));
  WireMeter worker(1, scope(v1::ROLE_WORKER));
  const auto reads = [](WireMeter& meter, const char* peer, std::uint64_t received) {
    return eventually(
        [&] {
          const auto reading = meter.read();
          const auto found = reading->peers.find(peer);
          return found != reading->peers.end() && found->second.received >= received &&
                 found->second.received <= received + 4 &&
                 reading->total.received == found->second.received;
        },
        std::chrono::seconds(20));
  };
  EXPECT_TRUE(reads(ps, "worker-0", 60'000));
  EXPECT_TRUE(reads(worker, "ps-0", 5'000));
}

}  // namespace
}  // namespace trainyard::agent
