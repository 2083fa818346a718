#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/process/files.h"
#include "base/rpc/callback_threads.h"
#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/status_map.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "tests/base/process/temp_dir.h"
#include "trainyard/v1/coordinator.grpc.pb.h"

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

// Answers nothing, and counts the calls that it was given.
class SilentService : public grpc::CallbackGenericService {
 public:
  int calls() const { return calls_; }
  void end() {
    std::lock_guard lock(mutex_);
    for (grpc::ServerGenericBidiReactor* reactor : held_) reactor->Finish(grpc::Status::OK);
    held_.clear();
  }

 private:
  struct Reactor final : grpc::ServerGenericBidiReactor {
    void OnDone() override { const std::unique_ptr<Reactor> owner(this); }
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    std::lock_guard lock(mutex_);
    held_.push_back(std::make_unique<Reactor>().release());
    ++calls_;
    return held_.back();
  }

  std::mutex mutex_;
  std::vector<grpc::ServerGenericBidiReactor*> held_;
  std::atomic<int> calls_ = 0;
};

// One more than may be under way waits until one of them has ended; another connection does not.
TEST(Server, OneConnectionHasOnlySoManyCallsUnderWay) {
  constexpr int kStreams = 3;
  SilentService service;
  grpc::ServerBuilder builder;
  applyServerDefaults(builder, {.streams = kStreams});
  builder.RegisterCallbackGenericService(&service);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  auto server = startServer(builder, "server", "127.0.0.1:0", port);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto call = [&](const std::shared_ptr<grpc::Channel>& channel, int number) {
    struct Call {
      grpc::ClientContext context;
      const grpc::Slice nothing;
      const grpc::ByteBuffer request{&nothing, 1};
      grpc::ByteBuffer reply;
    };
    std::vector<std::future<void>> ended;
    grpc::GenericStub stub(channel);
    for (int i = 0; i < number; ++i) {
      const auto one = std::make_shared<Call>();
      const auto done = std::make_shared<std::promise<void>>();
      ended.push_back(done->get_future());
      setDeadline(one->context, std::chrono::seconds(60));
      stub.UnaryCall(&one->context, "/", grpc::StubOptions(), &one->request, &one->reply,
                     [one, done](const grpc::Status&) { done->set_value(); });
    }
    return ended;
  };
  const auto threads = CallbackThreads::hold();
  const std::string address = fmt::format("127.0.0.1:{}", port);
  // Until the server's settings have arrived a client does not know of the limit.
  const auto first = openChannel(address, {.own_connection = true});
  ASSERT_TRUE(first->WaitForConnected(deadlineAfter(std::chrono::seconds(60))));
  auto ended = call(first, kStreams + 2);
  EXPECT_TRUE(eventually([&] { return service.calls() == kStreams; }));
  auto others = call(openChannel(address, {.own_connection = true}), 1);
  EXPECT_TRUE(eventually([&] { return service.calls() == kStreams + 1; }));
  service.end();
  EXPECT_TRUE(eventually([&] { return service.calls() == kStreams + 3; }));
  for (auto* const all : {&ended, &others}) {
    for (std::future<void>& one : *all) {
      EXPECT_TRUE(eventually([&] {
        service.end();
        return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      }));
    }
  }
  (*server)->Shutdown(deadlineAfter(std::chrono::seconds(1)));
}

// Takes one message of each call and ends it.
class ReadingService : public grpc::CallbackGenericService {
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&message_); }
    void OnReadDone(bool) override { Finish(grpc::Status::OK); }
    void OnDone() override { const std::unique_ptr<Reactor> owner(this); }

   private:
    grpc::ByteBuffer message_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return std::make_unique<Reactor>().release();
  }
};

// Of this process, in MiB.
long peakMemory() {
  std::ifstream file("/proc/self/status");
  std::string word;
  long kilobytes = 0;
  while (file >> word && word != "VmHWM:") continue;
  file >> kilobytes;
  return kilobytes >> 10;
}

// The sender has one MiB, a thousand times; all the memory that it takes is the server's.
TEST(Server, AMessageThatIsFarTooLargeDoesNotFillTheMemory) {
  constexpr std::size_t kMiB = 1 << 20;
  constexpr long kMegabytes = 1000;
  ReadingService service;
  grpc::ServerBuilder builder;
  applyServerDefaults(builder, {.bytes = 32 * kMiB});
  builder.RegisterCallbackGenericService(&service);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  auto server = startServer(builder, "server", "127.0.0.1:0", port);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto threads = CallbackThreads::hold();
  grpc::GenericStub stub(openChannel(fmt::format("127.0.0.1:{}", port), {.max_message_bytes = -1}));
  const auto send = [&](const grpc::ByteBuffer& request) {
    grpc::ClientContext context;
    setDeadline(context, std::chrono::seconds(60));
    grpc::ByteBuffer reply;
    std::promise<grpc::Status> ended;
    stub.UnaryCall(&context, "/", grpc::StubOptions(), &request, &reply,
                   [&](grpc::Status status) { ended.set_value(std::move(status)); });
    return ended.get_future().get();
  };
  const grpc::Slice piece(std::string(kMiB, 'x'));
  const std::vector<grpc::Slice> fitting(kMaxRequestBytes / kMiB, piece);
  const grpc::ByteBuffer largest(fitting.data(), fitting.size());
  EXPECT_NE(send(largest).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const long before = peakMemory();
  const std::vector<grpc::Slice> pieces(kMegabytes, piece);
  const grpc::Status status = send(grpc::ByteBuffer(pieces.data(), pieces.size()));
  EXPECT_FALSE(status.ok());
  EXPECT_LT(peakMemory() - before, kMegabytes / 2) << status.error_message();
  (*server)->Shutdown(deadlineAfter(std::chrono::seconds(1)));
}

// Tells who has proved to be somebody.
class ForKnownClients final : public v1::Coordinator::CallbackService {
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context, const v1::MemberReport*,
                                 v1::View*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(checkPeer(*context));
    return reactor;
  }
};

TEST(Server, AServiceForKnownClientsRefusesOthersWhereverItIsRegistered) {
  ForKnownClients service;
  grpc::ServerBuilder builder;
  applyServerDefaults(builder);
  builder.RegisterService(&service);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  auto server = startServer(builder, "server", "127.0.0.1:0", port);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::Coordinator::NewStub(openChannel(fmt::format("127.0.0.1:{}", port)));
  grpc::ClientContext context;
  setDeadline(context, std::chrono::seconds(60));
  v1::View view;
  EXPECT_EQ(stub->Sync(&context, {}, &view).error_code(), grpc::StatusCode::UNAUTHENTICATED);
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
