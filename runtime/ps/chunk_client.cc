#include "runtime/ps/chunk_client.h"

#include <algorithm>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/status_map.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "runtime/ps/protocol.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::size_t kConnections = 2;
constexpr char kMethod[] = "/trainyard.v1.ParameterServer/PushPull";

}  // namespace

class ChunkClient::Call final : public grpc::ClientUnaryReactor {
 public:
  Call(ChunkClient& client, int ps, std::uint32_t chunk, std::uint64_t attempt,
       std::shared_ptr<grpc::GenericStub> stub, std::shared_ptr<SharedSlots::Hold> hold)
      : client_(client),
        ps_(ps),
        chunk_(chunk),
        attempt_(attempt),
        stub_(std::move(stub)),
        hold_(std::move(hold)) {
    addToken(context_, client.access_.key);
    setDeadline(context_, client.call_limit_);
  }
  void start(const v1::ChunkRequestHeader& header, const std::vector<PayloadPiece>& payload) {
    if (hold_ == nullptr) {
      request_ = encodeChunk(header, payload);
    } else {
      std::size_t bytes = 0;
      for (const PayloadPiece& piece : payload) bytes += piece.values.size_bytes();
      hold_->write(payload);
      v1::ChunkRequestHeader shared = header;
      *shared.mutable_shared() = hold_->place(bytes);
      request_ = encodeChunk(shared, {});
    }
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
    if (!result.ok() && hold_ != nullptr) client_.giveUp(ps_, hold_);
    if (const std::uint64_t bytes = header.shared_bytes(); result.ok() && bytes > 0) {
      if (hold_ != nullptr && bytes <= hold_->reply().size()) {
        payload = WirePayload::of(hold_->reply().first(bytes), hold_);
      } else {
        result = absl::InternalError(fmt::format("ps-{}: {} shared bytes", ps_, bytes));
      }
    }
    hold_.reset();
    request_.Clear();
    client_.events_.replied(
        {ps_, chunk_, attempt_, std::move(result), std::move(header), std::move(payload)});
    client_.finished(this);
  }

 private:
  ChunkClient& client_;
  const int ps_;
  const std::uint32_t chunk_;
  const std::uint64_t attempt_;
  const std::shared_ptr<grpc::GenericStub> stub_;
  std::shared_ptr<SharedSlots::Hold> hold_;  // null: the payload is in the message
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
};

// Asks a server to open memory.
class ChunkClient::Offer final : public grpc::ClientUnaryReactor {
 public:
  Offer(ChunkClient& client, int ps, std::string address, std::shared_ptr<SharedSlots> slots,
        const std::shared_ptr<grpc::Channel>& channel)
      : ps_(ps),
        address_(std::move(address)),
        slots_(std::move(slots)),
        client_(client),
        stub_(v1::ParameterServer::NewStub(channel)),
        request_(slots_->invitation()) {
    request_.set_protocol(kChunkProtocol);
    request_.set_worker(client_.sharing_.worker);
    addToken(context_, client_.access_.key);
    setDeadline(context_, client_.call_limit_);
    context_.set_wait_for_ready(true);
  }
  void start() {
    stub_->async()->ShareMemory(&context_, &request_, &reply_, this);
    StartCall();
  }
  void cancel() { context_.TryCancel(); }
  void OnDone(const grpc::Status& status) override {
    client_.offered(this, fromGrpc(status, fmt::format("ps-{}", ps_)));
  }

  const int ps_;
  const std::string address_;
  const std::shared_ptr<SharedSlots> slots_;

 private:
  ChunkClient& client_;
  const std::unique_ptr<v1::ParameterServer::Stub> stub_;
  v1::ShareMemoryRequest request_;
  v1::ShareMemoryReply reply_;
  grpc::ClientContext context_;
};

ChunkClient::ChunkClient(DataAccess access, Duration call_limit, Events events,
                         ChunkSharing sharing)
    : access_(std::move(access)),
      call_limit_(call_limit),
      events_(std::move(events)),
      sharing_(std::move(sharing)) {}

ChunkClient::~ChunkClient() {
  close();
}

void ChunkClient::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  for (Call* call : calls_) call->cancel();
  for (Offer* offer : offers_) offer->cancel();
  idle_.wait(lock, [&] { return under_way_ == 0; });
}

void ChunkClient::setAddress(int ps, const std::string& address, bool near) {
  const auto index = static_cast<std::size_t>(ps);
  {
    std::lock_guard lock(mutex_);
    if (servers_.size() <= index) servers_.resize(index + 1);
    Server& server = servers_[index];
    if (server.address == address) return;
    server = Server{};
    server.address = address;
    server.near = near;
    for (std::size_t i = 0; i < kConnections; ++i) {
      ChannelOptions options;
      options.own_connection = true;
      server.channels.push_back(
          access_.credentials == nullptr
              ? openChannel(address, options)
              : openSecureChannel(address, access_.credentials, kRuntimeServerName, options));
      server.stubs.push_back(std::make_shared<grpc::GenericStub>(server.channels.back()));
    }
  }
  if (near) offer(ps, address);
}

void ChunkClient::share(std::vector<std::vector<SharedSlots::Chunk>> chunks) {
  std::vector<std::pair<int, std::string>> changed;
  {
    std::lock_guard lock(mutex_);
    const std::size_t all = std::max(chunks.size(), sharing_.chunks.size());
    chunks.resize(all);
    sharing_.chunks.resize(all);
    for (std::size_t ps = 0; ps < all; ++ps) {
      if (chunks[ps] == sharing_.chunks[ps]) continue;
      sharing_.chunks[ps] = std::move(chunks[ps]);
      if (ps >= servers_.size()) continue;
      servers_[ps].slots = nullptr;
      if (servers_[ps].near) changed.emplace_back(static_cast<int>(ps), servers_[ps].address);
    }
  }
  for (const auto& [ps, address] : changed) offer(ps, address);
}

void ChunkClient::offer(int ps, const std::string& address) {
  const auto index = static_cast<std::size_t>(ps);
  std::vector<SharedSlots::Chunk> chunks;
  {
    std::lock_guard lock(mutex_);
    if (index < sharing_.chunks.size()) chunks = sharing_.chunks[index];
  }
  if (chunks.empty()) return;
  auto slots = SharedSlots::create(chunks);
  if (!slots.ok()) {
    TY_INFO("ps-{}: no shared memory: {}", ps, fromAbsl(slots.status().message()));
    return;
  }
  Offer* made = nullptr;
  {
    std::lock_guard lock(mutex_);
    const Server& server = servers_[index];
    if (closed_ || server.address != address) return;
    made = new Offer(*this, ps, address, *std::move(slots), server.channels.front());
    offers_.push_back(made);
    ++under_way_;
  }
  made->start();
}

void ChunkClient::offered(Offer* offer, const Status& status) {
  if (status.ok()) {
    TY_INFO("ps-{}: payloads pass through {} bytes of shared memory", offer->ps_,
            offer->slots_->bytes());
  } else if (!absl::IsCancelled(status)) {
    TY_INFO("no shared memory: {}", fromAbsl(status.message()));
  }
  {
    std::lock_guard lock(mutex_);
    Server& server = servers_[static_cast<std::size_t>(offer->ps_)];
    if (status.ok() && server.address == offer->address_) server.slots = offer->slots_;
    std::erase(offers_, offer);
  }
  delete offer;
  ended();
}

// The server may still read or write there.
void ChunkClient::giveUp(int ps, const std::shared_ptr<SharedSlots::Hold>& hold) {
  std::string address;
  {
    std::lock_guard lock(mutex_);
    Server& server = servers_[static_cast<std::size_t>(ps)];
    if (closed_ || server.slots == nullptr || !hold->isOf(*server.slots)) return;
    server.slots = nullptr;
    address = server.address;
  }
  offer(ps, address);
}

Status ChunkClient::send(int ps, std::uint64_t attempt, const v1::ChunkRequestHeader& header,
                         const std::vector<PayloadPiece>& payload) {
  Call* call = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto index = static_cast<std::size_t>(ps);
    if (closed_) return absl::CancelledError("closed");
    if (index >= servers_.size() || servers_[index].stubs.empty())
      return absl::UnavailableError(fmt::format("ps-{} has no address yet", ps));
    Server& server = servers_[index];
    auto stub = server.stubs[server.next++ % server.stubs.size()];
    auto hold = server.slots ? server.slots->take(header.chunk()) : nullptr;
    call = new Call(*this, ps, header.chunk(), attempt, std::move(stub), std::move(hold));
    calls_.push_back(call);
    ++under_way_;
  }
  call->start(header, payload);
  return absl::OkStatus();
}

void ChunkClient::cancelAll() {
  std::lock_guard lock(mutex_);
  for (Call* call : calls_) call->cancel();
}

void ChunkClient::finished(Call* call) {
  {
    std::lock_guard lock(mutex_);
    std::erase(calls_, call);
  }
  delete call;
  ended();
}

// A call holds its channel, which is to be destroyed by close()'s caller.
void ChunkClient::ended() {
  std::lock_guard lock(mutex_);
  if (--under_way_ == 0) idle_.notify_all();
}

}  // namespace trainyard::runtime::ps
