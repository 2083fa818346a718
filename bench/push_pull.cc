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
#include "base/rpc/channel.h"
#include "base/rpc/grpc_process.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/coordinator/epoch_plan.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/ps/ps_synchronizer.h"
#include "runtime/ps/replica_link.h"
#include "runtime/ps/service.h"

namespace trainyard::runtime::ps {
namespace {

constexpr char kDataKey[] = "bench";
constexpr char kJob[] = "bench";
constexpr std::int64_t kForEver = std::int64_t{1} << 40;

struct Flags {
  std::string shape = "large";
  int ps = 0;
  int servers = 1;
  int workers = 1;
  int index = 0;
  int steps = 30;
  int warm_up = 5;
  bool shared_memory = false;
  bool replicas = false;
  std::vector<std::string> addresses;
};

// 64 MiB in one variable, or in 4096 of 16 KiB.
std::vector<Variable> variablesOf(const std::string& shape) {
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

v1::Incarnation firstLife() {
  v1::Incarnation incarnation;
  incarnation.set_created(1);
  incarnation.set_start(1);
  return incarnation;
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

// The view in which all take part from step 0 on.
v1::View activeView(const Flags& flags) {
  v1::View view;
  *view.mutable_coordinator() = firstLife();
  view.set_sequence(1);
  view.set_phase(v1::PHASE_ACTIVE);
  view.set_stop_at(-1);
  view.set_checkpoint_at(-1);
  view.mutable_epoch()->set_epoch(1);
  view.mutable_epoch()->set_step_samples(flags.workers);
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
  add(v1::ROLE_PS, static_cast<int>(flags.addresses.size()));
  add(v1::ROLE_WORKER, flags.workers);
  return view;
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

int serve(const Flags& flags) {
  auto placement = place({}, variablesOf(flags.shape), flags.servers);
  if (!placement.ok()) return fail(placement.status());
  auto optimizer = makeOptimizer(descent());
  if (!optimizer.ok()) return fail(optimizer.status());
  ShardConfig config;
  config.job_uid = kJob;
  config.self = firstLife();
  config.ps = flags.ps;
  Shard shard(config, *placement, **optimizer, LearningRate(descent()));
  std::vector<ChunkAnswer> none;
  shard.seal(1, none);
  v1::EpochInfo epoch = epochOfServers(flags);
  std::vector<int> ps_of_chunk;
  for (const Chunk& chunk : placement->chunks) ps_of_chunk.push_back(chunk.ps);
  std::vector<std::uint32_t> held = chunksToReplicate(ps_of_chunk, epoch, flags.ps);
  shard.replicate(held, replicaTarget(epoch, flags.ps) >= 0);
  const auto own = placement->chunksOf(flags.ps);
  held.insert(held.end(), own.begin(), own.end());
  for (const std::uint32_t id : held)
    shard.load(id, 0, std::vector<float>(placement->chunks[id].elements), {});
  const StepPlan plan = planOf(activeView(flags).epoch());
  if (Status opened = shard.open(1, plan, false, true); !opened.ok()) return fail(opened);
  PsService service(shard, kDataKey, systemClock(), [] {});
  ReplicaLink link({.access = {kDataKey}, .ps = static_cast<std::uint32_t>(flags.ps)},
                   systemClock(),
                   [&](const v1::ChunkRequestHeader& update) { service.replicated(update); });
  service.setReplicator([&](std::vector<ReplicaUpdate> updates) { link.send(std::move(updates)); });
  grpc::ServerBuilder builder;
  applyServerDefaults(builder, serverLimits(*placement));
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  auto server = startServer(builder, "server", "127.0.0.1:0", port);
  if (!server.ok()) return fail(server.status());
  std::cout << port << std::endl;
  answerLines(epoch, link);
  link.close();
  (*server)->Shutdown(deadlineAfter(Duration(0)));
  return kExitOk;
}

// With the worker itself only where it is to know that servers are near.
StatusOr<v1::Membership> membershipOf(const Flags& flags) {
  v1::Membership membership;
  for (const std::string& address : flags.addresses) {
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
  if (flags.shared_memory) {
    v1::MemberTask* self = membership.add_tasks();
    self->mutable_id()->set_role(v1::ROLE_WORKER);
    self->mutable_id()->set_index(static_cast<std::uint32_t>(flags.index));
    self->set_ip(membership.tasks(0).ip());
  }
  return membership;
}

// Gradients of every step: element i of a variable is (i mod 8) + 1 at every worker, so that the
// weights after n steps, by plain descent with rate 1 and one sample each, are -n ((i mod 8) + 1).
std::vector<float> gradientOf(std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 8 + 1);
  return values;
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
                         const std::vector<std::shared_ptr<std::vector<float>>>& gradients) {
  TY_ASSIGN_OR_RETURN(const Turn turn, synchronizer.next());
  if (turn.kind != Turn::Kind::kTrain) return absl::InternalError("expected a step to train");
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
  const std::vector<Variable> variables = variablesOf(flags.shape);
  TY_ASSIGN_OR_RETURN(const Placement placement,
                      place({}, variables, static_cast<int>(flags.addresses.size())));
  TY_ASSIGN_OR_RETURN(const v1::Membership membership, membershipOf(flags));
  std::vector<std::vector<float>> weights;
  std::vector<std::span<float>> spans;
  std::vector<std::shared_ptr<std::vector<float>>> gradients;
  for (const Variable& v : variables) {
    weights.emplace_back(static_cast<std::size_t>(v.elements()));
    gradients.push_back(std::make_shared<std::vector<float>>(gradientOf(v.elements())));
  }
  for (auto& w : weights) spans.emplace_back(w);
  PsSynchronizerOptions options;
  options.access = {kDataKey};
  options.worker.job_uid = kJob;
  options.worker.index = static_cast<std::uint32_t>(flags.index);
  options.worker.self = firstLife();
  options.worker.evaluates = false;
  for (const Chunk& chunk : placement.chunks) options.worker.ps_of_chunk.push_back(chunk.ps);
  PsSynchronizer synchronizer(options, placement, spans, systemClock(), [] {});
  synchronizer.setMembership(membership);
  synchronizer.onView(activeView(flags));
  std::vector<double> millis;
  double cpu_ms = 0;
  for (int step = 0; step < flags.warm_up + flags.steps; ++step) {
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
    role->add_option("--shape", flags.shape, "large or small tensors, 64 MiB together")
        ->check(CLI::IsMember({"large", "small"}));
    role->add_option("--workers", flags.workers, "workers that push")->check(CLI::PositiveNumber);
  }
  server->add_option("--ps", flags.ps, "index of this server");
  server->add_option("--servers", flags.servers, "servers in all")->check(CLI::PositiveNumber);
  server->add_flag("--replicas", flags.replicas, "each server keeps replicas of the one before");
  worker->add_option("--index", flags.index, "of this worker");
  worker->add_option("--server", flags.addresses, "HOST:PORT of every server, in order")
      ->required();
  worker->add_option("--steps", flags.steps, "measured steps")->check(CLI::PositiveNumber);
  worker->add_option("--warm-up", flags.warm_up, "steps before them");
  worker->add_flag("--shared-memory", flags.shared_memory, "with servers on this machine");
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
