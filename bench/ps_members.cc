#include "bench/ps_members.h"

#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::runtime::ps {
namespace {

constexpr char kToken[] = "bench";
constexpr std::int64_t kForEver = std::int64_t{1} << 40;

// With the worker itself only where it is to know that servers are near.
StatusOr<v1::Membership> membershipOf(const BenchWorker& worker) {
  v1::Membership membership;
  for (const std::string& address : worker.servers) {
    const auto colon = address.rfind(':');
    const auto port = colon == std::string::npos
                          ? std::nullopt
                          : parseNumber<std::uint32_t>(address.substr(colon + 1));
    if (!port) return absl::InvalidArgumentError("--server: not HOST:PORT: " + address);
    v1::MemberTask* task = membership.add_tasks();
    task->mutable_id()->set_role(v1::ROLE_PS);
    task->mutable_id()->set_index(static_cast<std::uint32_t>(membership.tasks_size() - 1));
    task->set_ip(address.substr(0, colon));
    task->set_port(*port);
  }
  if (worker.shared_memory) {
    v1::MemberTask* self = membership.add_tasks();
    self->mutable_id()->set_role(v1::ROLE_WORKER);
    self->mutable_id()->set_index(static_cast<std::uint32_t>(worker.index));
    self->set_ip(membership.tasks(0).ip());
  }
  return membership;
}

}  // namespace

RuntimeKeys benchKeys() {
  return deriveRuntimeKeys(kToken);
}

v1::Incarnation firstLife() {
  v1::Incarnation incarnation;
  incarnation.set_created(1);
  incarnation.set_start(1);
  return incarnation;
}

DataAccess accessOf(const RuntimeKeys& keys, v1::Role role, int index) {
  return {{keys.data}, {role, static_cast<std::uint32_t>(index), firstLife()}};
}

v1::View activeView(const BenchWorker& worker) {
  v1::View view;
  *view.mutable_coordinator() = firstLife();
  view.set_sequence(1);
  view.set_phase(v1::PHASE_ACTIVE);
  view.set_stop_at(-1);
  view.set_checkpoint_at(-1);
  view.mutable_epoch()->set_epoch(1);
  view.mutable_epoch()->set_step_samples(worker.workers);
  view.mutable_epoch()->set_steps(kForEver);
  const auto add = [&](v1::Role role, int count) {
    for (int i = 0; i < count; ++i) {
      v1::EpochMember* member = view.mutable_epoch()->add_members();
      member->mutable_id()->set_role(role);
      member->mutable_id()->set_index(static_cast<std::uint32_t>(i));
      *member->mutable_incarnation() = firstLife();
      member->set_rank(static_cast<std::uint32_t>(i));
    }
  };
  add(v1::ROLE_PS, static_cast<int>(worker.servers.size()));
  add(v1::ROLE_WORKER, worker.workers);
  return view;
}

StatusOr<std::unique_ptr<PsSynchronizer>> synchronizerOf(const BenchWorker& worker,
                                                         const Placement& placement,
                                                         std::vector<std::span<float>> weights) {
  TY_ASSIGN_OR_RETURN(const v1::Membership membership, membershipOf(worker));
  PsSynchronizerOptions options;
  options.access = accessOf(benchKeys(), v1::ROLE_WORKER, worker.index);
  options.worker.job_uid = kBenchJob;
  options.worker.index = static_cast<std::uint32_t>(worker.index);
  options.worker.self = firstLife();
  options.worker.evaluates = false;
  for (const Chunk& chunk : placement.chunks) options.worker.ps_of_chunk.push_back(chunk.ps);
  auto synchronizer = std::make_unique<PsSynchronizer>(std::move(options), placement,
                                                       std::move(weights), systemClock(), [] {});
  synchronizer->setMembership(membership);
  synchronizer->onView(activeView(worker));
  return synchronizer;
}

std::vector<Variable> barrierVariables(int servers) {
  std::vector<Variable> variables;
  for (int i = 0; i < servers; ++i) {
    Variable v;
    v.name = fmt::format("barrier{}", i);
    v.shape = {1};
    variables.push_back(std::move(v));
  }
  return variables;
}

}  // namespace trainyard::runtime::ps
