#include "runtime/ps/service.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/failpoint.h"
#include "base/core/strings.h"
#include "base/process/memory.h"
#include "base/rpc/status_map.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "runtime/ps/protocol.h"
#include "runtime/ps/wire.h"

namespace trainyard::runtime::ps {
namespace {

// Where nothing can be learned of the machine.
constexpr std::int64_t kUnknownMemory = std::int64_t{4} << 30;

}  // namespace

ServerLimits serverLimits(const Placement& placement) {
  ServerLimits limits;
  limits.streams += 2 * static_cast<int>(placement.chunks.size());
  const StatusOr<AvailableMemory> memory = availableMemory();
  const std::int64_t most = memory.ok() ? memory->limit / 4 * 3 : kUnknownMemory;
  limits.bytes = std::max(limits.bytes, static_cast<std::size_t>(most));
  return limits;
}

// One PushPull call; deletes itself when gRPC is done with it.
class PsService::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(PsService& service, CallId id, grpc::ByteBuffer* reply)
      : service_(service), id_(id), reply_(reply) {}
  CallId id() const { return id_; }
  void setArrived(const v1::ChunkRequestHeader& header, TimePoint at) {
    worker_ = header.worker();
    of_replica_ = header.replica();
    arrived_ = at;
  }
  bool ofReplica() const { return of_replica_; }
  TimePoint arrived() const { return arrived_; }
  std::uint32_t worker() const { return worker_; }
  // Where the weights go; empty: into the message.
  void setPlace(std::shared_ptr<const SharedMemory> memory, std::span<std::byte> place) {
    memory_ = std::move(memory);
    place_ = place;
  }

  void answer(const ChunkAnswer& answer) {
    const auto bytes = answer.payload == nullptr
                           ? std::span<const std::byte>()
                           : std::as_bytes(std::span<const float>(*answer.payload));
    if (bytes.empty() || place_.size() < bytes.size()) {
      std::vector<PayloadPiece> payload;
      if (!bytes.empty()) payload.push_back({*answer.payload, answer.payload});
      *reply_ = encodeChunk(answer.header, payload);
    } else {
      std::memcpy(place_.data(), bytes.data(), bytes.size());
      v1::ChunkReplyHeader header = answer.header;
      header.set_shared_bytes(bytes.size());
      ++service_.shared_requests_;
      *reply_ = encodeChunk(header, {});
    }
    Finish(grpc::Status::OK);
  }
  void OnCancel() override {
    service_.shard_.onCancelled(id_);
    // Whoever takes the call out of the table finishes it.
    if (service_.take(id_) != nullptr) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  PsService& service_;
  const CallId id_;
  grpc::ByteBuffer* const reply_;
  std::uint32_t worker_ = 0;
  bool of_replica_ = false;
  std::shared_ptr<const SharedMemory> memory_;
  std::span<std::byte> place_;
  TimePoint arrived_{};
};

PsService::PsService(Shard& shard, std::string data_key, const Clock& clock,
                     std::function<void()> progressed, std::function<void()> urgent)
    : shard_(shard),
      data_key_(std::move(data_key)),
      clock_(clock),
      progressed_(std::move(progressed)),
      urgent_(std::move(urgent)),
      traffic_(v1::ROLE_WORKER) {}

grpc::ServerUnaryReactor* PsService::PushPull(grpc::CallbackServerContext* context,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* reply) {
  Call* call = nullptr;
  {
    std::lock_guard lock(mutex_);
    const CallId id = next_id_++;
    call = new Call(*this, id, reply);
    calls_.emplace(id, call);
  }
  const grpc::Status allowed = checkToken(*context, data_key_);
  if (!allowed.ok()) {
    if (take(call->id()) != nullptr) call->Finish(allowed);
    return call;
  }
  // gRPC would keep it until the answer, which may wait for the other workers: a step's gradients
  // of all of them. The object is not const.
  grpc::ByteBuffer taken;
  taken.Swap(const_cast<grpc::ByteBuffer*>(request));
  handle(call, std::move(taken));
  return call;
}

void PsService::handle(Call* call, grpc::ByteBuffer request) {
  v1::ChunkRequestHeader header;
  auto payload = decodeChunk(request, &header);
  request.Clear();  // the payload holds what is left of it
  std::string wrong;
  if (!payload.ok()) {
    wrong = std::string(fromAbsl(payload.status().message()));
  } else if (header.protocol() != kChunkProtocol) {
    wrong = fmt::format("the request speaks protocol {}, this server {}", header.protocol(),
                        kChunkProtocol);
  } else if (header.has_shared()) {
    wrong = takeShared(call, header.shared(), *payload);
  }
  if (!wrong.empty()) {
    if (take(call->id()) != nullptr)
      call->Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, wrong));
    return;
  }
  // The request has arrived in full: its place in the caller's window is free.
  if (header.receipt()) call->StartSendInitialMetadata();
  const TimePoint now = clock_.now();
  call->setArrived(header, now);
  (header.replica() ? replica_traffic_ : traffic_)
      .received(header.worker(), (*payload)->sizeBytes());
  hitFailpoint(header.replica() ? "ps.replica" : "ps.request", header.step());
  std::vector<ChunkAnswer> answers;
  shard_.onRequest(header, std::move(*payload), call->id(), now, answers);
  if (shard_.takeUrgent()) urgent_();
  forward();
  deliver(std::move(answers));
  update();
}

// Where the request's payload is and the answer's goes; what is wrong with that, or "".
std::string PsService::takeShared(Call* call, const v1::SharedPlace& place,
                                  std::unique_ptr<WirePayload>& payload) {
  const auto memory = shared_.find(place.memory());
  if (memory == nullptr) return "the shared memory is not known here";
  const auto gradient = partOf(*memory, place.request_offset(), place.request_bytes());
  const auto weights = partOf(*memory, place.reply_offset(), place.reply_bytes());
  if (gradient.size() != place.request_bytes() || weights.size() != place.reply_bytes()) {
    return "a place outside of the shared memory";
  }
  if (!gradient.empty()) payload = WirePayload::of(gradient, memory);
  call->setPlace(memory, weights);
  return "";
}

void PsService::update() {
  for (;;) {
    std::vector<ChunkAnswer> answers;
    if (!shard_.updateNext(answers)) return;
    forward();
    deliver(std::move(answers));
  }
}

void PsService::forward() {
  std::vector<ReplicaUpdate> updates = shard_.takeUpdates();
  if (!updates.empty()) replicate_(std::move(updates));
}

void PsService::replicated(const v1::ChunkRequestHeader& update) {
  hitFailpoint("ps.replicated", update.step());
  std::vector<ChunkAnswer> answers;
  shard_.onReplicated(update, answers);
  forward();
  deliver(std::move(answers));
}

PsService::Call* PsService::take(CallId id) {
  std::lock_guard lock(mutex_);
  const auto it = calls_.find(id);
  if (it == calls_.end()) return nullptr;
  Call* call = it->second;
  calls_.erase(it);
  return call;
}

void PsService::deliver(std::vector<ChunkAnswer> answers) {
  if (answers.empty()) return;
  const TimePoint now = clock_.now();
  for (ChunkAnswer& answer : answers) {
    Call* call = take(answer.call);
    if (call == nullptr) continue;  // cancelled
    if (call->ofReplica()) {
      call->answer(answer);
      continue;
    }
    hitFailpoint("ps.answer", answer.header.version());
    if (answer.payload != nullptr)
      transmitted(call->worker(), answer.payload->size() * sizeof(float));
    ++requests_;
    {
      std::lock_guard lock(times_mutex_);
      times_.observe(toSeconds(now - call->arrived()));
    }
    call->answer(answer);
  }
  progressed_();
}

void PsService::transmitted(std::uint32_t worker, std::uint64_t bytes) {
  traffic_.transmitted(worker, bytes);
}

grpc::ServerUnaryReactor* PsService::ShareMemory(grpc::CallbackServerContext* context,
                                                 const v1::ShareMemoryRequest* request,
                                                 v1::ShareMemoryReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status allowed = checkToken(*context, data_key_);
  if (!allowed.ok()) {
    reactor->Finish(allowed);
  } else if (request->protocol() != kChunkProtocol) {
    reactor->Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "another protocol"));
  } else {
    reactor->Finish(toGrpc(shared_.open(*request)));
  }
  return reactor;
}

}  // namespace trainyard::runtime::ps
