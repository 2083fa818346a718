#include "runtime/ps/service.h"

#include <utility>

#include "base/core/failpoint.h"
#include "base/core/strings.h"
#include "base/rpc/token.h"
#include "runtime/ps/wire.h"

namespace trainyard::runtime::ps {

// One PushPull call; deletes itself when gRPC is done with it.
class PsService::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(PsService& service, CallId id, grpc::ByteBuffer* reply)
      : service_(service), id_(id), reply_(reply) {}
  CallId id() const { return id_; }
  void setWorker(std::uint32_t worker) { worker_ = worker; }
  std::uint32_t worker() const { return worker_; }

  void answer(const ChunkAnswer& answer) {
    std::vector<PayloadPiece> payload;
    if (answer.payload != nullptr) {
      payload.push_back({std::span<const float>(*answer.payload), answer.payload});
    }
    *reply_ = encodeChunk(answer.header, payload);
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
};

PsService::PsService(Shard& shard, v1::TaskId id, v1::Incarnation self, std::string token,
                     const Clock& clock, std::function<void()> progressed,
                     std::function<void()> urgent)
    : shard_(shard),
      id_(std::move(id)),
      self_(std::move(self)),
      token_(std::move(token)),
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
  const grpc::Status token = checkToken(*context, token_);
  if (!token.ok()) {
    if (take(call->id()) != nullptr) call->Finish(token);
    return call;
  }
  handle(call, *request);
  return call;
}

void PsService::handle(Call* call, const grpc::ByteBuffer& request) {
  v1::ChunkRequestHeader header;
  auto payload = decodeChunk(request, &header);
  if (!payload.ok()) {
    if (take(call->id()) != nullptr) {
      call->Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                std::string(fromAbsl(payload.status().message()))));
    }
    return;
  }
  // The request has arrived in full: its place in the caller's window is free.
  if (header.receipt()) call->StartSendInitialMetadata();
  call->setWorker(header.worker());
  traffic_.received(header.worker(), (*payload)->sizeBytes());
  hitFailpoint("ps.request", header.step());
  std::vector<ChunkAnswer> answers;
  shard_.onRequest(header, std::move(*payload), call->id(), clock_.now(), answers);
  if (shard_.takeUrgent()) urgent_();
  deliver(std::move(answers));
  update();
}

void PsService::update() {
  for (;;) {
    std::vector<ChunkAnswer> answers;
    if (!shard_.updateNext(answers)) return;
    deliver(std::move(answers));
  }
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
  for (ChunkAnswer& answer : answers) {
    Call* call = take(answer.call);
    if (call == nullptr) continue;  // cancelled
    if (answer.payload != nullptr)
      transmitted(call->worker(), answer.payload->size() * sizeof(float));
    ++requests_;
    call->answer(answer);
  }
  progressed_();
}

void PsService::transmitted(std::uint32_t worker, std::uint64_t bytes) {
  traffic_.transmitted(worker, bytes);
}

grpc::ServerUnaryReactor* PsService::GetShard(grpc::CallbackServerContext* context,
                                              const v1::GetShardRequest*, v1::ShardTable* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status token = checkToken(*context, token_);
  if (token.ok()) {
    *reply->mutable_id() = id_;
    *reply->mutable_incarnation() = self_;
    shard_.fillTable(*reply);
  }
  reactor->Finish(token);
  return reactor;
}

}  // namespace trainyard::runtime::ps
