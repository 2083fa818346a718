#include "base/rpc/task_server.h"

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
class Data final : public v1::ParameterServer::CallbackService {
  grpc::ServerUnaryReactor* PushPull(grpc::CallbackServerContext* context, const v1::ChunkRequest*,
                                     v1::ChunkReply*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class TaskServerTest : public testing::Test {
 protected:
  void start(const std::vector<grpc::Service*>& control, const std::vector<grpc::Service*>& data,
             const std::string& bind = "127.0.0.1") {
    auto started = TaskServer::start(
        {.what = "ps-0", .bind = bind, .port = 0, .identity = keys_.control}, control, data);
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
  static grpc::Status push(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    setDeadline(context, kLimit);
    v1::ChunkReply reply;
    return v1::ParameterServer::NewStub(channel)->PushPull(&context, {}, &reply);
  }
  std::shared_ptr<grpc::Channel> secure(const TlsIdentity& self) const {
    return openSecureChannel(address_, self, kRuntimeServerName);
  }

  const RuntimeKeys keys_ = deriveRuntimeKeys("the-token");
  Control control_;
  Data data_;
  std::unique_ptr<TaskServer> server_;
  std::string address_;
};

TEST_F(TaskServerTest, EachSideHasItsOwnServices) {
  start({&control_}, {&data_});
  EXPECT_TRUE(sync(secure(keys_.control)).ok());
  EXPECT_TRUE(push(openChannel(address_)).ok());
  EXPECT_EQ(push(secure(keys_.control)).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(sync(openChannel(address_)).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(TaskServerTest, ControlKnowsItsClientsAndTheyKnowIt) {
  start({&control_}, {&data_});
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

TEST_F(TaskServerTest, AServiceForKnownClientsRefusesOthersOnTheWrongSide) {
  start({&data_}, {&control_});
  EXPECT_EQ(sync(openChannel(address_)).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(TaskServerTest, WhoSaysNothingKeepsNobodyWaiting) {
  start({&control_}, {&data_});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connectTo(server_->port()));
  EXPECT_TRUE(sync(secure(keys_.control)).ok());
  EXPECT_TRUE(push(openChannel(address_)).ok());
  silent[3].reset();
  sendAll(silent[4].get(), "neither TLS nor gRPC\r\n\r\n");
  receiveUntilClosed(silent[4].get());
  EXPECT_TRUE(sync(secure(keys_.control)).ok());
  server_.reset();
  EXPECT_EQ(receiveUntilClosed(silent[0].get()), "");
}

TEST_F(TaskServerTest, WithoutServicesForDataOnlyTlsIsTaken) {
  start({&control_}, {});
  EXPECT_EQ(push(openChannel(address_)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(sync(secure(keys_.control)).ok());
}

TEST_F(TaskServerTest, APortThatIsTakenIsNamed) {
  start({&control_}, {&data_});
  const Status taken = TaskServer::start({.what = "ps-1",
                                          .port = static_cast<std::uint16_t>(server_->port()),
                                          .identity = keys_.control},
                                         {&control_}, {&data_})
                           .status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("ps-1: cannot listen at " + address_));
}

TEST_F(TaskServerTest, ComesBackAtItsPort) {
  start({&control_}, {&data_});
  const auto port = static_cast<std::uint16_t>(server_->port());
  const auto channel = secure(keys_.control);
  EXPECT_TRUE(sync(channel).ok());
  server_.reset();
  auto again = TaskServer::start({.what = "ps-0", .port = port, .identity = keys_.control},
                                 {&control_}, {&data_});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(eventually([&] { return sync(channel).ok(); }));
}

TEST_F(TaskServerTest, ListensAtAddressesOfBothFamilies) {
  for (const std::string host : {"::1", "[::1]"}) {
    auto started = TaskServer::start({.what = "ps-0", .bind = host, .identity = keys_.control},
                                     {&control_}, {&data_});
    if (!started.ok()) GTEST_SKIP() << "no IPv6: " << started.status();
    address_ = "[::1]:" + std::to_string((*started)->port());
    EXPECT_TRUE(sync(secure(keys_.control)).ok());
    EXPECT_TRUE(push(openChannel(address_)).ok());
  }
}

TEST_F(TaskServerTest, ListensAtNamesAndAtAllAddresses) {
  for (const std::string bind : {"localhost", "", "0.0.0.0", "::"}) {
    start({&control_}, {&data_}, bind);
    EXPECT_TRUE(sync(secure(keys_.control)).ok()) << bind;
    EXPECT_TRUE(push(openChannel(address_)).ok()) << bind;
  }
}

}  // namespace
}  // namespace trainyard
