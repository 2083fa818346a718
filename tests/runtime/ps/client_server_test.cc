#include <condition_variable>
#include <map>
#include <mutex>

#include "base/rpc/secure_channel.h"
#include "base/rpc/token.h"
#include "gmock/gmock.h"
#include "runtime/ps/chunk_client.h"
#include "runtime/ps/protocol.h"
#include "tests/runtime/ps/rpc_bench.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr Duration kLimit = std::chrono::seconds(60);

// A client that collects what it is told, by attempt.
class Caller {
 public:
  struct Reply {
    Status status;
    v1::ChunkReplyHeader header;
    std::vector<float> values;
  };
  explicit Caller(const PsServer& server, const std::string& key = keys().data,
                  Duration limit = kLimit, bool near = false,
                  std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr)
      : client_({key, std::move(credentials)}, limit, events(), {0, {{{0, 8}}}}) {
    client_.setAddress(0, server.address, near);
  }
  std::uint64_t push(std::uint32_t rank, float value, std::int64_t step = 0) {
    v1::ChunkRequestHeader h;
    h.set_step(step);
    h.set_protocol(protocol);
    h.set_job_uid(kJob);
    *h.mutable_server() = incarnation(1, 1);
    h.set_epoch(1);
    h.set_worker(rank);
    h.set_rank(rank);
    h.set_worker(rank);
    h.set_samples(1);
    h.set_receipt(true);
    auto values = std::make_shared<std::vector<float>>(8, value);
    const Status sent = client_.send(0, ++attempt_, h, {{std::span<const float>(*values), values}});
    EXPECT_TRUE(sent.ok()) << sent;
    return attempt_;
  }
  bool received(std::uint64_t attempt) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLimit, [&] { return received_.count(attempt) > 0; });
  }
  Reply reply(std::uint64_t attempt) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [&] { return replies_.count(attempt) > 0; }));
    return replies_[attempt];
  }
  ChunkClient& client() { return client_; }
  std::uint32_t protocol = kChunkProtocol;

 private:
  ChunkClient::Events events() {
    ChunkClient::Events e;
    e.received = [this](std::uint32_t, std::uint64_t attempt) {
      std::lock_guard lock(mutex_);
      received_[attempt] = true;
      changed_.notify_all();
    };
    e.replied = [this](const ChunkClient::Reply& replied) {
      std::lock_guard lock(mutex_);
      Reply& reply = replies_[replied.attempt];
      reply = {replied.status, replied.header, {}};
      if (replied.payload != nullptr) {
        reply.values.resize(replied.payload->sizeBytes() / sizeof(float));
        replied.payload->copyTo(std::span<float>(reply.values));
      }
      changed_.notify_all();
    };
    return e;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, bool> received_;
  std::map<std::uint64_t, Reply> replies_;
  std::uint64_t attempt_ = 0;
  ChunkClient client_;
};

TEST(ClientAndServer, ACallIsReceivedWhileItsAnswerWaitsForTheQuorum) {
  PsServer server(1, 2);
  Caller caller(server);
  const auto first = caller.push(0, 2);
  ASSERT_TRUE(caller.received(first));
  const auto second = caller.push(1, 4);
  for (const auto attempt : {first, second}) {
    const Caller::Reply reply = caller.reply(attempt);
    ASSERT_TRUE(reply.status.ok()) << reply.status;
    EXPECT_EQ(reply.header.code(), v1::CHUNK_OK);
    ASSERT_EQ(reply.values.size(), 8u);
    EXPECT_THAT(reply.values, Each(-3.0f));
  }
  EXPECT_EQ(server.service.requests(), 2u);
  v1::RuntimeReport report;
  server.service.traffic().fill(report);
  ASSERT_EQ(report.traffic_size(), 2);
  EXPECT_EQ(report.traffic(1).peer().index(), 1u);
  EXPECT_EQ(report.traffic(1).received_bytes(), 32u);
  EXPECT_EQ(report.traffic(1).transmitted_bytes(), 32u);
}

// Pushes as the only rank until an answer came through shared memory.
std::int64_t pushUntilShared(const PsServer& server, Caller& caller) {
  std::int64_t pushes = 0;
  while (server.service.sharedRequests() == 0 && pushes < 1000) {
    caller.reply(caller.push(0, 1, pushes));
    ++pushes;
  }
  return pushes;
}

TEST(ClientAndServer, MemoryOfAGivenUpCallIsNotUsedAgain) {
  PsServer server(1, 1);
  Caller caller(server, keys().data, kLimit, true);
  std::int64_t step = pushUntilShared(server, caller);
  ASSERT_EQ(server.service.sharedRequests(), 1u);
  // Another server's gradient would be missing: no version but the next is ever answered.
  const auto parked = caller.push(0, 1, step + 1);
  caller.client().cancelAll();
  caller.reply(parked);
  const auto before = server.service.sharedRequests();
  const Caller::Reply reply = caller.reply(caller.push(0, 1, step));
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.header.code(), v1::CHUNK_OK);
  EXPECT_THAT(reply.values, Each(-static_cast<float>(step + 1)));
  EXPECT_LE(server.service.sharedRequests(), before + 1);
}

TEST(ClientAndServer, PlacesOutsideOfSharedMemoryAreRefused) {
  PsServer server(1, 1);
  const auto slots = SharedSlots::create({{0, 8}});
  ASSERT_TRUE(slots.ok()) << slots.status();
  auto channel = openChannel(server.address);
  const auto stub = v1::ParameterServer::NewStub(channel);
  const auto push = [&](const v1::SharedPlace& place) {
    grpc::ClientContext context;
    addToken(context, keys().data);
    setDeadline(context, kLimit);
    v1::ChunkRequest request;
    request.mutable_header()->set_protocol(kChunkProtocol);
    *request.mutable_header()->mutable_shared() = place;
    v1::ChunkReply reply;
    return stub->PushPull(&context, request, &reply);
  };
  v1::SharedPlace place = (*slots)->take(0)->place(32);
  EXPECT_THAT(push(place).error_message(), HasSubstr("not known here"));
  grpc::ClientContext context;
  addToken(context, keys().data);
  setDeadline(context, kLimit);
  v1::ShareMemoryRequest offer = (*slots)->invitation();
  offer.set_protocol(kChunkProtocol);
  v1::ShareMemoryReply none;
  ASSERT_TRUE(stub->ShareMemory(&context, offer, &none).ok());
  EXPECT_TRUE(push(place).ok()) << "of another job: refused by the shard";
  place.set_reply_offset((*slots)->bytes() - 4);
  EXPECT_THAT(push(place).error_message(), HasSubstr("outside of the shared memory"));

  grpc::ClientContext stranger;
  setDeadline(stranger, kLimit);
  EXPECT_EQ(stub->ShareMemory(&stranger, offer, &none).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST(ClientAndServer, AWrongKeyIsRefused) {
  PsServer server(1, 1);
  Caller caller(server, "another-key");
  const Caller::Reply reply = caller.reply(caller.push(0, 1));
  EXPECT_EQ(reply.status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(reply.status.message()), HasSubstr("ps-0"));
  EXPECT_EQ(server.shard.state().max_version(), 0);
}

TEST(ClientAndServer, EncryptedPushesAreForThoseWhoProveThemselves) {
  PsServer server(1, 1, {}, 8, keys(), {}, true);
  Caller caller(server, keys().data, kLimit, false, secureClient(keys().control));
  const Caller::Reply reply = caller.reply(caller.push(0, 1));
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_THAT(reply.values, Each(-1.0f));
  Caller plain(server);
  EXPECT_TRUE(absl::IsUnavailable(plain.reply(plain.push(0, 1, 1)).status));
  Caller stranger(server, keys().data, kLimit, false,
                  secureClient(deriveRuntimeKeys("another token").control));
  EXPECT_TRUE(absl::IsUnavailable(stranger.reply(stranger.push(0, 1, 1)).status));
  EXPECT_EQ(server.shard.state().max_version(), 1);
}

TEST(ClientAndServer, TheShardIsShownToThoseWhoProveThemselves) {
  PsServer server(1, 1);
  v1::ShardTable table;
  const auto ask = [&](const std::shared_ptr<grpc::Channel>& channel, const std::string& key) {
    const auto stub = v1::ShardTransfer::NewStub(channel);
    grpc::ClientContext context;
    setDeadline(context, kLimit);
    addToken(context, key);
    return stub->GetShard(&context, {}, &table).error_code();
  };
  const RuntimeKeys others = deriveRuntimeKeys("another token");
  EXPECT_EQ(ask(openChannel(server.address), keys().data), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(ask(openSecureChannel(server.address, others.control, kRuntimeServerName), keys().data),
            grpc::StatusCode::UNAVAILABLE);
  ASSERT_EQ(ask(openSecureChannel(server.address, keys().control, kRuntimeServerName), "none"),
            grpc::StatusCode::OK);
  EXPECT_EQ(table.entries_size(), 5);
  EXPECT_EQ(table.id().role(), v1::ROLE_PS);
}

// What placement cuts is 1 MiB at most.
constexpr std::int64_t kLargestChunk = (1 << 20) / sizeof(float);

grpc::Status pushOf(const PsServer& server, const std::string& token, std::size_t bytes,
                    v1::ChunkReply& reply) {
  const auto stub = v1::ParameterServer::NewStub(openChannel(server.address));
  grpc::ClientContext context;
  if (!token.empty()) addToken(context, token);
  setDeadline(context, kLimit);
  v1::ChunkRequest request;
  v1::ChunkRequestHeader& header = *request.mutable_header();
  header.set_protocol(kChunkProtocol);
  header.set_job_uid(kJob);
  *header.mutable_server() = incarnation(1, 1);
  header.set_epoch(1);
  header.set_samples(1);
  request.set_payload(std::string(bytes, '\0'));
  return stub->PushPull(&context, request, &reply);
}

TEST(ClientAndServer, TheLargestChunkFitsAndWhatIsMuchLargerDoesNot) {
  PsServer server(1, 1, {}, kLargestChunk);
  v1::ChunkReply reply;
  const std::size_t largest = kLargestChunk * sizeof(float);
  const grpc::Status taken = pushOf(server, keys().data, largest, reply);
  ASSERT_TRUE(taken.ok()) << taken.error_message();
  EXPECT_EQ(reply.header().code(), v1::CHUNK_OK) << reply.header().message();
  EXPECT_EQ(reply.payload().size(), largest);
  for (const std::string& token : {std::string(), keys().data}) {
    const grpc::Status refused = pushOf(server, token, kMaxRequestBytes + 1, reply);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << refused.error_message();
  }
  EXPECT_EQ(pushOf(server, "", largest, reply).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

// A server that clips answers no chunk before all are in: so many calls on a connection at least.
TEST(ClientAndServer, ThereIsRoomForACallForEveryChunk) {
  Placement placement = evenPlacement(1000);
  EXPECT_GE(serverLimits(placement).streams, 2 * 5000);
  placement.chunks.clear();
  EXPECT_GE(serverLimits(placement).streams, 16);
}

TEST(ClientAndServer, AMessageThatIsNoChunkIsInvalid) {
  PsServer server(1, 1);
  auto channel = openChannel(server.address);
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  addToken(context, keys().data);
  setDeadline(context, kLimit);
  v1::TaskId id;
  id.set_index(3);
  const grpc::Slice bytes(id.SerializeAsString());
  const grpc::ByteBuffer nonsense(&bytes, 1);
  grpc::ByteBuffer reply;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<grpc::Status> status;
  stub.UnaryCall(&context, "/trainyard.v1.ParameterServer/PushPull", grpc::StubOptions(), &nonsense,
                 &reply, [&](grpc::Status s) {
                   std::lock_guard lock(mutex);
                   status = std::move(s);
                   changed.notify_all();
                 });
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, kLimit, [&] { return status.has_value(); }));
  EXPECT_EQ(status->error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(ClientAndServer, AnotherProtocolIsRefusedByName) {
  PsServer server(1, 1);
  Caller caller(server);
  caller.protocol = kChunkProtocol + 1;
  const Caller::Reply reply = caller.reply(caller.push(0, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(reply.status)) << reply.status;
  EXPECT_THAT(std::string(reply.status.message()),
              HasSubstr("the request speaks protocol 2, this server 1"));
}

TEST(ClientAndServer, ACancelledCallDoesNotDisturbTheStep) {
  PsServer server(1, 2);
  Caller caller(server);
  const auto given_up = caller.push(0, 2);
  ASSERT_TRUE(caller.received(given_up));
  caller.client().cancelAll();
  EXPECT_EQ(caller.reply(given_up).status.code(), absl::StatusCode::kCancelled);
  const auto again = caller.push(0, 2);
  ASSERT_TRUE(caller.received(again));
  const auto other = caller.push(1, 4);
  EXPECT_THAT(caller.reply(other).values, Each(-3.0f));
  EXPECT_THAT(caller.reply(again).values, Each(-3.0f));
}

TEST(ClientAndServer, ACallEndsAtItsLimit) {
  PsServer server(1, 2);
  Caller caller(server, keys().data, std::chrono::milliseconds(300));
  EXPECT_EQ(caller.reply(caller.push(0, 1)).status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientAndServer, ClosingEndsWhatIsInFlightAndRefusesTheRest) {
  PsServer server(1, 2);
  Caller caller(server);
  const auto parked = caller.push(0, 2);
  ASSERT_TRUE(caller.received(parked));
  caller.client().close();
  EXPECT_EQ(caller.reply(parked).status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(absl::IsCancelled(caller.client().send(0, 77, {}, {})));
}

TEST(ClientAndServer, AServerWithoutAddressIsUnavailable) {
  PsServer server(1, 1);
  Caller caller(server);
  EXPECT_TRUE(absl::IsUnavailable(caller.client().send(5, 77, {}, {})));
}

}  // namespace
}  // namespace trainyard::runtime::ps
