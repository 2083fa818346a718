#include "runtime/ps/chunk_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/protocol.h"
#include "runtime/tensor/reduce.h"

namespace trainyard::runtime::ps {

ChunkLink::ChunkLink(lanes::EventLoop& loop, Options options, const ChunkEvents& events)
    : loop_(loop), options_(std::move(options)), events_(events) {}

// Another process is called from now on: the former one has nothing to say any more.
void ChunkLink::aim(const Target& target) {
  const auto same = [&](const lanes::End& a, const lanes::End& b) {
    return a.index == b.index && a.incarnation.created() == b.incarnation.created() &&
           a.incarnation.start() == b.incarnation.start();
  };
  if (client_ != nullptr && target.address == target_.address &&
      same(target.server, target_.server))
    return;
  end(absl::UnavailableError(fmt::format("{} is another process now", serverName(options_.ps))));
  target_ = target;
  memory_.forget();
  const lanes::Intro intro{options_.access.self, target.server};
  client_ = std::make_unique<lanes::LaneClient>(loop_, target.address, options_.access.secrets,
                                                intro, *this);
}

void ChunkLink::send(const Target& target, Request request) {
  aim(target);
  const std::uint64_t number = ++number_;
  const std::uint64_t key = request.chunk / static_cast<std::uint32_t>(options_.grid);
  Pending pending{key, request.chunk, request.attempt, systemClock().now(), request.shared};
  const Status sent = client_->send(
      {number, lanes::Topic::kChunk, key, std::move(request.header), std::move(request.body)});
  if (!sent.ok()) return fail(std::move(pending), sent);
  pending_.emplace(number, std::move(pending));
}

void ChunkLink::offer(const Target& target, const v1::ShareMemoryRequest& memory) {
  aim(target);
  Pending pending;
  pending.sent = systemClock().now();
  pending.offer = true;
  const std::uint64_t number = ++number_;
  const Status sent =
      client_->send({number, lanes::Topic::kSharedMemory, 0, memory.SerializeAsString()});
  if (!sent.ok()) return fail(std::move(pending), sent);
  pending_.emplace(number, std::move(pending));
}

void ChunkLink::fail(Pending pending, const Status& why) {
  if (pending.offer) return options_.opened(why);
  if (pending.forgotten) return;
  ChunkReply reply{options_.ps, pending.chunk, pending.attempt,
                   annotate(why, serverName(options_.ps))};
  events_.replied(reply);
}

void ChunkLink::forget() {
  for (auto& [number, pending] : pending_) pending.forgotten = !pending.offer;
  for (std::size_t lane = 0; lane < arriving_.size(); ++lane) {
    if (!arriving_[lane].storing) continue;
    client_->skipBody(static_cast<int>(lane));
    const Arriving cut = std::exchange(arriving_[lane], {});
    events_.cut(*cut.storing, absl::CancelledError("the epoch has ended"));
  }
}

void ChunkLink::end(const Status& why) {
  client_.reset();
  onLost(std::nullopt, why);
}

void ChunkLink::tick(TimePoint now) {
  if (client_ == nullptr) return;
  client_->tick(now);
  for (const auto& [number, pending] : pending_) {
    if (now - pending.sent < options_.call_limit) continue;
    const std::optional<int> lane = client_->laneOf(pending.key);
    return client_->drop(lane, absl::DeadlineExceededError(fmt::format(
                                   "no answer for {:.0f} s", toSeconds(options_.call_limit))));
  }
}

// What is wrong leaves the request where it is: it is lost with the lane.
Status ChunkLink::onHeader(int lane, const lanes::FrameHead& head, std::string_view header,
                           std::vector<std::span<std::byte>>& body) {
  const auto found = pending_.find(head.number);
  if (found == pending_.end() || head.kind == lanes::FrameKind::kRequest)
    return absl::DataLossError("an answer to nothing that was asked");
  const bool weights = head.kind == lanes::FrameKind::kReply && !found->second.offer;
  if (weights) return onChunk(lane, found, header, head.body_bytes, body);
  if (head.body_bytes > 0) return absl::DataLossError("a body where there is none");
  if (head.kind == lanes::FrameKind::kReceipt) {
    const Pending& pending = found->second;
    if (!pending.forgotten && !pending.offer) events_.received(pending.chunk, pending.attempt);
    return absl::OkStatus();
  }
  Pending pending = std::move(found->second);
  pending_.erase(found);
  if (pending.offer) return onOffered(head, header);
  // Asked again without shared memory, in case that is what the server cannot take.
  if (pending.shared) options_.opened(absl::FailedPreconditionError(std::string(header)));
  fail(std::move(pending), absl::InvalidArgumentError(std::string(header)));
  return absl::OkStatus();
}

Status ChunkLink::onOffered(const lanes::FrameHead& head, std::string_view header) {
  if (head.kind == lanes::FrameKind::kRefusal) {
    options_.opened(absl::FailedPreconditionError(std::string(header)));
    return absl::OkStatus();
  }
  v1::ShareMemoryReply reply;
  if (!reply.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
    const Status why = absl::DataLossError("an answer about memory that cannot be read");
    options_.opened(why);
    return why;
  }
  const Status opened = reply.has_file() ? memory_.open(reply.file()) : absl::OkStatus();
  options_.opened(opened.ok() ? opened : absl::FailedPreconditionError(opened.message()));
  return absl::OkStatus();
}

Status ChunkLink::onChunk(int lane, Waiting found, std::string_view header, std::uint64_t bytes,
                          std::vector<std::span<std::byte>>& body) {
  const Pending& asked = found->second;
  ChunkReply reply{options_.ps, asked.chunk, asked.attempt, absl::OkStatus()};
  if (!reply.header.ParseFromArray(header.data(), static_cast<int>(header.size())))
    return absl::DataLossError("an answer that cannot be read");
  const bool shared = reply.header.has_shared();
  if (shared && bytes > 0)
    return absl::DataLossError(fmt::format("shared memory and {} other bytes", bytes));
  SharedPart weights;
  if (shared && !asked.forgotten) {
    StatusOr<SharedPart> part = memory_.part(reply.header.shared());
    if (!part.ok()) {
      // Asked again when the lane is there again, without shared memory.
      options_.opened(absl::FailedPreconditionError(part.status().message()));
      return absl::DataLossError(
          fmt::format("weights in shared memory: {}", fromAbsl(part.status().message())));
    }
    weights = *std::move(part);
  }
  reply.bytes = shared ? weights.bytes.size() : bytes;
  const std::size_t size = shared ? sizeof(float) : sizeOf(options_.wire);
  if (reply.bytes % size != 0)
    return absl::DataLossError(fmt::format("{} bytes of weights of {} each", reply.bytes, size));
  reply.elements = reply.bytes / size;
  Pending pending = std::move(found->second);
  pending_.erase(found);
  reply.lane = lane;
  if (!shared) reply.pace = client_->pace(lane);
  if (pending.forgotten) {
    client_->skipBody(lane);
    return absl::OkStatus();
  }
  if (shared) {
    copyShared(reply, weights);
    return absl::OkStatus();
  }
  std::vector<std::span<float>> targets = events_.replied(reply);
  if (targets.empty()) {
    client_->skipBody(lane);
  } else {
    store(lane, std::move(reply), std::move(targets), body);
  }
  return absl::OkStatus();
}

// 32 bits arrive where they belong; 16 are widened there when the last has come.
void ChunkLink::store(int lane, ChunkReply reply, std::vector<std::span<float>> targets,
                      std::vector<std::span<std::byte>>& body) {
  Arriving arriving;
  if (options_.wire == ElementType::kFloat32) {
    for (const std::span<float> target : targets) body.push_back(std::as_writable_bytes(target));
  } else {
    arriving.narrow = bodies_.take(reply.bytes);
    arriving.targets = std::move(targets);
    body.push_back({arriving.narrow.get(), reply.bytes});
  }
  arriving.storing = std::move(reply);
  if (arriving_.size() <= static_cast<std::size_t>(lane))
    arriving_.resize(static_cast<std::size_t>(lane) + 1);
  arriving_[static_cast<std::size_t>(lane)] = std::move(arriving);
}

void ChunkLink::copyShared(const ChunkReply& reply, const SharedPart& weights) const {
  const std::vector<std::span<float>> targets = events_.replied(reply);
  if (targets.empty()) return;
  std::size_t at = 0;
  for (const std::span<float> target : targets) {
    std::memcpy(target.data(), weights.bytes.data() + at, target.size_bytes());
    if (options_.wire != ElementType::kFloat32) roundFloats(options_.wire, target);
    at += target.size_bytes();
  }
  events_.stored(reply);
}

Status ChunkLink::onFrame(int lane) {
  if (static_cast<std::size_t>(lane) >= arriving_.size()) return absl::OkStatus();
  const Arriving arrived = std::exchange(arriving_[static_cast<std::size_t>(lane)], {});
  const std::byte* from = arrived.narrow.get();
  for (const std::span<float> target : arrived.targets) {
    widenFloats(options_.wire, std::as_writable_bytes(target).data(), from,
                static_cast<std::int64_t>(target.size()));
    from += target.size() * sizeOf(options_.wire);
  }
  if (arrived.storing) events_.stored(*arrived.storing);
  return absl::OkStatus();
}

void ChunkLink::onLost(std::optional<int> lane, const Status& why) {
  std::vector<Pending> lost;
  for (auto it = pending_.begin(); it != pending_.end();) {
    const bool here = !lane || client_ == nullptr || client_->laneOf(it->second.key) == lane;
    if (here) lost.push_back(std::move(it->second));
    it = here ? pending_.erase(it) : std::next(it);
  }
  for (std::size_t at = 0; at < arriving_.size(); ++at) {
    if ((lane && static_cast<std::size_t>(*lane) != at) || !arriving_[at].storing) continue;
    const Arriving cut = std::exchange(arriving_[at], {});
    events_.cut(*cut.storing, annotate(why, serverName(options_.ps)));
  }
  for (Pending& pending : lost) fail(std::move(pending), why);
}

}  // namespace trainyard::runtime::ps
