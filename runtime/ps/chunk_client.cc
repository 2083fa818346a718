#include "runtime/ps/chunk_client.h"

#include <algorithm>

#include "base/rpc/channel.h"
#include "base/rpc/status_map.h"
#include "base/rpc/token.h"
#include "fmt/format.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::size_t kConnections = 2;
constexpr char kMethod[] = "/trainyard.v1.ParameterServer/PushPull";

}  // namespace

class ChunkClient::Call final : public grpc::ClientUnaryReactor {
 public:
  Call(ChunkClient& client, int ps, std::uint32_t chunk, std::uint64_t attempt,
       std::shared_ptr<grpc::GenericStub> stub, grpc::ByteBuffer request)
      : client_(client),
        ps_(ps),
        chunk_(chunk),
        attempt_(attempt),
        stub_(std::move(stub)),
        request_(std::move(request)) {
    addToken(context_, client.token_);
    setDeadline(context_, client.call_limit_);
  }
  void start() {
    stub_->PrepareUnaryCall(&context_, kMethod, grpc::StubOptions(), &request_, &reply_, this);
    StartCall();
  }
  void cancel() { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) client_.events_.received(chunk_, attempt_);
  }
  void OnDone(const grpc::Status& status) override {
    Status result = fromGrpc(status, fmt::format("ps-{}", ps_));
    v1::ChunkReplyHeader header;
    std::unique_ptr<WirePayload> payload;
    if (result.ok()) {
      auto decoded = decodeChunk(reply_, &header);
      result = decoded.status();
      if (decoded.ok()) payload = std::move(*decoded);
    }
    request_.Clear();
    client_.events_.replied(chunk_, attempt_, result, header, std::move(payload));
    client_.finished(this);
  }

 private:
  ChunkClient& client_;
  const int ps_;
  const std::uint32_t chunk_;
  const std::uint64_t attempt_;
  const std::shared_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
};

ChunkClient::ChunkClient(std::string token, Duration call_limit, Events events)
    : token_(std::move(token)), call_limit_(call_limit), events_(std::move(events)) {}

ChunkClient::~ChunkClient() {
  close();
}

void ChunkClient::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  for (Call* call : calls_) call->cancel();
  idle_.wait(lock, [&] { return calls_.empty(); });
}

void ChunkClient::setAddress(int ps, const std::string& address) {
  std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(ps);
  if (servers_.size() <= index) servers_.resize(index + 1);
  Server& server = servers_[index];
  if (server.address == address) return;
  server = Server{};
  server.address = address;
  for (std::size_t i = 0; i < kConnections; ++i) {
    ChannelOptions options;
    options.own_connection = true;
    server.channels.push_back(openChannel(address, options));
    server.stubs.push_back(std::make_shared<grpc::GenericStub>(server.channels.back()));
  }
}

void ChunkClient::send(int ps, std::uint64_t attempt, const v1::ChunkRequestHeader& header,
                       const std::vector<PayloadPiece>& payload) {
  grpc::ByteBuffer request = encodeChunk(header, payload);
  Call* call = nullptr;
  Status refused = absl::UnavailableError(fmt::format("ps-{} has no address yet", ps));
  {
    std::lock_guard lock(mutex_);
    const auto index = static_cast<std::size_t>(ps);
    if (closed_) {
      refused = absl::CancelledError("closed");
    } else if (index < servers_.size() && !servers_[index].stubs.empty()) {
      Server& server = servers_[index];
      auto stub = server.stubs[server.next++ % server.stubs.size()];
      call = new Call(*this, ps, header.chunk(), attempt, std::move(stub), std::move(request));
      calls_.push_back(call);
    }
  }
  if (call != nullptr) {
    call->start();
  } else {
    events_.replied(header.chunk(), attempt, refused, {}, nullptr);
  }
}

void ChunkClient::cancelAll() {
  std::lock_guard lock(mutex_);
  for (Call* call : calls_) call->cancel();
}

void ChunkClient::finished(Call* call) {
  {
    std::lock_guard lock(mutex_);
    std::erase(calls_, call);
    if (calls_.empty()) idle_.notify_all();
  }
  delete call;
}

}  // namespace trainyard::runtime::ps
