// Forming groups over TCP among strangers, old epochs and missing ranks; what a wait says.
#include <netinet/in.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "base/process/poll.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stream/tls_stream.h"
#include "runtime/transport/handshake.h"
#include "runtime/transport/shared_arena.h"
#include "runtime/transport/tcp_transport.h"

namespace trainyard::runtime::transport {
namespace {

using ::testing::HasSubstr;

constexpr Duration kLong = std::chrono::seconds(60);

// Against hangs.
TimePoint later() {
  return systemClock().now() + kLong;
}

std::shared_ptr<const stream::Encryption> tls(const std::string& token = "the job's token") {
  return *stream::TlsContext::make(deriveRuntimeKeys(token).control);
}

struct Listeners {
  explicit Listeners(int ranks, std::shared_ptr<const stream::Encryption> encryption = nullptr)
      : encryption(std::move(encryption)) {
    for (int r = 0; r < ranks; ++r) {
      auto listener = TcpListener::listen("127.0.0.1", 0);
      EXPECT_TRUE(listener.ok()) << listener.status();
      addresses.push_back({"127.0.0.1", listener->port()});
      all.push_back(std::move(*listener));
    }
  }
  MeshOptions options(int rank) const {
    MeshOptions options;
    options.rank = rank;
    options.addresses = addresses;
    options.token = "the job's token";
    options.encryption = encryption;
    options.epoch = 5;
    options.timeout = kLong;
    return options;
  }
  const TcpListener& at(int rank) const { return all[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<const stream::Encryption> encryption;
  std::vector<TcpListener> all;
  std::vector<TcpAddress> addresses;
};

std::future<StatusOr<TcpMesh>> connect(const TcpListener& listener, MeshOptions options) {
  return std::async(std::launch::async,
                    [&listener, options] { return connectMesh(listener, options); });
}

// A pair of ranks, each with its transport.
struct Two {
  explicit Two(const TcpOptions& options = {},
               std::shared_ptr<const stream::Encryption> encryption = nullptr)
      : listeners(2, std::move(encryption)) {
    auto other = connect(listeners.at(1), listeners.options(1));
    auto mesh = connectMesh(listeners.at(0), listeners.options(0));
    auto other_mesh = other.get();
    EXPECT_TRUE(mesh.ok() && other_mesh.ok());
    for (const auto& pair : other_mesh->pairs) {
      if (pair.out != nullptr) raw = UniqueFd(::dup(pair.out->fd()));
    }
    zero = std::make_unique<TcpTransport>(std::move(*mesh), options);
    one = std::make_unique<TcpTransport>(std::move(*other_mesh), options);
  }
  Listeners listeners;
  std::unique_ptr<TcpTransport> zero;
  std::unique_ptr<TcpTransport> one;
  UniqueFd raw;  // rank 1's data connection to rank 0
};

UniqueFd connectRaw(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// As it is, and encrypted: the proof of the token is the same within.
class Encrypted : public testing::TestWithParam<bool> {
 protected:
  const std::shared_ptr<const stream::Encryption> encryption_ = GetParam() ? tls() : nullptr;
};
std::string nameOf(const testing::TestParamInfo<bool>& info) {
  return info.param ? "Tls" : "Plain";
}
class MeshTest : public Encrypted {};
INSTANTIATE_TEST_SUITE_P(, MeshTest, testing::Bool(), nameOf);
class TcpTransports : public Encrypted {};
INSTANTIATE_TEST_SUITE_P(, TcpTransports, testing::Bool(), nameOf);

TEST_P(MeshTest, StrangersDoNotDisturb) {
  const Listeners listeners(2, encryption_);
  const UniqueFd silent = connectRaw(listeners.at(0).port());
  const UniqueFd rubbish = connectRaw(listeners.at(0).port());
  const std::string text = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
  ASSERT_GT(::send(rubbish.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  const UniqueFd half = connectRaw(listeners.at(0).port());
  ASSERT_GT(::send(half.get(), "TYMESH", 6, MSG_NOSIGNAL), 0);
  auto one = connect(listeners.at(1), listeners.options(1));
  auto zero = connectMesh(listeners.at(0), listeners.options(0));
  EXPECT_TRUE(zero.ok()) << zero.status();
  EXPECT_TRUE(one.get().ok());
  // The one that spoke rubbish was hung up on, and told nothing but, by TLS, that it is rubbish.
  constexpr std::size_t kAlert = 7;
  std::string told;
  for (char bytes[64];;) {
    ASSERT_TRUE(waitReadable(rubbish.get(), later()));
    const ssize_t n = ::recv(rubbish.get(), bytes, sizeof(bytes), 0);
    if (n <= 0) break;
    told.append(bytes, static_cast<std::size_t>(n));
  }
  EXPECT_LE(told.size(), GetParam() ? kAlert : 0);
}

// A stranger at the address of rank 1 with another token: neither side takes the other.
TEST_P(MeshTest, AnotherTokenIsNotTaken) {
  const Listeners listeners(2, encryption_);
  MeshOptions wrong = listeners.options(1);
  wrong.token = "another token";
  wrong.timeout = std::chrono::seconds(3);
  MeshOptions right = listeners.options(0);
  right.timeout = std::chrono::seconds(3);
  auto stranger = connect(listeners.at(1), wrong);
  const auto zero = connectMesh(listeners.at(0), right);
  ASSERT_FALSE(zero.ok());
  EXPECT_EQ(zero.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(zero.status().message()), HasSubstr("does not know the job's token"));
  EXPECT_EQ(blamedRank(zero.status()), 1);
  EXPECT_FALSE(stranger.get().ok());
}

// Takes one connection, proves that it has `token`, and goes.
void answerOnce(TcpListener listener, const std::string& token) {
  const Self self{1, 2, 5, token};
  ReceiverHandshake handshake(self);
  ASSERT_TRUE(waitReadable(listener.fd(), later()));
  const UniqueFd fd(::accept(listener.fd(), nullptr, nullptr));
  while (handshake.outgoing().empty()) {
    std::string bytes(handshake.needs(), '\0');
    const ssize_t got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
    ASSERT_GT(got, 0);
    bytes.resize(static_cast<std::size_t>(got));
    ASSERT_TRUE(handshake.take(bytes).ok());
  }
  const std::string& bytes = handshake.outgoing();
  EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

// What it said is told although its address is silent, or nobody's, by the time this is given up.
TEST(Mesh, APeerThatSaidWhyAndWentIsToldOfByWhatItSaid) {
  Listeners listeners(2);
  MeshOptions options = listeners.options(0);
  options.timeout = std::chrono::seconds(3);
  auto peer = std::async(std::launch::async, answerOnce, std::move(listeners.all[1]), "another");
  const auto zero = connectMesh(listeners.at(0), options);
  peer.get();
  ASSERT_FALSE(zero.ok());
  EXPECT_THAT(std::string(zero.status().message()),
              HasSubstr("does not know the job's token; then Connection refused"));
}

TEST_P(MeshTest, AStrangerWithAnotherTokenDoesNotKeepTheGroupFromForming) {
  const Listeners listeners(2, encryption_);
  Listeners elsewhere(2, encryption_);
  MeshOptions wrong = listeners.options(1);
  wrong.token = "another token";
  wrong.timeout = std::chrono::seconds(2);
  auto stranger = connect(elsewhere.at(1), wrong);
  auto one = connect(listeners.at(1), listeners.options(1));
  EXPECT_TRUE(connectMesh(listeners.at(0), listeners.options(0)).ok());
  EXPECT_TRUE(one.get().ok());
  EXPECT_FALSE(stranger.get().ok());
}

TEST_P(MeshTest, ARankThatDoesNotComeIsNamed) {
  const Listeners listeners(3, encryption_);
  MeshOptions options = listeners.options(0);
  options.timeout = std::chrono::milliseconds(500);
  MeshOptions other = listeners.options(1);
  other.timeout = options.timeout;
  auto one = connect(listeners.at(1), other);
  const auto zero = connectMesh(listeners.at(0), options);
  (void)one.get();
  ASSERT_FALSE(zero.ok());
  EXPECT_EQ(zero.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(zero.status().message()),
              HasSubstr(fmt::format("rank 2 (127.0.0.1:{}", listeners.at(2).port())));
}

TEST_P(MeshTest, ARankOfAnOlderEpochIsRefusedAndTheOthersGoOn) {
  const Listeners listeners(2, encryption_);
  MeshOptions old = listeners.options(1);
  old.epoch = 4;
  auto late = connect(listeners.at(1), old);
  auto zero = connect(listeners.at(0), listeners.options(0));
  const auto refused = late.get();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("rank 1 forms epoch 4, rank 0 epoch 5"));
  // It comes again, in the epoch of the others.
  EXPECT_TRUE(connectMesh(listeners.at(1), listeners.options(1)).ok());
  EXPECT_TRUE(zero.get().ok());
}

TEST_P(MeshTest, ARankThatCountsOtherwiseFailsOnBothSides) {
  const Listeners listeners(3, encryption_);
  MeshOptions two = listeners.options(1);
  two.addresses.pop_back();
  two.timeout = std::chrono::seconds(5);
  MeshOptions three = listeners.options(0);
  three.timeout = std::chrono::seconds(5);
  auto one = connect(listeners.at(1), two);
  const auto zero = connectMesh(listeners.at(0), three);
  const auto other = one.get();
  ASSERT_FALSE(zero.ok());
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(std::string(zero.status().message()) + std::string(other.status().message()),
              HasSubstr(" looks for rank "));
}

TEST(AddressTest, AddressesAreNumeric) {
  const Listeners listeners(2);
  MeshOptions options = listeners.options(0);
  options.addresses[1].host = "some.name";
  const auto mesh = connectMesh(listeners.at(0), options);
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(mesh.status().message()), HasSubstr("rank 1: 'some.name'"));
}

MessageId idOf(std::uint64_t number) {
  MessageId id;
  id.operation.number = number;
  return id;
}

TEST_P(TcpTransports, CarriesMessagesBothWaysAtOnce) {
  for (const bool checksum : {false, true}) {
    Two two({.checksum = checksum}, encryption_);
    std::vector<std::byte> sent(3'000'001, std::byte{7});
    std::vector<std::byte> got[2] = {std::vector<std::byte>(sent.size()),
                                     std::vector<std::byte>(sent.size())};
    const auto exchange = [&](Transport& t, int peer, std::vector<std::byte>& into) -> Status {
      const auto s = t.send(peer, idOf(1), sent);
      const auto r = t.receive(peer, idOf(1), {into.data(), into.size(), std::nullopt});
      TY_RETURN_IF_ERROR(t.waitReceived(peer, r, {later(), nullptr, 0}));
      return t.waitSent(peer, s, {later(), nullptr, 0});
    };
    auto one = std::async(std::launch::async, [&] { return exchange(*two.one, 0, got[1]); });
    EXPECT_TRUE(exchange(*two.zero, 1, got[0]).ok());
    EXPECT_TRUE(one.get().ok());
    EXPECT_EQ(got[0], sent);
    EXPECT_EQ(got[1], sent);
    EXPECT_EQ(two.zero->counters().bytes_sent, sent.size());
    EXPECT_EQ(two.zero->counters().messages_received, 1u);
  }
}

TEST_P(TcpTransports, AnotherMessageThanExpectedFailsBothSides) {
  Two two({}, encryption_);
  std::byte byte{};
  two.one->send(0, idOf(2), {});
  auto one = std::async(std::launch::async, [&] {
    const auto r = two.one->receive(0, idOf(3), {&byte, 1, std::nullopt});
    return two.one->waitReceived(0, r, {later(), nullptr, 0});
  });
  const auto r = two.zero->receive(1, idOf(1), {&byte, 1, std::nullopt});
  const Status zero = two.zero->waitReceived(1, r, {later(), nullptr, 0});
  EXPECT_EQ(zero.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(zero.message()), HasSubstr("rank 1 sent message (ring, operation 2)"));
  EXPECT_EQ(blamedRank(zero), 1);
  const Status told = one.get();
  EXPECT_EQ(told.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(blamedRank(told), 1);
  EXPECT_EQ(two.zero->check(), zero);  // for good
}

TEST(TcpTransportTest, ADamagedPayloadIsFoundByItsChecksum) {
  Two two;
  Frame frame;
  frame.epoch = 5;
  frame.id = idOf(1);
  frame.bytes = 4;
  frame.checksum = 12345;
  const FrameBytes header = encodeFrame(frame);
  ASSERT_EQ(::send(two.raw.get(), header.data(), header.size(), MSG_NOSIGNAL), 56);
  ASSERT_EQ(::send(two.raw.get(), "abcd", 4, MSG_NOSIGNAL), 4);
  std::byte into[4];
  const auto r = two.zero->receive(1, idOf(1), {into, 4, std::nullopt});
  const Status zero = two.zero->waitReceived(1, r, {later(), nullptr, 0});
  EXPECT_EQ(zero.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(zero.message()), HasSubstr("checksum"));
}

TEST(TcpTransportTest, AMessageOfAnotherEpochIsRefused) {
  Two two;
  Frame frame;
  frame.epoch = 4;
  frame.id = idOf(1);
  const FrameBytes header = encodeFrame(frame);
  ASSERT_EQ(::send(two.raw.get(), header.data(), header.size(), MSG_NOSIGNAL), 56);
  const auto r = two.zero->receive(1, idOf(1), {nullptr, 0, std::nullopt});
  const Status zero = two.zero->waitReceived(1, r, {later(), nullptr, 0});
  EXPECT_EQ(zero.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(zero.message()), HasSubstr("a message of epoch 4; this is epoch 5"));
}

TEST_P(TcpTransports, ALongWaitIsReportedThenFails) {
  std::vector<std::string> stalls;
  TcpOptions options;
  options.stall_after = std::chrono::milliseconds(100);
  options.on_stall = [&](const Stall& stall) { stalls.push_back(toString(stall)); };
  Two two(options, encryption_);
  std::byte byte{};
  const Operation operation{9, Kind::kBarrier, Algorithm::kDirect, {}, {}, {}, 0};
  const auto r = two.zero->receive(1, idOf(1), {&byte, 1, std::nullopt});
  const TimePoint deadline = systemClock().now() + std::chrono::milliseconds(600);
  const Status silent = two.zero->waitReceived(1, r, {deadline, &operation, 2});
  EXPECT_EQ(silent.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(blamedRank(silent), 1);
  EXPECT_THAT(std::string(silent.message()),
              HasSubstr("barrier (direct, operation 9), round 2: rank 1 was silent for"));
  ASSERT_FALSE(stalls.empty());
  EXPECT_THAT(stalls[0], HasSubstr("s without rank 1; not heard from: 1"));
}

TEST_P(TcpTransports, ARankThatLeavesIsNoFailureUntilItIsNeeded) {
  Two two({}, encryption_);
  two.one.reset();
  two.raw.reset();
  EXPECT_TRUE(two.zero->check().ok());
  const auto r = two.zero->receive(1, idOf(1), {nullptr, 0, std::nullopt});
  const Status lost = two.zero->waitReceived(1, r, {later(), nullptr, 0});
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("rank 1 is lost: it left the group"));
}

// Whose process ends says nothing: its connections are closed, and TLS's farewell is missing.
TEST_P(TcpTransports, AnEndWithoutAWordIsALoss) {
  Listeners listeners(2, encryption_);
  auto other = connect(listeners.at(1), listeners.options(1));
  auto mesh = connectMesh(listeners.at(0), listeners.options(0));
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  ASSERT_TRUE(other.get().ok());  // and is gone
  TcpTransport zero(std::move(*mesh), {});
  const auto r = zero.receive(1, idOf(1), {nullptr, 0, std::nullopt});
  const Status lost = zero.waitReceived(1, r, {later(), nullptr, 0});
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(blamedRank(lost), 1);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("rank 1 is lost: its process ended"));
}

// Somebody who can change what passes, but not read it.
TEST(EncryptedTransportTest, WhatWasChangedOnItsWayEndsTheGroup) {
  Two two({}, tls());
  const std::string forged = std::string("\x17\x03\x03\x00\x48", 5) + std::string(72, 'x');
  ASSERT_EQ(::send(two.raw.get(), forged.data(), forged.size(), MSG_NOSIGNAL), 77);
  const auto r = two.zero->receive(1, idOf(1), {nullptr, 0, std::nullopt});
  const Status broken = two.zero->waitReceived(1, r, {later(), nullptr, 0});
  EXPECT_EQ(broken.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(blamedRank(broken), 1);
  EXPECT_THAT(std::string(broken.message()), HasSubstr("TLS: "));
}

// Whoever has the token's proof but no certificate of it, or does not encrypt, is no rank.
TEST(EncryptedMeshTest, AStrangerWithoutACertificateIsNotTaken) {
  for (const auto& encryption : {tls("another token"), decltype(tls()){}}) {
    const Listeners listeners(2, tls());
    MeshOptions wrong = listeners.options(1);
    wrong.encryption = encryption;
    wrong.timeout = std::chrono::seconds(2);
    MeshOptions right = listeners.options(0);
    right.timeout = wrong.timeout;
    auto stranger = connect(listeners.at(1), wrong);
    const auto zero = connectMesh(listeners.at(0), right);
    EXPECT_EQ(zero.status().code(), absl::StatusCode::kDeadlineExceeded) << zero.status();
    EXPECT_EQ(blamedRank(zero.status()), 1);
    EXPECT_FALSE(stranger.get().ok());
  }
}

TEST(BlameTest, FollowsWhoWaitsForWhom) {
  EXPECT_EQ(blame(0, 1, {std::nullopt, 2, 3, std::nullopt}), 3);
  EXPECT_EQ(blame(0, 1, {std::nullopt, std::nullopt, 3, std::nullopt}), 1);
  EXPECT_EQ(blame(0, 1, {std::nullopt, 0}), 1);        // they wait for each other
  EXPECT_EQ(blame(0, 1, {std::nullopt, 2, 3, 1}), 1);  // a circle without this rank
}

TEST(FrameTest, SurvivesTheTripAndNoDamage) {
  Frame frame;
  frame.epoch = 77;
  frame.id = {{12, Kind::kAllGather, Algorithm::kDirect, ElementType::kInt64,
               ElementType::kBFloat16, ReduceOp::kMax, 1000},
              9};
  frame.bytes = 123456789;
  const FrameBytes bytes = encodeFrame(frame);
  const auto decoded = decodeFrame(bytes);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->id, frame.id);
  EXPECT_EQ(decoded->epoch, frame.epoch);
  EXPECT_EQ(decoded->bytes, frame.bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    FrameBytes damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(decodeFrame(damaged).ok()) << bit;
  }
}

// Both ranks say why, and go on without.
TEST(ArenaTest, MemoryThatCannotBeHadIsAnErrorOnAllRanks) {
  Two two;
  constexpr std::size_t kTooMuch = std::size_t{1} << 46;
  const auto create = [](Transport& t, std::size_t bytes) {
    ArenaOptions options;
    options.bytes = bytes;
    return SharedArena::create(t, options).status();
  };
  // Rank 1 could.
  auto one = std::async(std::launch::async, [&] { return create(*two.one, 1 << 20); });
  const Status zero = create(*two.zero, kTooMuch);
  for (const Status& status : {zero, one.get()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no shared memory: rank 0: "));
  }
  // Ranks of other settings.
  auto other = std::async(std::launch::async, [&] { return create(*two.one, 1 << 20); });
  EXPECT_EQ(create(*two.zero, 1 << 21).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(other.get().code(), absl::StatusCode::kUnavailable);
  // The transport is as good as before.
  auto last = std::async(std::launch::async, [&] { return create(*two.one, 1 << 20); });
  EXPECT_TRUE(create(*two.zero, 1 << 20).ok());
  EXPECT_TRUE(last.get().ok());
}

}  // namespace
}  // namespace trainyard::runtime::transport
