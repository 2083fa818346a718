#include "cli/plan/plan_report.h"

#include <algorithm>

#include "base/core/units.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/catalog/memory.h"
#include "runtime/catalog/wire_type.h"
#include "runtime/optimizer/optimizer.h"

namespace trainyard::cli {
namespace {

std::string describeStrategy(const v1::PlacementSpec& spec, int num_ps) {
  std::string text = spec.strategy().empty() ? "Balanced" : spec.strategy();
  if (text == "FixedSize") {
    const v1::FixedSize& s = spec.fixed_size();
    text += fmt::format("({}, axis {})", s.has_shards() ? s.shards() : num_ps, s.axis());
  } else if (text == "MinMax") {
    const v1::MinMax& s = spec.min_max();
    text += fmt::format("({}, {} bytes, axis {})", s.has_max_shards() ? s.max_shards() : num_ps,
                        formatCount(s.has_min_bytes() ? s.min_bytes() : 256 * kKiB), s.axis());
  } else if (text == "MaxBytes") {
    const v1::MaxBytes& s = spec.max_bytes();
    text += fmt::format("({} bytes, axis {})", formatCount(s.bytes()), s.axis());
  }
  if (spec.rules_size() > 0) {
    text += fmt::format(", {} rule{}", spec.rules_size(), spec.rules_size() == 1 ? "" : "s");
  }
  return text;
}

// placeJob() and makeOptimizer() name fields from spec.training or spec on.
Status withFullPath(const Status& status) {
  const std::string message(status.message());
  const char* prefix = message.rfind("ps.", 0) == 0 ? "spec." : "spec.training.";
  return Status(status.code(), prefix + message);
}

// `wire_bytes`: of an element between a worker and a server.
void addServers(PlanReport& report, std::int64_t wire_bytes) {
  const runtime::Placement& placement = report.placement;
  report.ps.resize(placement.num_ps);
  std::int64_t total = 0;
  for (const std::int64_t bytes : placement.bytes_per_ps) total += bytes;
  for (int i = 0; i < placement.num_ps; ++i) {
    report.ps[i].held = placement.bytes_per_ps[i];
    report.ps[i].share = total == 0 ? 0 : double(placement.bytes_per_ps[i]) / double(total);
  }
  for (const runtime::Chunk& chunk : placement.chunks) {
    PsPlan& ps = report.ps[chunk.ps];
    const std::int64_t bytes = chunk.elements * 4;
    ps.in_per_step += report.workers * chunk.elements * wire_bytes;
    ps.out_per_step += report.workers * chunk.elements * wire_bytes;
    ps.weights += 2 * bytes;
    ps.slots += report.slots * bytes;
    ps.snapshot += (1 + report.slots) * bytes;
  }
}

// Each server's chunks have replicas on the next one, an only server's on the first worker. In a
// step, where each worker has pushed once, they are sent `times` gradients.
void addReplicas(PlanReport& report, int times) {
  const std::size_t servers = report.ps.size();
  if (servers == 1) {
    const std::int64_t bytes = report.ps[0].weights / 2;
    report.ps[0].replica_out_per_step = bytes;
    report.ps[0].replicas = bytes;
    report.worker_replicas = (2 + report.slots) * bytes;
    return;
  }
  for (std::size_t i = 0; i < servers; ++i) {
    PsPlan& keeper = report.ps[(i + 1) % servers];
    const std::int64_t bytes = report.ps[i].weights / 2;
    report.ps[i].replica_out_per_step = times * bytes;
    report.ps[i].replicas += bytes;
    keeper.replica_in_per_step = times * bytes;
    keeper.replicas += (2 + report.slots) * bytes;
  }
}

}  // namespace

StatusOr<PlanReport> makePlanReport(const v1::TrainingJob& job,
                                    const std::vector<runtime::Variable>& script) {
  const v1::JobSpec& spec = job.spec();
  if (spec.strategy() == "AllReduce") {
    return invalidInput("spec.strategy",
                        "AllReduce has no parameter servers to place variables on");
  }
  if (!spec.has_training()) {
    return invalidInput("spec.training",
                        "missing: plan knows the variables of built-in models only");
  }
  const bool is_program = runtime::isProgram(spec.training().model());
  if (is_program && script.empty()) {
    return invalidInput("spec.training.model.name",
                        "program: its variables are known when it has declared them; --program "
                        "runs it until it has, --declared takes what it declared in a run");
  }
  const bool is_script = is_program || spec.training().model().name() == "torchscript";
  if (is_script && script.empty()) {
    return invalidInput("spec.training.model.name",
                        "torchscript: the variables of its file are not known here");
  }
  PlanReport report;
  StatusOr<runtime::Placement> placement =
      is_script ? runtime::place(spec.training().placement(), script, spec.ps().replicas(),
                                 spec.ps().max_replicas())
                : runtime::placeJob(spec);
  if (!placement.ok()) return withFullPath(placement.status());
  report.placement = *std::move(placement);
  report.job = job.metadata().name();
  report.model = spec.training().model().name();
  report.strategy = describeStrategy(spec.training().placement(), report.placement.num_ps);
  report.workers = spec.worker().replicas() * std::max(1, spec.worker().processes_per_pod());
  const auto optimizer = runtime::makeOptimizer(spec.training().optimizer());
  if (!optimizer.ok()) return withFullPath(optimizer.status());
  report.slots = static_cast<int>((*optimizer)->slots().size());
  for (const runtime::Variable& variable : report.placement.variables) {
    if (!variable.trainable) continue;
    report.parameters += variable.elements();
    report.trainable_bytes += variable.bytes();
  }
  addServers(report, runtime::wireBytes(spec.training()));
  const std::string& mode = spec.training().update().mode();
  const bool sync = mode.empty() || mode == "Sync";
  // Without common steps each push goes to the replica, not their mean.
  if (runtime::keepsReplicas(spec)) addReplicas(report, sync ? 1 : report.workers);
  const auto& held = report.placement.bytes_per_ps;
  const auto [least, most] = std::minmax_element(held.begin(), held.end());
  if (*least > 0) report.max_to_min = double(*most) / double(*least);
  report.hot_share = report.placement.hotShare();
  report.slowdown = report.hot_share * report.placement.num_ps;
  report.tables = tablePlans(spec);
  report.worker_weights = report.trainable_bytes;
  report.worker_gradients = report.trainable_bytes;
  return report;
}

}  // namespace trainyard::cli
