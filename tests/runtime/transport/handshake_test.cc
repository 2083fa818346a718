// Who is taken for whom before data: versions, proofs, and those who have neither.
#include "runtime/transport/handshake.h"

#include <sys/socket.h>

#include <future>

#include "base/process/poll.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/transport/tcp_mesh.h"

namespace trainyard::runtime::transport {
namespace {

using ::testing::HasSubstr;

constexpr Duration kMeshLimit = std::chrono::seconds(60);
constexpr std::size_t kHelloBytes = 40;

Self rank(int rank, std::uint16_t version = kProtocolVersion) {
  return {rank, 2, 5, "the job's token", version};
}

struct Ends {
  StatusOr<SenderHandshake::Answer> sender;
  Status receiver;
};

// What both make of each other, until one of them has had enough.
Ends meet(const Self& sender, const Self& receiver) {
  SenderHandshake from(sender, receiver.rank);
  ReceiverHandshake to(receiver);
  Ends ends{SenderHandshake::Answer::kPending, absl::OkStatus()};
  while (ends.sender.ok() && *ends.sender == SenderHandshake::Answer::kPending) {
    if (ends.receiver.ok()) {
      ends.receiver = to.take(std::exchange(from.outgoing(), {})).status();
    }
    const std::string reply = std::exchange(to.outgoing(), {});
    if (reply.empty()) break;
    ends.sender = from.take(reply);
  }
  return ends;
}

TEST(HandshakeTest, RanksOfOneJobAndVersionTakeEachOther) {
  const Ends ends = meet(rank(0), rank(1));
  ASSERT_TRUE(ends.sender.ok()) << ends.sender.status();
  EXPECT_EQ(*ends.sender, SenderHandshake::Answer::kTaken);
  EXPECT_TRUE(ends.receiver.ok());
}

// What the sender hears of is final; the receiver cannot know who that was.
TEST(HandshakeTest, ARankOfOurJobWithAnotherVersionIsKnownAsOne) {
  const Ends ends = meet(rank(0), rank(1, 3));
  EXPECT_EQ(ends.sender.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ends.sender.status().message()),
              HasSubstr("speaks protocol version 3; this is 2"));
  EXPECT_EQ(ends.receiver.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(ends.receiver.message()),
              HasSubstr("speaks protocol version 2; this is 3"));
}

TEST(HandshakeTest, AStrangerWithAnotherVersionIsAStranger) {
  Self stranger = rank(1, 3);
  stranger.token = "another token";
  const Ends ends = meet(rank(0), stranger);
  EXPECT_EQ(ends.sender.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(ends.sender.status().message()),
              HasSubstr("version 3; this is 2, and does not prove that it knows the job's token"));
}

// A stranger between two ranks tells each that the other speaks its own version.
TEST(HandshakeTest, VersionsThatAreChangedOnBothWaysAreFoundOut) {
  constexpr std::size_t kVersionAt = 6;
  SenderHandshake from(rank(0, 2), 1);
  ReceiverHandshake to(rank(1, 3));
  std::string hello = std::exchange(from.outgoing(), {});
  hello[kVersionAt] = 3;
  ASSERT_TRUE(to.take(hello).ok());
  std::string challenge = std::exchange(to.outgoing(), {});
  challenge[kVersionAt] = 2;
  EXPECT_EQ(from.take(challenge).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(from.outgoing().empty()) << "nothing is proved to it";
}

// A stranger between two ranks of one version asks the one as if it had another version, and hands
// on what it got, under that version and under the right one.
TEST(HandshakeTest, AProofForAnotherVersionIsOfNoUseElsewhere) {
  const Self zero = rank(0);
  const Self one = rank(1);
  for (const char version : {'\2', '\3'}) {
    SenderHandshake from(zero, 1);
    ReceiverHandshake to(one);
    std::string hello = from.outgoing();
    hello[6] = '\3';
    EXPECT_FALSE(to.take(hello).ok());
    std::string challenge = to.outgoing();
    ASSERT_FALSE(challenge.empty());
    challenge[6] = version;
    const auto answer = from.take(challenge);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kPermissionDenied) << answer.status();
  }
}

// Rank 1 of two; the address of rank 1 is first a stranger's, who says `challenge` to whom calls.
StatusOr<TcpMesh> formPastStranger(
    const std::function<std::string(const std::string&)>& challenge) {
  std::vector<TcpListener> listeners;
  MeshOptions options;
  for (int r = 0; r < 2; ++r) {
    auto listener = TcpListener::listen("127.0.0.1", 0);
    if (!listener.ok()) return listener.status();
    options.addresses.push_back({"127.0.0.1", listener->port()});
    listeners.push_back(std::move(*listener));
  }
  options.token = "the job's token";
  options.epoch = 5;
  options.timeout = kMeshLimit;
  auto zero = std::async(std::launch::async, [&] { return connectMesh(listeners[0], options); });
  const TimePoint limit = systemClock().now() + kMeshLimit;
  if (!waitReadable(listeners[1].fd(), limit)) return absl::DeadlineExceededError("no call");
  UniqueFd call(::accept4(listeners[1].fd(), nullptr, nullptr, SOCK_CLOEXEC));
  std::string hello(kHelloBytes, '\0');
  if (::recv(call.get(), hello.data(), hello.size(), MSG_WAITALL) != kHelloBytes) {
    return absl::UnavailableError("no hello");
  }
  const std::string reply = challenge(hello);
  if (::send(call.get(), reply.data(), reply.size(), MSG_NOSIGNAL) < 0) {
    return absl::UnavailableError("no reply");
  }
  call.reset();
  MeshOptions other = options;
  other.rank = 1;
  // Where rank 0 has failed, nobody comes.
  other.cancelled = [&] {
    return zero.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  const auto one = connectMesh(listeners[1], other);
  auto mesh = zero.get();
  if (mesh.ok() && !one.ok()) return one.status();
  return mesh;
}

TEST(MeshVersionTest, AStrangerWithAnotherVersionAtARanksAddressDoesNotEndTheGroup) {
  const auto mesh = formPastStranger([](const std::string&) {
    std::string challenge("TYMESH\3\0", 8);
    return challenge + std::string(64, '0');
  });
  EXPECT_TRUE(mesh.ok()) << mesh.status();
}

TEST(MeshVersionTest, ARankOfOurJobWithAnotherVersionEndsItAndIsNamed) {
  const auto mesh = formPastStranger([](const std::string& hello) {
    const Self self = rank(1, 3);
    ReceiverHandshake receiver(self);
    (void)receiver.take(hello);
    return receiver.outgoing();
  });
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kFailedPrecondition) << mesh.status();
  EXPECT_THAT(std::string(mesh.status().message()),
              HasSubstr("rank 1: speaks protocol version 3; this is 2"));
}

}  // namespace
}  // namespace trainyard::runtime::transport
