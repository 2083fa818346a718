#include "runtime/ps/replica_link.h"

#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/ps/protocol.h"

namespace trainyard::runtime::ps {
namespace {

std::string_view hostOf(std::string_view address) {
  return address.substr(0, address.rfind(':'));
}

}  // namespace

ReplicaLink::ReplicaLink(Options options, const Clock& clock, Replicated replicated)
    : options_(std::move(options)),
      clock_(clock),
      replicated_(std::move(replicated)),
      client_({options_.access, options_.call_limit, options_.grid, options_.memory, false},
              {[](std::uint32_t, std::uint64_t) {},
               [this](const ChunkClient::Reply& reply) {
                 onReply(reply);
                 return std::vector<std::span<float>>();
               },
               [](const ChunkClient::Reply&) {}, [](const ChunkClient::Reply&, const Status&) {}}) {
}

ReplicaLink::~ReplicaLink() {
  close();
}

void ReplicaLink::close() {
  client_.close();
}

void ReplicaLink::start(const v1::EpochInfo& epoch) {
  std::lock_guard lock(mutex_);
  epoch_ = epoch.epoch();
  targets_ = ReplicaTargets(epoch);
  incarnations_ = sourcesOf(epoch);
  pending_.clear();
  std::string_view own_host;
  for (const v1::ChunkSource& source : epoch.sources()) {
    if (source.ps() == options_.ps) own_host = hostOf(source.address());
  }
  for (const v1::ChunkSource& source : epoch.sources()) {
    if (source.ps() == options_.ps) continue;
    const auto target = static_cast<int>(source.ps());
    client_.setAddress(target, source.address(), hostOf(source.address()) == own_host);
  }
}

// With the mutex held.
int ReplicaLink::targetOf(const ReplicaUpdate& update) const {
  return targets_.of(static_cast<int>(options_.ps), update.header.chunk());
}

// With the mutex held.
ReplicaLink::Ready ReplicaLink::begin(Pending& pending) {
  pending.under_way = true;
  pending.attempt = ++attempts_;
  return {pending.update, pending.attempt, targetOf(pending.update)};
}

void ReplicaLink::send(std::vector<ReplicaUpdate> updates) {
  std::vector<Ready> ready;
  {
    std::lock_guard lock(mutex_);
    for (ReplicaUpdate& update : updates) {
      const auto target = incarnations_.find(targetOf(update));
      if (target == incarnations_.end() || update.header.epoch() != epoch_) continue;
      update.header.set_protocol(kChunkProtocol);
      *update.header.mutable_server() = target->second;
      update.header.set_holder(options_.ps);
      Pending& pending = pending_[update.header.chunk()];
      pending = {std::move(update)};
      ready.push_back(begin(pending));
    }
  }
  transmit(ready);
}

void ReplicaLink::tick() {
  std::vector<Ready> ready;
  {
    std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    for (auto& [chunk, pending] : pending_) {
      if (!pending.under_way && pending.not_before <= now) ready.push_back(begin(pending));
    }
  }
  transmit(ready);
}

void ReplicaLink::transmit(const std::vector<Ready>& ready) {
  for (const auto& [update, attempt, target] : ready) {
    const auto sent =
        update.mean == nullptr
            ? client_.sendBytes(target, attempt, update.header,
                                {update.rows.span(), update.rows.memory})
            : client_.send(target, attempt, update.header, {{*update.mean, update.mean}});
    if (!sent.ok()) onReply({target, update.header.chunk(), attempt, sent.status()});
  }
}

// It is repeated all the same: the next epoch, which compares both copies, may be on its way.
void ReplicaLink::tellRefused(const ReplicaUpdate& update, const v1::ChunkReplyHeader& header,
                              TimePoint now) {
  if (now < tell_not_before_) return;
  tell_not_before_ = now + options_.tell_delay;
  TY_WARN("step {} of chunk {} waits: {} refuses it for its replica: {}", update.header.step(),
          update.header.chunk(), serverName(targetOf(update)), header.message());
}

void ReplicaLink::onReply(const ChunkClient::Reply& reply) {
  ReplicaUpdate done;
  {
    std::lock_guard lock(mutex_);
    const auto found = pending_.find(reply.chunk);
    if (found == pending_.end() || found->second.attempt != reply.attempt) return;
    if (!reply.status.ok() || reply.header.code() != v1::CHUNK_OK) {
      // It may not have seen the epoch yet, or is starting again: then this epoch ends.
      const TimePoint now = clock_.now();
      found->second.under_way = false;
      found->second.not_before = now + options_.retry_delay;
      if (reply.status.ok() && reply.header.code() != v1::CHUNK_WRONG_EPOCH)
        tellRefused(found->second.update, reply.header, now);
      return;
    }
    done = std::move(found->second.update);
    pending_.erase(found);
  }
  replicated_(done.header);
}

}  // namespace trainyard::runtime::ps
