// Push and pull of a whole model through a real parameter server, without the model's computation.
//
//   trainyard-bench-push-pull server --ps 0 --servers 1 --workers 1 --shape large
//   trainyard-bench-push-pull worker --index 0 --workers 1 --server 127.0.0.1:PORT ... --shape
//   large
//
// A server prints the port it listens at, then its CPU time in milliseconds for every line that it
// reads, and ends with its standard input. With --replicas the lines before these are "ps 1
// HOST:PORT", where the servers are: each keeps replicas of the one before it. A worker pushes
// constant gradients of all variables, waits until the sums have been applied and the new weights
// lie in its tensors, and checks every value after every step. It prints one JSON object.
// bench/bench.py starts them.
#include <sys/resource.h>

#include <iostream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/process/freed_memory.h"
#include "base/rpc/grpc_process.h"
#include "base/rpc/task_server.h"
#include "bench/ps_members.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/coordinator/epoch_plan.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/ps/ps_synchronizer.h"
#include "runtime/ps/replica_link.h"
#include "runtime/ps/service.h"
#include "runtime/ps/table_service.h"

namespace trainyard::runtime::ps {
namespace {

struct Flags {
  std::string shape = "large";
  int ps = 0;
  int servers = 1;
  int steps = 30;
  int warm_up = 5;
  bool replicas = false;
  BenchWorker self;
};

// 64 MiB in one variable, or in 4096 of 16 KiB; or what bench/compute.cc waits with.
std::vector<Variable> variablesOf(const std::string& shape, int servers) {
  if (shape == "barrier") return barrierVariables(servers);
  std::vector<Variable> variables;
  const bool large = shape == "large";
  const int count = large ? 1 : 4096;
  for (int i = 0; i < count; ++i) {
    Variable v;
    v.name = fmt::format("v{}", i);
    v.shape = large ? std::vector<std::int64_t>{4096, 4096} : std::vector<std::int64_t>{64, 64};
    variables.push_back(std::move(v));
  }
  return variables;
}

v1::OptimizerSpec descent() {
  v1::OptimizerSpec spec;
  spec.set_name("SGD");
  spec.set_learning_rate(1);
  return spec;
}

// Of all threads of this process, in user and kernel mode.
double cpuMillis() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto millis = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) * 1e-3;
  };
  return millis(usage.ru_utime) + millis(usage.ru_stime);
}

int fail(const Status& status) {
  std::cerr << "error: " << fmt::format("{}", std::string(status.message())) << "\n";
  return kExitFailure;
}

// An epoch of servers that keep replicas of each other's chunks; where they are is not said yet.
v1::EpochInfo epochOfServers(const Flags& flags) {
  v1::EpochInfo epoch;
  epoch.set_epoch(1);
  epoch.set_replicated(flags.replicas && flags.servers > 1);
  for (int ps = 0; ps < flags.servers; ++ps) {
    v1::EpochMember* member = epoch.add_members();
    member->mutable_id()->set_role(v1::ROLE_PS);
    member->mutable_id()->set_index(static_cast<std::uint32_t>(ps));
  }
  return epoch;
}

// Answers every line until the input ends.
void answerLines(v1::EpochInfo& epoch, ReplicaLink& link) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::vector<std::string_view> words = split(line, ' ');
    if (words.size() == 3 && words[0] == "ps") {
      v1::ChunkSource* source = epoch.add_sources();
      source->set_ps(parseNumber<std::uint32_t>(words[1]).value_or(0));
      *source->mutable_incarnation() = firstLife();
      source->set_address(std::string(words[2]));
      link.start(epoch);
    }
    std::cout << fmt::format("{:.3f}", cpuMillis()) << std::endl;
  }
}

// As a ps task does: lanes for data, and control beside them, which nobody calls here.
int serveShard(const Flags& flags, const Placement& placement, Shard& shard, v1::EpochInfo& epoch) {
  const RuntimeKeys keys = benchKeys();
  const DataAccess access = accessOf(keys, v1::ROLE_PS, flags.ps);
  PsService service(serviceOptions(access.secrets, access.self, placement), shard, systemClock(),
                    [] {});
  ReplicaLink link(
      {.access = access, .ps = static_cast<std::uint32_t>(flags.ps), .grid = placement.num_ps},
      systemClock(), [&](const v1::ChunkRequestHeader& update) { service.replicated(update); });
  service.setReplicator([&](std::vector<ReplicaUpdate> updates) { link.send(std::move(updates)); });
  if (Status started = service.start(); !started.ok()) return fail(started);
  v1::TaskId id;
  id.set_role(v1::ROLE_PS);
  id.set_index(static_cast<std::uint32_t>(flags.ps));
  TableService control(shard, id, firstLife());
  auto server = TaskServer::start({.what = "server", .identity = keys.control}, {&control},
                                  [&](UniqueFd socket) { service.take(std::move(socket)); });
  if (!server.ok()) return fail(server.status());
  std::cout << (*server)->port() << std::endl;
  answerLines(epoch, link);
  server->reset();
  service.close();
  link.close();
  return kExitOk;
}

int serve(const Flags& flags) {
  auto placement = place({}, variablesOf(flags.shape, flags.servers), flags.servers);
  if (!placement.ok()) return fail(placement.status());
  auto optimizer = makeOptimizer(descent());
  if (!optimizer.ok()) return fail(optimizer.status());
  ShardConfig config;
  config.job_uid = kBenchJob;
  config.self = firstLife();
  config.ps = flags.ps;
  Shard shard(config, *placement, **optimizer, LearningRate(descent()));
  std::vector<ChunkAnswer> none;
  shard.seal(1, none);
  v1::EpochInfo epoch = epochOfServers(flags);
  std::vector<int> ps_of_chunk;
  for (const Chunk& chunk : placement->chunks) ps_of_chunk.push_back(chunk.ps);
  std::vector<std::uint32_t> held = chunksToReplicate(ps_of_chunk, epoch, flags.ps);
  shard.replicate(held, epoch.replicated());
  const auto own = placement->chunksOf(flags.ps);
  held.insert(held.end(), own.begin(), own.end());
  for (const std::uint32_t id : held)
    shard.load(id, 0, std::vector<float>(placement->chunks[id].elements), {});
  const StepPlan plan = planOf(activeView(flags.self).epoch());
  if (Status opened = shard.open(1, plan, false, true); !opened.ok()) return fail(opened);
  return serveShard(flags, *placement, shard, epoch);
}

// Gradients of every step: element i of a variable is (i mod 8) + 1 at every worker, so that the
// weights after n steps, by plain descent with rate 1 and one sample each, are -n ((i mod 8) + 1).
// In the memory that the synchronizer wants them in, as a model computes them.
using Values = std::pmr::vector<float>;
std::shared_ptr<Values> gradientOf(std::int64_t elements, std::pmr::memory_resource* memory) {
  auto made = std::make_shared<Values>(static_cast<std::size_t>(elements), memory);
  Values& values = *made;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 8 + 1);
  return made;
}

bool weightsAreRight(const std::vector<std::vector<float>>& weights, std::int64_t version) {
  for (const auto& values : weights) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != -static_cast<float>(version) * static_cast<float>(i % 8 + 1)) return false;
    }
  }
  return true;
}

struct Taken {
  double wall_ms = 0;
  double cpu_ms = 0;
};

StatusOr<Taken> takeStep(PsSynchronizer& synchronizer,
                         const std::vector<std::shared_ptr<Values>>& gradients) {
  const double cpu = cpuMillis();
  const TimePoint start = systemClock().now();
  for (int v = static_cast<int>(gradients.size()) - 1; v >= 0; --v) {
    const auto& values = gradients[static_cast<std::size_t>(v)];
    synchronizer.push({v, std::span<const float>(*values), values});
  }
  TY_ASSIGN_OR_RETURN(const StepOutcome outcome, synchronizer.finish({1.0, 1}));
  if (!outcome.complete) return absl::InternalError("the step was not completed");
  return Taken{toSeconds(systemClock().now() - start) * 1e3, cpuMillis() - cpu};
}

Status work(const Flags& flags) {
  const int servers = static_cast<int>(flags.self.servers.size());
  const std::vector<Variable> variables = variablesOf(flags.shape, servers);
  TY_ASSIGN_OR_RETURN(const Placement placement, place({}, variables, servers));
  std::vector<std::vector<float>> weights;
  std::vector<std::span<float>> spans;
  for (const Variable& v : variables) weights.emplace_back(static_cast<std::size_t>(v.elements()));
  for (auto& w : weights) spans.emplace_back(w);
  TY_ASSIGN_OR_RETURN(const auto own, synchronizerOf(flags.self, placement, spans));
  PsSynchronizer& synchronizer = *own;
  std::vector<double> millis;
  double cpu_ms = 0;
  const auto memory = synchronizer.gradientMemory();
  std::vector<std::shared_ptr<Values>> gradients;
  for (int step = 0; step < flags.warm_up + flags.steps; ++step) {
    TY_ASSIGN_OR_RETURN(const Turn turn, synchronizer.next());
    if (turn.kind != Turn::Kind::kTrain) return absl::InternalError("expected a step to train");
    for (std::size_t v = gradients.size(); v < variables.size(); ++v)
      gradients.push_back(gradientOf(variables[v].elements(), memory.get()));
    TY_ASSIGN_OR_RETURN(const Taken taken, takeStep(synchronizer, gradients));
    if (step >= flags.warm_up) {
      millis.push_back(taken.wall_ms);
      cpu_ms += taken.cpu_ms;
    }
    if (!weightsAreRight(weights, step + 1)) {
      return absl::DataLossError(fmt::format("wrong weights after step {}", step));
    }
  }
  std::int64_t bytes = 0;
  for (const auto& w : weights) bytes += static_cast<std::int64_t>(w.size() * sizeof(float));
  std::cout << fmt::format(
      "{{\"bytes\": {}, \"chunks\": {}, \"cpu_ms\": {:.3f}, \"milliseconds\": [{:.3f}]}}\n", bytes,
      placement.chunks.size(), cpu_ms / flags.steps, fmt::join(millis, ", "));
  return absl::OkStatus();
}

int run(int argc, char** argv) {
  CLI::App app{"Push and pull of a model through a parameter server."};
  app.require_subcommand(1);
  Flags flags;
  CLI::App* server = app.add_subcommand("server", "a parameter server; ends with its input");
  CLI::App* worker = app.add_subcommand("worker", "pushes and pulls, prints the times");
  for (CLI::App* role : {server, worker}) {
    role->add_option("--shape", flags.shape, "large or small tensors, 64 MiB together, or barrier")
        ->check(CLI::IsMember({"large", "small", "barrier"}));
    role->add_option("--workers", flags.self.workers, "workers that push")
        ->check(CLI::PositiveNumber);
  }
  server->add_option("--ps", flags.ps, "index of this server");
  server->add_option("--servers", flags.servers, "servers in all")->check(CLI::PositiveNumber);
  server->add_flag("--replicas", flags.replicas, "each server keeps replicas of the one before");
  worker->add_option("--index", flags.self.index, "of this worker");
  worker->add_option("--server", flags.self.servers, "HOST:PORT of every server, in order")
      ->required();
  worker->add_option("--steps", flags.steps, "measured steps")->check(CLI::PositiveNumber);
  worker->add_option("--warm-up", flags.warm_up, "steps before them");
  worker->add_flag("--shared-memory", flags.self.shared_memory, "with servers on this machine");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (*server) return serve(flags);
  const Status status = work(flags);
  return status.ok() ? kExitOk : fail(status);
}

}  // namespace
}  // namespace trainyard::runtime::ps

int main(int argc, char** argv) {
  trainyard::keepFreedMemory();
  trainyard::prepareGrpc();
  return trainyard::runtime::ps::run(argc, argv);
}
