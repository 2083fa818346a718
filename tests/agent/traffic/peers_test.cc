#include "agent/traffic/peers.h"

#include "gmock/gmock.h"

namespace trainyard::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

v1::TaskId taskId(v1::Role role, std::uint32_t index) {
  v1::TaskId id;
  id.set_role(role);
  id.set_index(index);
  return id;
}

void addPeer(v1::Membership& membership, v1::Role role, std::uint32_t index, const std::string& ip,
             std::uint32_t port) {
  v1::MemberTask* task = membership.add_tasks();
  *task->mutable_id() = taskId(role, index);
  task->set_ip(ip);
  task->set_port(port);
}

TcpConnection connection(const std::string& from, int from_port, const std::string& to, int to_port,
                         std::uint32_t inode = 0) {
  return {.cookie = inode,
          .local = tcpEnd(from, from_port).value(),
          .remote = tcpEnd(to, to_port).value(),
          .inode = inode};
}

std::optional<std::string> nobody(std::uint32_t) {
  return std::nullopt;
}

// Pods: every task has its address, and a network namespace with nothing but its own connections.
class Pods : public testing::Test {
 protected:
  Pods() {
    addPeer(membership_, v1::ROLE_PS, 0, "10.0.0.1", 2222);
    addPeer(membership_, v1::ROLE_WORKER, 0, "10.0.0.2", 2222);
    addPeer(membership_, v1::ROLE_WORKER, 1, "fd00::3", 2222);
  }
  std::optional<std::string> peerOf(const TcpConnection& one) const {
    return Peers(membership_, taskId(v1::ROLE_PS, 0), 2222).peerOf(one, {one}, nobody);
  }
  v1::Membership membership_;
};

TEST_F(Pods, AddressesSayWhoTookAndWhoOpenedAConnection) {
  EXPECT_THAT(peerOf(connection("10.0.0.1", 2222, "10.0.0.2", 40000)),
              Optional(std::string("worker-0")));
  EXPECT_THAT(peerOf(connection("10.0.0.1", 40001, "10.0.0.2", 2222)),
              Optional(std::string("worker-0")));
  EXPECT_THAT(peerOf(connection("::ffff:10.0.0.1", 2222, "::ffff:10.0.0.2", 40000)),
              Optional(std::string("worker-0")))
      << "a socket of IPv6 that serves IPv4";
}

TEST_F(Pods, WhoIsNoMemberIsAnOtherAtTheTasksPortAndNobodyElsewhere) {
  EXPECT_THAT(peerOf(connection("10.0.0.1", 2222, "10.9.9.9", 40000)),
              Optional(std::string("other")));
  EXPECT_EQ(peerOf(connection("10.0.0.1", 40000, "10.9.9.9", 443)), std::nullopt);
  EXPECT_EQ(peerOf(connection("10.0.0.1", 40000, "10.0.0.2", 9100)), std::nullopt)
      << "another port of a member, such as its metrics";
}

// A machine: all tasks at one address, and all see everybody's connections.
class OneMachine : public testing::Test {
 protected:
  OneMachine() {
    addPeer(membership_, v1::ROLE_PS, 0, "127.0.0.1", 1001);
    addPeer(membership_, v1::ROLE_WORKER, 0, "127.0.0.1", 2001);
    addPeer(membership_, v1::ROLE_WORKER, 1, "127.0.0.1", 2002);
  }
  static std::optional<std::string> ownerOf(std::uint32_t inode) {
    if (inode == 10) return "ps-0";
    if (inode == 20) return "worker-0";
    if (inode == 21) return "worker-1";
    return std::nullopt;
  }
  v1::Membership membership_;
  // worker-0 and worker-1 opened connections to ps-0, each of which has two ends.
  const std::vector<TcpConnection> all_ = {connection("127.0.0.1", 1001, "127.0.0.1", 50000, 11),
                                           connection("127.0.0.1", 50000, "127.0.0.1", 1001, 20),
                                           connection("127.0.0.1", 1001, "127.0.0.1", 50001, 12),
                                           connection("127.0.0.1", 50001, "127.0.0.1", 1001, 21)};
};

TEST_F(OneMachine, TheHolderOfTheOtherEndIsThePeer) {
  const Peers ps(membership_, taskId(v1::ROLE_PS, 0), 1001);
  EXPECT_THAT(ps.peerOf(all_[0], all_, ownerOf), Optional(std::string("worker-0")));
  EXPECT_THAT(ps.peerOf(all_[2], all_, ownerOf), Optional(std::string("worker-1")));
  EXPECT_EQ(ps.peerOf(all_[1], all_, ownerOf), std::nullopt) << "to itself, of another";
  EXPECT_THAT(ps.peerOf(all_[0], {all_[0]}, ownerOf), Optional(std::string("other")));
  EXPECT_THAT(ps.undecided(all_), ElementsAre(20, 21));
}

TEST_F(OneMachine, ConnectionsThatOthersOpenedAreTheirs) {
  const Peers worker(membership_, taskId(v1::ROLE_WORKER, 1), 2002);
  EXPECT_EQ(worker.peerOf(all_[1], all_, ownerOf), std::nullopt);
  EXPECT_THAT(worker.peerOf(all_[3], all_, ownerOf), Optional(std::string("ps-0")));
  EXPECT_EQ(worker.peerOf(all_[3], all_, nobody), std::nullopt);
  EXPECT_THAT(worker.undecided(all_), ElementsAre(20, 21));
  EXPECT_THAT(worker.undecided({all_[0], all_[2]}), IsEmpty());
}

TEST(TcpEnd, TakesAddressesInDigitsOnly) {
  EXPECT_EQ(tcpEnd("10.0.0.1", 80).value(), tcpEnd("::ffff:10.0.0.1", 80).value());
  EXPECT_NE(tcpEnd("10.0.0.1", 80).value(), tcpEnd("10.0.0.1", 81).value());
  EXPECT_FALSE(tcpEnd("ps-0.example", 80).ok());
  EXPECT_FALSE(tcpEnd("", 80).ok());
}

}  // namespace
}  // namespace trainyard::agent
