#include "runtime/ps/chunk_client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_link.h"
#include "runtime/ps/protocol.h"
#include "runtime/ps/wire.h"

namespace trainyard::runtime::ps {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(250);

}  // namespace

ChunkClient::ChunkClient(Options options, Events events)
    : options_(std::move(options)), events_(std::move(events)) {
  auto loop = lanes::EventLoop::start(kTick, [this] {
    for (const auto& [ps, link] : links_) link->tick(systemClock().now());
  });
  trouble_ = loop.status();
  if (loop.ok()) loop_ = *std::move(loop);
}

ChunkClient::~ChunkClient() {
  close();
}

void ChunkClient::close() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true) || loop_ == nullptr) return;
  }
  loop_->post([this] {
    for (const auto& [ps, link] : links_) link->end(absl::CancelledError("closed"));
    links_.clear();
  });
  loop_->stop();
}

void ChunkClient::setAddress(int ps, const std::string& address, bool near) {
  std::lock_guard lock(mutex_);
  if (servers_[ps].address != address) servers_[ps] = {address, near};
}

// Memory to offer, once and for all servers. Not under the mutex: gigabytes take seconds to be had,
// and whoever tells of a new membership must not wait for them. What is sent meanwhile is copied.
void ChunkClient::makeMemory(int ps) {
  {
    std::lock_guard lock(mutex_);
    const Server& server = servers_[ps];
    const bool wanted = server.near && !server.address.empty() && options_.memory != nullptr;
    if (!wanted || closed_ || std::exchange(memory_asked_, true)) return;
  }
  auto pool = options_.memory();
  if (!pool.ok()) {
    TY_INFO("no shared memory: {}", fromAbsl(pool.status().message()));
    return;
  }
  std::lock_guard lock(mutex_);
  payloads_ = std::make_shared<SharedPayloads>(*std::move(pool));
}

// With the mutex held: memory to be offered now.
std::optional<v1::ShareMemoryRequest> ChunkClient::offerOf(Server& server) {
  if (!server.near || server.offer != Server::Offer::kNone || payloads_ == nullptr)
    return std::nullopt;
  server.offer = Server::Offer::kMade;
  v1::ShareMemoryRequest offer;
  offer.set_protocol(kChunkProtocol);
  *offer.mutable_file() = payloads_->pool().file();
  offer.set_weights(options_.reads_weights);
  return offer;
}

void ChunkClient::opened(int ps, const Status& status) {
  std::lock_guard lock(mutex_);
  Server& server = servers_[ps];
  if (server.offer == Server::Offer::kNone) return;  // of a process before
  if (status.ok()) {
    server.offer = Server::Offer::kTaken;
  } else {
    server.offer =
        absl::IsFailedPrecondition(status) ? Server::Offer::kRefused : Server::Offer::kNone;
  }
}

ChunkLink& ChunkClient::linkOf(int ps) {
  std::unique_ptr<ChunkLink>& link = links_[ps];
  if (link == nullptr) {
    ChunkLink::Options options{
        ps, options_.access, options_.call_limit, options_.grid, options_.wire, {}};
    options.opened = [this, ps](const Status& status) { opened(ps, status); };
    link = std::make_unique<ChunkLink>(*loop_, std::move(options), events_);
  }
  return *link;
}

StatusOr<std::size_t> ChunkClient::send(int ps, std::uint64_t attempt,
                                        v1::ChunkRequestHeader header,
                                        const std::vector<PayloadPiece>& payload) {
  TY_RETURN_IF_ERROR(trouble_);
  makeMemory(ps);
  ChunkLink::Request request{header.chunk(), attempt, {}};
  ChunkLink::Target target;
  std::optional<v1::ShareMemoryRequest> offer;
  std::shared_ptr<SharedPayloads> shared;  // null: not with this server
  {
    std::lock_guard lock(mutex_);
    if (closed_) return absl::CancelledError("closed");
    Server& server = servers_[ps];
    if (server.address.empty())
      return absl::UnavailableError(fmt::format("{} has no address yet", serverName(ps)));
    target.address = server.address;
    offer = offerOf(server);
    if (server.offer == Server::Offer::kTaken) shared = payloads_;
  }
  target.server.index = static_cast<std::uint32_t>(ps);
  target.server.incarnation = header.server();
  header.set_wire_type(static_cast<std::uint32_t>(options_.wire));
  header.set_reads_shared(shared != nullptr && options_.reads_weights);
  std::optional<v1::SharedPlace> place;
  if (shared != nullptr && !payload.empty())
    place = shared->place(header.chunk(), attempt, payload);
  std::size_t bytes = 0;
  if (place) {
    bytes = place->bytes();
    request.shared = true;
    *header.mutable_shared() = *std::move(place);
  } else {
    request.body = wireBody(options_.wire, payload, bodies_);
    bytes = bytesOf(request.body);
  }
  request.header = header.SerializeAsString();
  post(ps, std::move(target), std::move(offer), std::move(request));
  return bytes;
}

void ChunkClient::post(int ps, ChunkLink::Target target,
                       std::optional<v1::ShareMemoryRequest> offer, ChunkLink::Request request) {
  auto task = std::make_shared<ChunkLink::Request>(std::move(request));
  loop_->post([this, ps, target = std::move(target), offer = std::move(offer), task] {
    ChunkLink& link = linkOf(ps);
    if (offer) link.offer(target, *offer);
    link.send(target, std::move(*task));
  });
}

StatusOr<std::size_t> ChunkClient::sendBytes(int ps, std::uint64_t attempt,
                                             v1::ChunkRequestHeader header, lanes::BodyPiece body) {
  TY_RETURN_IF_ERROR(trouble_);
  ChunkLink::Target target;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return absl::CancelledError("closed");
    target.address = servers_[ps].address;
  }
  if (target.address.empty())
    return absl::UnavailableError(fmt::format("{} has no address yet", serverName(ps)));
  target.server.index = static_cast<std::uint32_t>(ps);
  target.server.incarnation = header.server();
  header.set_wire_type(static_cast<std::uint32_t>(options_.wire));
  ChunkLink::Request request{header.chunk(), attempt, header.SerializeAsString()};
  const std::size_t bytes = body.bytes.size();
  if (bytes > 0) request.body.push_back(std::move(body));
  post(ps, std::move(target), std::nullopt, std::move(request));
  return bytes;
}

void ChunkClient::forget() {
  if (loop_ == nullptr) return;
  loop_->post([this] {
    for (const auto& [ps, link] : links_) link->forget();
  });
}

}  // namespace trainyard::runtime::ps
