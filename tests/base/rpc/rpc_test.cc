#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "base/process/files.h"
#include "base/rpc/callback_threads.h"
#include "base/rpc/channel.h"
#include "base/rpc/status_map.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(StatusMap, KeepsCodeAndMessage) {
  EXPECT_TRUE(toGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(fromGrpc(grpc::Status::OK, "x").ok());
  for (int code = 1; code <= 16; ++code) {
    const Status status(static_cast<absl::StatusCode>(code), "why");
    const Status back = fromGrpc(toGrpc(status), "GetTask 10.0.0.1:5");
    EXPECT_EQ(back.code(), status.code());
    EXPECT_EQ(std::string(back.message()), "GetTask 10.0.0.1:5: why");
  }
}

TEST(Token, IsReadStrictlyAndNeverShown) {
  const TempDir dir;
  const auto path = dir.path() / "token";
  const std::string token(64, 'a');
  ASSERT_TRUE(writeFileAtomically(path, token + "\n", 0600).ok());
  EXPECT_EQ(readToken(path).value(), token);
  for (const std::string& wrong : {std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'G'),
                                   std::string(64, 'A'), std::string()}) {
    ASSERT_TRUE(writeFileAtomically(path, wrong, 0600).ok());
    const Status status = readToken(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path.native()));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("aaaa")));
  }
  EXPECT_EQ(readToken(dir.path() / "none").status().code(), absl::StatusCode::kNotFound);
}

TEST(Token, ComparesWholeTexts) {
  EXPECT_TRUE(equalInConstantTime("abc", "abc"));
  EXPECT_TRUE(equalInConstantTime("", ""));
  EXPECT_FALSE(equalInConstantTime("abc", "abd"));
  EXPECT_FALSE(equalInConstantTime("xbc", "abc"));
  EXPECT_FALSE(equalInConstantTime("abc", "abcd"));
}

TEST(Server, DoesNotShareItsPort) {
  grpc::CallbackGenericService service;  // a server needs one
  grpc::CallbackGenericService service2;
  grpc::ServerBuilder first;
  applyServerDefaults(first);
  first.RegisterCallbackGenericService(&service);
  int port = 0;
  first.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  auto server = startServer(first, "first", "127.0.0.1:0", port);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = fmt::format("127.0.0.1:{}", port);
  grpc::ServerBuilder second;
  applyServerDefaults(second);
  second.RegisterCallbackGenericService(&service2);
  int none = 0;
  second.AddListeningPort(address, grpc::InsecureServerCredentials(), &none);
  const Status taken = startServer(second, "second", address, none).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("second: cannot listen at " + address));
  (*server)->Shutdown(deadlineAfter(std::chrono::seconds(1)));
}

// gRPC's threads for callbacks in this process, by the name that gRPC gives them.
int callbackThreads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    count += std::getline(file, name) && name == "nexting_thread" ? 1 : 0;
  }
  return count;
}

// The call holds the last reference to its channel when it ends.
TEST(CallbackThreads, AChannelMayEndOnOneOfThem) {
  struct Call {
    explicit Call(const std::string& target) : stub(openChannel(target)) {}
    grpc::GenericStub stub;
    grpc::ClientContext context;
    const grpc::Slice nothing;
    const grpc::ByteBuffer request{&nothing, 1};
    grpc::ByteBuffer reply;
  };
  for (int round = 0; round < 20; ++round) {
    const auto threads = CallbackThreads::hold();
    const int running = callbackThreads();
    ASSERT_GT(running, 0);
    auto call = std::make_unique<Call>("unix:/no/such/socket");
    std::promise<void> ended;
    call->stub.UnaryCall(&call->context, "/", grpc::StubOptions(), &call->request, &call->reply,
                         [&](const grpc::Status& status) {
                           EXPECT_FALSE(status.ok());
                           call.reset();
                           ended.set_value();
                         });
    ended.get_future().wait();
    EXPECT_GE(callbackThreads(), running);
  }
}

TEST(UnixTarget, KnowsAbstractNames) {
  EXPECT_EQ(unixTarget("/a/b.sock"), "unix:/a/b.sock");
  EXPECT_EQ(unixTarget("@name"), "unix-abstract:name");
}

}  // namespace
}  // namespace trainyard
