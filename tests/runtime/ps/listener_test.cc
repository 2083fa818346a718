// Somebody who listens between a member and a server's process, and what that is good for.
#include <condition_variable>
#include <future>
#include <mutex>

#include "base/rpc/secure_channel.h"
#include "base/rpc/token.h"
#include "base/security/random.h"
#include "gmock/gmock.h"
#include "runtime/coordinator/member_link.h"
#include "runtime/coordinator/service.h"
#include "runtime/ps/chunk_client.h"
#include "runtime/ps/chunk_fetch.h"
#include "runtime/ps/protocol.h"
#include "tests/base/process/recording_relay.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/coordinator/bench.h"
#include "tests/runtime/ps/rpc_bench.h"

namespace trainyard::runtime::ps {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr char kUid[] = "uid-1";

// The process of ps-0: shard and coordinator at one port.
class ListenerTest : public testing::Test {
 protected:
  ListenerTest()
      : coordinator_(coordinatorOptions(), coordinator(), systemClock()),
        server_(1, 1, {}, 8, keys_, {&coordinator_}),
        relay_(server_.port()) {}
  ~ListenerTest() override { coordinator_.stop(); }

  CoordinatorService::Options coordinatorOptions() const {
    CoordinatorService::Options options;
    options.checkpoint_dir = dir_.path().native();
    return options;
  }
  static Coordinator coordinator() {
    return Coordinator(
        Bench::with([](CoordinatorConfig& c) { c.heartbeat = std::chrono::milliseconds(100); }),
        members(1, 1), std::nullopt, systemClock().now());
  }
  // What a worker does at its coordinator: reports, and questions.
  void talkToTheCoordinator(const std::string& address) {
    Bench bench(1, 1);
    std::mutex mutex;
    std::condition_variable changed;
    v1::View seen;
    MemberLink link(
        {.identity = keys_.control}, systemClock(),
        [&] {
          return bench.reports[{v1::ROLE_WORKER, 0}];
        },
        [&](const v1::View& view) {
          std::lock_guard lock(mutex);
          seen = view;
          changed.notify_all();
        });
    link.setAddress(address);
    link.start();
    {
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, kPatience, [&] { return seen.sequence() > 0; }));
      EXPECT_THAT(seen.waiting_for(), HasSubstr("ps-0"));
    }
    std::promise<grpc::Status> answered;
    v1::TakeRequest request;
    request.set_job_uid(kUid);
    link.take(request, [&](const grpc::Status& status, const v1::TakeReply&) {
      answered.set_value(status);
    });
    const grpc::Status status = answered.get_future().get();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  // What a server does at another when an epoch is prepared, until it has looked so often whether
  // that is over.
  Status fetch(const std::string& address, const std::string& key, int looks = 1000) {
    std::vector<ChunkAnswer> none;
    server_.shard.seal(2, none);
    v1::EpochInfo epoch;
    epoch.set_epoch(2);
    v1::ChunkSource* source = epoch.add_sources();
    source->set_ps(0);
    *source->mutable_incarnation() = incarnation(1, 1);
    source->set_address(address);
    FetchOptions options;
    options.access = {{key}, {v1::ROLE_PS, 1, incarnation(1, 1)}};
    options.job_uid = kUid;
    options.over = [&looks] { return --looks < 0; };
    return fetchChunks(options, server_.placement, epoch, {{1, 0}}, systemClock(),
                       {[this](std::uint32_t, const GivenChunk&) {
                          ++fetched_;
                          return absl::OkStatus();
                        },
                        {}});
  }
  // A gradient with its message, not through memory.
  Status push(const std::string& address, const std::string& key) {
    std::promise<Status> replied;
    ChunkClient::Events events;
    events.received = [](std::uint32_t, std::uint64_t) {};
    std::vector<float> weights(8);
    events.replied = [&](const ChunkClient::Reply& reply) -> std::vector<std::span<float>> {
      if (reply.status.ok() && reply.header.code() == v1::CHUNK_OK) return {weights};
      replied.set_value(reply.status.ok() ? absl::InternalError("not taken") : reply.status);
      return {};
    };
    events.stored = [&](const ChunkClient::Reply&) { replied.set_value(absl::OkStatus()); };
    events.cut = [&](const ChunkClient::Reply&, const Status& why) { replied.set_value(why); };
    ChunkClient client({{{key}, workerEnd()}, kPatience}, events);
    client.setAddress(0, address);
    v1::ChunkRequestHeader header;
    header.set_protocol(kChunkProtocol);
    header.set_job_uid(kUid);
    *header.mutable_server() = incarnation(1, 1);
    header.set_epoch(1);
    header.set_samples(1);
    const auto values = std::make_shared<std::vector<float>>(8, 1.0f);
    const auto sent = client.send(0, 1, header, {{std::span<const float>(*values), values}});
    if (!sent.ok()) return sent.status();
    return replied.get_future().get();
  }
  // The codes of all calls that are not for data, by somebody with this key.
  static std::vector<grpc::StatusCode> tryControl(const std::shared_ptr<grpc::Channel>& channel,
                                                  const std::string& key) {
    std::vector<grpc::StatusCode> codes;
    const auto call = [&](auto method) {
      grpc::ClientContext context;
      setDeadline(context, kPatience);
      addToken(context, key);
      codes.push_back(method(&context).error_code());
    };
    const auto coordinator = v1::Coordinator::NewStub(channel);
    const auto tables = v1::ShardTables::NewStub(channel);
    v1::View view;
    v1::TakeReply taken;
    v1::ShardTable table;
    call([&](auto* context) { return coordinator->Sync(context, {}, &view); });
    call([&](auto* context) { return coordinator->Take(context, {}, &taken); });
    call([&](auto* context) { return tables->GetShard(context, {}, &table); });
    return codes;
  }

  const std::string token_ = randomHex(32);
  const RuntimeKeys keys_ = deriveRuntimeKeys(token_);
  TempDir dir_;
  CoordinatorService coordinator_;
  PsServer server_;
  RecordingRelay relay_;
  int fetched_ = 0;
};

TEST_F(ListenerTest, HearsNoTokenAndNothingOfControl) {
  talkToTheCoordinator(relay_.address());
  const auto control = relay_.heard();
  EXPECT_GE(control.size(), 1u);
  for (const auto& heard : control) {
    EXPECT_THAT(heard.to_server, StartsWith("\x16"));
    for (const std::string& bytes : {heard.to_server, heard.to_client}) {
      EXPECT_GT(bytes.size(), 500u);
      EXPECT_THAT(bytes, Not(AnyOf(HasSubstr(token_), HasSubstr(keys_.data), HasSubstr(kUid),
                                   HasSubstr("worker-0"), HasSubstr("trainyard.v1"))));
    }
  }
}

// Gradients, weights and slots can be read where the job does not encrypt them; what opens a lane
// cannot.
TEST_F(ListenerTest, HearsNoKeyInPushesAndFetches) {
  const Status pushed = push(relay_.address(), keys_.data);
  EXPECT_TRUE(pushed.ok()) << pushed;
  const Status fetched = fetch(relay_.address(), keys_.data);
  EXPECT_TRUE(fetched.ok()) << fetched;
  std::string all;
  for (const auto& heard : relay_.heard()) all += heard.to_server + heard.to_client;
  EXPECT_THAT(all, HasSubstr(kUid)) << "what was heard is not what was said";
  EXPECT_THAT(all, Not(AnyOf(HasSubstr(token_), HasSubstr(keys_.data))));
}

TEST_F(ListenerTest, RepeatingWhatWasHeardOfLanesOpensNothing) {
  ASSERT_TRUE(push(relay_.address(), keys_.data).ok());
  ASSERT_EQ(server_.service.requests(), 1u);
  ASSERT_TRUE(fetch(relay_.address(), keys_.data).ok());
  for (const auto& heard : relay_.heard()) {
    const UniqueFd own = connectTo(server_.port());
    sendAll(own.get(), heard.to_server);
    const std::string answer = receiveUntilClosed(own.get());
    EXPECT_LT(answer.size(), heard.to_client.size());
    EXPECT_THAT(answer, Not(HasSubstr(kUid)));
  }
  EXPECT_EQ(server_.service.requests(), 1u);
}

TEST_F(ListenerTest, RepeatingWhatWasHeardOfControlOpensNothing) {
  talkToTheCoordinator(relay_.address());
  for (const auto& heard : relay_.heard()) {
    const UniqueFd own = connectTo(server_.port());
    sendAll(own.get(), heard.to_server);
    const std::string answer = receiveUntilClosed(own.get());
    // No more than the server's part of a handshake, which it then gives up.
    EXPECT_LT(answer.size(), heard.to_client.size());
    EXPECT_THAT(answer, Not(AnyOf(HasSubstr(kUid), HasSubstr("ps-0"), HasSubstr("grpc"))));
  }
}

TEST_F(ListenerTest, TheKeyOfDataOpensNothingOfControl) {
  ASSERT_TRUE(push(relay_.address(), keys_.data).ok());
  const auto none = [](grpc::StatusCode code) { return std::vector<grpc::StatusCode>(3, code); };
  const std::string address = "127.0.0.1:" + std::to_string(server_.port());
  EXPECT_EQ(tryControl(openChannel(address), keys_.data), none(grpc::StatusCode::UNAVAILABLE));
  // As a token, to derive from.
  const TlsIdentity derived = deriveRuntimeKeys(keys_.data).control;
  EXPECT_EQ(tryControl(openSecureChannel(address, derived, kRuntimeServerName), keys_.data),
            none(grpc::StatusCode::UNAVAILABLE));
  // Encrypted, by somebody who proves nothing.
  TlsIdentity nameless;
  nameless.ca = keys_.control.ca;
  EXPECT_EQ(tryControl(openSecureChannel(address, nameless, kRuntimeServerName), keys_.data),
            none(grpc::StatusCode::UNAVAILABLE));
  // The token itself opens no lane, so that nobody sends it with a push.
  EXPECT_TRUE(absl::IsPermissionDenied(push(address, token_)));
  EXPECT_FALSE(fetch(address, token_, 10).ok());
  EXPECT_EQ(fetched_, 0);
}

}  // namespace
}  // namespace trainyard::runtime::ps
