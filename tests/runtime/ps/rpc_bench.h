// A parameter server with a real shard on a port of its own.
#pragma once

#include <memory>

#include "base/rpc/task_server.h"
#include "base/security/job_keys.h"
#include "runtime/ps/service.h"
#include "runtime/ps/table_service.h"
#include "runtime/stream/tls_stream.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {

// Of one job; derived once, for it takes some signatures.
inline const RuntimeKeys& keys() {
  static const RuntimeKeys keys = deriveRuntimeKeys("the-token");
  return keys;
}

// `variables` in 5 chunks of `elements` each, all on ps-0; plain descent with rate 1 from zero. A
// server of another index keeps replicas of all of them.
inline Placement evenPlacement(int variables, std::int64_t elements = 8) {
  Placement p;
  p.num_ps = 1;
  for (int v = variables - 1; v >= 0; --v) {
    for (std::int64_t at = 0; at < 5 * elements; at += elements) {
      const auto id = static_cast<std::uint32_t>(p.chunks.size());
      p.chunks.push_back({id, 0, elements, {{v, at, at + elements}}});
    }
  }
  for (int v = 0; v < variables; ++v)
    p.variables.push_back(floats(fmt::format("v{}", v), 5 * elements));
  return p;
}

inline lanes::LaneSecrets secretsOf(const RuntimeKeys& keys, bool encrypted = false) {
  lanes::LaneSecrets secrets{keys.data};
  if (encrypted) secrets.tls = *stream::TlsContext::make(keys.control);
  return secrets;
}

inline lanes::End workerEnd(std::uint32_t index = 0) {
  return {v1::ROLE_WORKER, index, incarnation(1, 1)};
}

class PsServer {
 public:
  // `beside`: other services for known clients at the same port; they outlive the server.
  // `encrypted`: lanes too. `named`: which server callers mean, where that is not the shard's.
  // `wire`: of workers' bodies.
  PsServer(int variables, int ranks, const std::function<void(ShardConfig&)>& change = {},
           std::int64_t elements = 8, const RuntimeKeys& own = keys(),
           std::vector<grpc::Service*> beside = {}, bool encrypted = false, int lanes = 2,
           int named = -1, ElementType wire = ElementType::kFloat32,
           std::unique_ptr<RowShard> rows = nullptr)
      : wire(wire),
        placement(evenPlacement(variables, elements)),
        optimizer(make(descent())),
        shard(ShardBench::with(change), placement, *optimizer, LearningRate(descent()),
              std::move(rows)),
        service(options(secretsOf(own, encrypted), named < 0 ? shard.ps() : named, lanes), shard,
                systemClock(), [] {}),
        tables(shard, id(), incarnation(1, 1)) {
    std::vector<ChunkAnswer> none;
    shard.seal(1, none);
    if (shard.ps() != 0) {
      std::vector<std::uint32_t> all;
      for (const Chunk& chunk : placement.chunks) all.push_back(chunk.id);
      shard.replicate(all, false);
    }
    const auto n = static_cast<std::size_t>(elements);
    for (const Chunk& chunk : placement.chunks) shard.load(chunk.id, 0, std::vector<float>(n), {});
    shard.clearRows(0);
    EXPECT_TRUE(shard.open(1, planFor(0, ranks), false, true).ok());
    beside.push_back(&tables);
    EXPECT_TRUE(service.start().ok());
    auto started = TaskServer::start({.what = "ps-0", .identity = own.control}, beside,
                                     [this](UniqueFd socket) { service.take(std::move(socket)); });
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = std::move(*started);
    address = fmt::format("127.0.0.1:{}", server_->port());
  }

  int port() const { return server_->port(); }
  static v1::TaskId id() {
    v1::TaskId task;
    task.set_role(v1::ROLE_PS);
    return task;
  }
  // Workers of `near` have the server's address.
  v1::Membership membership(int near = 0) const {
    v1::Membership m;
    for (int w = 0; w < near; ++w) {
      v1::MemberTask* worker = m.add_tasks();
      worker->mutable_id()->set_role(v1::ROLE_WORKER);
      worker->mutable_id()->set_index(static_cast<std::uint32_t>(w));
      worker->set_ip("127.0.0.1");
    }
    v1::MemberTask* task = m.add_tasks();
    *task->mutable_id() = id();
    task->set_ip("127.0.0.1");
    task->set_port(static_cast<std::uint32_t>(server_->port()));
    return m;
  }
  v1::View activeView(int workers) const {
    v1::View v;
    *v.mutable_coordinator() = incarnation(1, 1);
    v.set_sequence(1);
    v.set_phase(v1::PHASE_ACTIVE);
    v.set_stop_at(-1);
    v.set_checkpoint_at(-1);
    v.mutable_epoch()->set_epoch(1);
    v.mutable_epoch()->set_step_samples(workers);
    v.mutable_epoch()->set_steps(100);
    v1::EpochMember* ps = v.mutable_epoch()->add_members();
    *ps->mutable_id() = id();
    *ps->mutable_incarnation() = incarnation(1, 1);
    for (int w = 0; w < workers; ++w) {
      v1::EpochMember* m = v.mutable_epoch()->add_members();
      m->mutable_id()->set_role(v1::ROLE_WORKER);
      m->mutable_id()->set_index(static_cast<std::uint32_t>(w));
      m->set_rank(static_cast<std::uint32_t>(w));
    }
    return v;
  }

  const ElementType wire;
  Placement placement;
  std::unique_ptr<Optimizer> optimizer;
  Shard shard;
  PsService service;
  TableService tables;
  std::string address;

 private:
  PsServiceOptions options(lanes::LaneSecrets secrets, int ps, int lanes) const {
    const lanes::End self{v1::ROLE_PS, static_cast<std::uint32_t>(ps), incarnation(1, 1)};
    PsServiceOptions made = serviceOptions(std::move(secrets), self, placement, lanes);
    made.wire = wire;
    return made;
  }

  std::unique_ptr<TaskServer> server_;
};

}  // namespace trainyard::runtime::ps
