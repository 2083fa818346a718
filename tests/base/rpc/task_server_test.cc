#include "base/rpc/task_server.h"

#include <mutex>

#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "gmock/gmock.h"
#include "tests/base/process/recording_relay.h"
#include "tests/base/process/temp_dir.h"
#include "trainyard/v1/coordinator.grpc.pb.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

constexpr Duration kLimit = std::chrono::seconds(60);

class Control final : public v1::Coordinator::CallbackService {
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context, const v1::MemberReport*,
                                 v1::View*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(checkPeer(*context));
    return reactor;
  }
};
// Who takes the connections that are not gRPC's.
class Guests {
 public:
  TaskServer::Take taker() {
    return [this](UniqueFd socket) {
      std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(socket));
    };
  }
  // The one that has come next.
  UniqueFd next() {
    EXPECT_TRUE(eventually([&] { return waiting() > 0; }, kLimit));
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) return {};
    UniqueFd first = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    return first;
  }
  std::size_t waiting() const {
    std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<UniqueFd> waiting_;
};

UniqueFd connectTo6(int port) {
  UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  EXPECT_EQ(::connect(fd.get(), to, sizeof address), 0) << "port " << port;
  return fd;
}

class TaskServerTest : public testing::Test {
 protected:
  void start(TaskServer::Take take, const std::string& bind = "127.0.0.1") {
    auto started =
        TaskServer::start({.what = "ps-0", .bind = bind, .port = 0, .identity = keys_.control},
                          {&control_}, std::move(take));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    address_ = "127.0.0.1:" + std::to_string(server_->port());
  }
  static grpc::Status sync(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    setDeadline(context, kLimit);
    v1::View view;
    return v1::Coordinator::NewStub(channel)->Sync(&context, {}, &view);
  }
  // Of a service that nobody has registered.
  static grpc::Status table(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    setDeadline(context, kLimit);
    v1::ShardTable table;
    return v1::ShardTables::NewStub(channel)->GetShard(&context, {}, &table);
  }
  // Whether who comes by `client` is handed over with all that it says, and hears what it is told.
  bool isTaken(const UniqueFd& client) {
    sendAll(client.get(), "TYLANE");
    const UniqueFd server = guests_.next();
    return server.valid() && receive(server.get(), 6) == "TYLANE" &&
           talks(server.get(), client.get(), "welcome");
  }
  static bool talks(int from, int to, const std::string& what) {
    sendAll(from, what);
    return receive(to, what.size()) == what;
  }
  static std::string receive(int fd, std::size_t bytes) {
    std::string all;
    char buffer[64];
    while (all.size() < bytes && waitReadable(fd, systemClock().now() + kLimit)) {
      const ssize_t got = ::recv(fd, buffer, std::min(sizeof buffer, bytes - all.size()), 0);
      if (got <= 0) break;
      all.append(buffer, static_cast<std::size_t>(got));
    }
    return all;
  }
  std::shared_ptr<grpc::Channel> secure(const TlsIdentity& self) const {
    return openSecureChannel(address_, self, kRuntimeServerName);
  }

  const RuntimeKeys keys_ = deriveRuntimeKeys("the-token");
  Control control_;
  Guests guests_;
  std::unique_ptr<TaskServer> server_;
  std::string address_;
};

TEST_F(TaskServerTest, EachKindOfConnectionGoesToItsOwn) {
  start(guests_.taker());
  EXPECT_TRUE(sync(secure(keys_.control)).ok());
  EXPECT_TRUE(isTaken(connectTo(server_->port())));
  EXPECT_EQ(table(secure(keys_.control)).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(sync(openChannel(address_)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(guests_.waiting(), 0u) << "what is closed is handed to nobody";
}

TEST_F(TaskServerTest, ControlKnowsItsClientsAndTheyKnowIt) {
  start(guests_.taker());
  const RuntimeKeys others = deriveRuntimeKeys("another token");
  const grpc::Status stranger = sync(secure(others.control));
  EXPECT_TRUE(isStranger(stranger)) << stranger.error_message();
  TlsIdentity nameless = keys_.control;  // knows whom to look for, but has no certificate
  nameless.cert.clear();
  nameless.key.clear();
  EXPECT_EQ(sync(secure(nameless)).error_code(), grpc::StatusCode::UNAVAILABLE);
  TlsIdentity forged = others.control;
  forged.ca = keys_.control.ca;
  EXPECT_EQ(sync(secure(forged)).error_code(), grpc::StatusCode::UNAVAILABLE);
  server_.reset();
  const grpc::Status gone = sync(secure(keys_.control));
  EXPECT_EQ(gone.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(isStranger(gone)) << gone.error_message();
}

TEST_F(TaskServerTest, WhoHasBeenHandedOverStaysWhenTheServerEnds) {
  start(guests_.taker());
  const UniqueFd client = connectTo(server_->port());
  sendAll(client.get(), "T");
  const UniqueFd server = guests_.next();
  EXPECT_EQ(receive(server.get(), 1), "T");
  server_.reset();
  EXPECT_TRUE(talks(server.get(), client.get(), "still here"));
  EXPECT_TRUE(talks(client.get(), server.get(), "so am I"));
}

TEST_F(TaskServerTest, WhoSaysNothingKeepsNobodyWaiting) {
  start(guests_.taker());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connectTo(server_->port()));
  EXPECT_TRUE(sync(secure(keys_.control)).ok());
  EXPECT_TRUE(isTaken(connectTo(server_->port())));
  silent[3].reset();
  sendAll(silent[4].get(), "neither TLS nor a lane\r\n\r\n");
  receiveUntilClosed(silent[4].get());
  EXPECT_TRUE(sync(secure(keys_.control)).ok());
  server_.reset();
  EXPECT_EQ(receiveUntilClosed(silent[0].get()), "");
}

TEST_F(TaskServerTest, WithoutATakerOnlyTlsIsTaken) {
  start({});
  const UniqueFd guest = connectTo(server_->port());
  sendAll(guest.get(), "TYLANE");
  EXPECT_EQ(receiveUntilClosed(guest.get()), "");
  EXPECT_EQ(sync(openChannel(address_)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(sync(secure(keys_.control)).ok());
}

TEST_F(TaskServerTest, APortThatIsTakenIsNamed) {
  start(guests_.taker());
  const Status taken = TaskServer::start({.what = "ps-1",
                                          .port = static_cast<std::uint16_t>(server_->port()),
                                          .identity = keys_.control},
                                         {&control_}, guests_.taker())
                           .status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("ps-1: cannot listen at " + address_));
}

TEST_F(TaskServerTest, ComesBackAtItsPort) {
  start(guests_.taker());
  const auto port = static_cast<std::uint16_t>(server_->port());
  const auto channel = secure(keys_.control);
  EXPECT_TRUE(sync(channel).ok());
  server_.reset();
  auto again = TaskServer::start({.what = "ps-0", .port = port, .identity = keys_.control},
                                 {&control_}, guests_.taker());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(eventually([&] { return sync(channel).ok(); }));
}

TEST_F(TaskServerTest, ListensAtAddressesOfBothFamilies) {
  for (const std::string host : {"::1", "[::1]"}) {
    auto started = TaskServer::start({.what = "ps-0", .bind = host, .identity = keys_.control},
                                     {&control_}, guests_.taker());
    if (!started.ok()) GTEST_SKIP() << "no IPv6: " << started.status();
    address_ = "[::1]:" + std::to_string((*started)->port());
    EXPECT_TRUE(sync(secure(keys_.control)).ok());
    EXPECT_TRUE(isTaken(connectTo6((*started)->port())));
  }
}

TEST_F(TaskServerTest, ListensAtNamesAndAtAllAddresses) {
  for (const std::string bind : {"localhost", "", "0.0.0.0", "::"}) {
    start(guests_.taker(), bind);
    EXPECT_TRUE(sync(secure(keys_.control)).ok()) << bind;
    EXPECT_TRUE(isTaken(connectTo(server_->port()))) << bind;
  }
}

}  // namespace
}  // namespace trainyard
