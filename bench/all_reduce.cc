// All-reduce (float32, sum, in place) among processes of this machine, without training.
//
//   trainyard-bench-all-reduce --over tcp|tls|shared|staged|threads|copy --ranks 2 --bytes 4194304
//
// tcp: messages over loopback; tls: the same, encrypted; shared: arrays in shared memory; staged:
// arrays outside it, through its window; threads: messages between threads of one process; copy: no
// all-reduce, every rank copies as much (what the memory can do). Every iteration begins with a
// barrier, and its result is checked outside the measured time. Ranks wait as those of a program's
// group do; with a core for every rank they are bound to theirs. Prints one JSON object;
// bench/bench.py starts it.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <optional>
#include <thread>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/process/cpus.h"
#include "base/process/pipe.h"
#include "bench/all_reduce_case.h"
#include "runtime/collective/message_collective.h"
#include "runtime/collective/shared_collective.h"
#include "runtime/stream/tls_stream.h"
#include "runtime/transport/in_process.h"
#include "runtime/transport/tcp_transport.h"

namespace trainyard::runtime::collective {
namespace {

struct Flags {
  bench::AllReduceCase what;
  std::string over = "tcp";
  std::string algorithm;
};

// As a program's group counts them.
double cores() {
  return availableCpus(usableCores()).cores;
}

bool hasCores(const Flags& flags) {
  return flags.what.ranks <= cores();
}

transport::Spin spinOf(const Flags& flags) {
  return transport::spinAmong(static_cast<std::size_t>(flags.what.ranks), cores());
}

struct Measured {
  std::vector<double> milliseconds;
  double cpu_ms = 0;
};

// `reduce` on `x`, with the checks around it.
template <typename Reduce>
StatusOr<Measured> measure(const Flags& flags, int rank, std::span<float> x, Collective& collective,
                           const Reduce& reduce) {
  Measured measured;
  for (int i = -flags.what.warm_up; i < flags.what.iterations; ++i) {
    bench::fill(x.data(), x.size(), rank);
    TY_RETURN_IF_ERROR(collective.barrier());
    const double cpu = bench::cpuMillis();
    const TimePoint start = systemClock().now();
    TY_RETURN_IF_ERROR(reduce(x));
    const TimePoint end = systemClock().now();
    if (i >= 0) {
      measured.milliseconds.push_back(toSeconds(end - start) * 1e3);
      measured.cpu_ms += bench::cpuMillis() - cpu;
    }
    if (flags.over != "copy" && !bench::isSum(x.data(), x.size(), flags.what.ranks)) {
      return absl::InternalError("a wrong sum");
    }
  }
  return measured;
}

CollectiveOptions optionsOf(const Flags& flags) {
  CollectiveOptions options;
  if (flags.algorithm == "ring") options.algorithm = transport::Algorithm::kRing;
  if (flags.algorithm == "halving") options.algorithm = transport::Algorithm::kHalvingDoubling;
  if (flags.algorithm == "doubling") options.algorithm = transport::Algorithm::kDoubling;
  if (flags.algorithm == "direct") options.algorithm = transport::Algorithm::kDirect;
  return options;
}

StatusOr<Measured> measureMessages(const Flags& flags, std::unique_ptr<transport::Transport> over) {
  const int rank = over->rank();
  const auto collective = makeMessageCollective(std::move(over), optionsOf(flags));
  std::vector<float> x(flags.what.bytes / sizeof(float));
  return measure(flags, rank, x, *collective, [&](std::span<float> array) {
    return collective->allReduce(arrayOf(array), Reduction::kSum);
  });
}

StatusOr<Measured> measureShared(const Flags& flags, std::unique_ptr<transport::Transport> tcp) {
  const int rank = tcp->rank();
  transport::ArenaOptions arena_options;
  arena_options.bytes = flags.what.bytes + (std::size_t{8} << 20);
  arena_options.spin = spinOf(flags);
  TY_ASSIGN_OR_RETURN(std::shared_ptr<transport::SharedArena> arena,
                      transport::SharedArena::create(*tcp, arena_options));
  TY_ASSIGN_OR_RETURN(const auto collective, makeSharedCollective(std::move(tcp), arena, {}));
  std::vector<float> outside(flags.over == "shared" ? 0 : flags.what.bytes / sizeof(float));
  std::span<float> x(outside);
  if (flags.over == "shared") {
    TY_ASSIGN_OR_RETURN(const std::span<std::byte> memory, arena->allocate(flags.what.bytes));
    x = {reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float)};
  }
  std::vector<float> copy(flags.over == "copy" ? x.size() : 0);
  return measure(flags, rank, x, *collective, [&](std::span<float> array) -> Status {
    if (flags.over != "copy") return collective->allReduce(arrayOf(array), Reduction::kSum);
    std::memcpy(copy.data(), array.data(), array.size_bytes());
    return absl::OkStatus();
  });
}

StatusOr<Measured> beRank(const Flags& flags, int rank, const transport::TcpListener& listener,
                          transport::MeshOptions mesh_options) {
  if (hasCores(flags)) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(static_cast<std::size_t>(rank), &core);
    ::sched_setaffinity(0, sizeof(core), &core);
  }
  mesh_options.rank = rank;
  TY_ASSIGN_OR_RETURN(transport::TcpMesh mesh, connectMesh(listener, mesh_options));
  transport::TcpOptions options;
  options.spin = spinOf(flags);
  auto tcp = std::make_unique<transport::TcpTransport>(std::move(mesh), options);
  return flags.over == "tcp" || flags.over == "tls" ? measureMessages(flags, std::move(tcp))
                                                    : measureShared(flags, std::move(tcp));
}

// By iteration the rank that took longest; the CPU time of all.
Measured slowest(const std::vector<Measured>& ranks) {
  Measured all = ranks[0];
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    all.cpu_ms += ranks[r].cpu_ms;
    for (std::size_t i = 0; i < all.milliseconds.size(); ++i) {
      all.milliseconds[i] = std::max(all.milliseconds[i], ranks[r].milliseconds[i]);
    }
  }
  return all;
}

StatusOr<std::optional<Measured>> runThreads(const Flags& flags) {
  const auto group = transport::InProcessGroup::create(flags.what.ranks);
  std::vector<StatusOr<Measured>> results(static_cast<std::size_t>(flags.what.ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < flags.what.ranks; ++r) {
    threads.emplace_back(
        [&, r] { results[static_cast<std::size_t>(r)] = measureMessages(flags, group->join(r)); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Measured> ranks;
  for (auto& result : results) {
    TY_RETURN_IF_ERROR(result.status());
    ranks.push_back(std::move(*result));
  }
  return std::optional(slowest(ranks));
}

// What a child found, through its pipe: the CPU time, then the iterations' times.
Status report(const StatusOr<Measured>& measured, int fd) {
  TY_RETURN_IF_ERROR(measured.status());
  std::vector<double> numbers{measured->cpu_ms};
  numbers.insert(numbers.end(), measured->milliseconds.begin(), measured->milliseconds.end());
  const auto bytes = static_cast<ssize_t>(numbers.size() * sizeof(double));
  return ::write(fd, numbers.data(), static_cast<std::size_t>(bytes)) == bytes
             ? absl::OkStatus()
             : absl::InternalError("the parent does not listen");
}

// Nothing in a child: what it measured has gone to its parent.
StatusOr<std::optional<Measured>> runProcesses(const Flags& flags) {
  std::vector<transport::TcpListener> listeners;
  transport::MeshOptions mesh;
  mesh.token = "bench";
  if (flags.over == "tls") {
    TY_ASSIGN_OR_RETURN(mesh.encryption,
                        stream::TlsContext::make(deriveRuntimeKeys(mesh.token).control));
  }
  for (int r = 0; r < flags.what.ranks; ++r) {
    TY_ASSIGN_OR_RETURN(auto listener, transport::TcpListener::listen("127.0.0.1", 0));
    mesh.addresses.push_back({"127.0.0.1", listener.port()});
    listeners.push_back(std::move(listener));
  }
  std::vector<Pipe> pipes;
  std::vector<pid_t> children;
  for (int r = 0; r < flags.what.ranks; ++r) {
    TY_ASSIGN_OR_RETURN(Pipe pipe, makePipe());
    pipes.push_back(std::move(pipe));
    const pid_t pid = ::fork();
    if (pid == 0) {
      TY_RETURN_IF_ERROR(report(beRank(flags, r, listeners[static_cast<std::size_t>(r)], mesh),
                                pipes.back().write_end.get()));
      return std::nullopt;
    }
    children.push_back(pid);
    pipes.back().write_end.reset();
  }
  std::vector<Measured> ranks;
  for (const Pipe& pipe : pipes) {
    std::vector<double> numbers(static_cast<std::size_t>(flags.what.iterations) + 1);
    auto* at = reinterpret_cast<char*>(numbers.data());
    std::size_t left = numbers.size() * sizeof(double);
    while (left > 0) {
      const ssize_t n = ::read(pipe.read_end.get(), at, left);
      if (n <= 0) break;
      at += n;
      left -= static_cast<std::size_t>(n);
    }
    if (left == 0) ranks.push_back({{numbers.begin() + 1, numbers.end()}, numbers[0]});
  }
  for (const pid_t pid : children) ::waitpid(pid, nullptr, 0);
  if (ranks.size() != children.size()) return absl::InternalError("a rank failed");
  return std::optional(slowest(ranks));
}

int run(const Flags& flags) {
  const auto measured = flags.over == "threads" ? runThreads(flags) : runProcesses(flags);
  if (!measured.ok()) {
    std::cerr << fmt::format("error: {}\n", std::string(measured.status().message()));
    return kExitFailure;
  }
  if (!*measured) return kExitOk;
  std::cout << bench::toJson((*measured)->milliseconds, (*measured)->cpu_ms) << "\n";
  return kExitOk;
}

}  // namespace
}  // namespace trainyard::runtime::collective

int main(int argc, char** argv) {
  trainyard::runtime::collective::Flags flags;
  CLI::App app("all-reduce among processes of this machine");
  app.add_option("--over", flags.over)
      ->check(CLI::IsMember({"tcp", "tls", "shared", "staged", "threads", "copy"}));
  app.add_option("--ranks", flags.what.ranks)->check(CLI::Range(1, 64));
  app.add_option("--bytes", flags.what.bytes)->check(CLI::Range(4, 1 << 30));
  app.add_option("--iterations", flags.what.iterations)->check(CLI::Range(1, 100000));
  app.add_option("--warm-up", flags.what.warm_up)->check(CLI::Range(0, 1000));
  app.add_option("--algorithm", flags.algorithm)
      ->check(CLI::IsMember({"ring", "halving", "doubling", "direct"}));
  CLI11_PARSE(app, argc, argv);
  return trainyard::runtime::collective::run(flags);
}
