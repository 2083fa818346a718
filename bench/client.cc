// The all-reduce of bench/all_reduce.cc as programs have it: through libtrainyard's C interface.
//
//   trainyard-bench-client RANKS BYTES ITERATIONS WARM_UP
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "bench/all_reduce_case.h"
#include "runtime/client/trainyard.h"

namespace trainyard::bench {
namespace {

Status check(ty_code code) {
  return code == TY_OK ? absl::OkStatus() : absl::InternalError(ty_error());
}

StatusOr<ty_group*> join(int rank, int ranks, int port) {
  ty_listener* listener = nullptr;
  TY_RETURN_IF_ERROR(check(ty_listen("127.0.0.1", 0, &listener)));
  const ty_meeting meeting = {sizeof(ty_meeting), rank, ranks, "127.0.0.1", port, "bench", 30};
  char** addresses = nullptr;
  TY_RETURN_IF_ERROR(check(ty_meet(&meeting, listener, &addresses)));
  const ty_group_options options = {
      sizeof(ty_group_options), rank, ranks, addresses, "bench", 1, 30, 60, 1, 0, TY_NO_TYPE, 0};
  ty_group* group = nullptr;
  TY_RETURN_IF_ERROR(check(ty_join(listener, &options, &group)));
  return group;
}

Status beRank(int rank, const AllReduceCase& what, int port) {
  TY_ASSIGN_OR_RETURN(ty_group* const group, join(rank, what.ranks, port));
  std::vector<float> x(what.bytes / sizeof(float));
  const ty_array array = {x.data(), static_cast<std::int64_t>(x.size()), TY_FLOAT32, nullptr};
  std::vector<double> milliseconds;
  double cpu_ms = 0;
  for (int i = -what.warm_up; i < what.iterations; ++i) {
    fill(x.data(), x.size(), rank);
    TY_RETURN_IF_ERROR(check(ty_barrier(group, nullptr)));
    const double cpu = cpuMillis();
    const TimePoint start = systemClock().now();
    TY_RETURN_IF_ERROR(check(ty_all_reduce(group, &array, 1, TY_SUM, 1, 1, nullptr)));
    const TimePoint end = systemClock().now();
    if (i >= 0) {
      milliseconds.push_back(toSeconds(end - start) * 1e3);
      cpu_ms += cpuMillis() - cpu;
    }
    if (!isSum(x.data(), x.size(), what.ranks)) {
      return absl::InternalError("a wrong sum");
    }
  }
  const ty_array times = {milliseconds.data(), static_cast<std::int64_t>(milliseconds.size()),
                          TY_FLOAT64, nullptr};
  const ty_array cpu = {&cpu_ms, 1, TY_FLOAT64, nullptr};
  TY_RETURN_IF_ERROR(check(ty_all_reduce(group, &times, 1, TY_MAX, 1, 1, nullptr)));
  TY_RETURN_IF_ERROR(check(ty_all_reduce(group, &cpu, 1, TY_SUM, 1, 1, nullptr)));
  if (rank == 0) std::cout << toJson(milliseconds, cpu_ms) << "\n";
  ty_leave(group);
  return absl::OkStatus();
}

StatusOr<int> freePort() {
  ty_listener* listener = nullptr;
  TY_RETURN_IF_ERROR(check(ty_listen("127.0.0.1", 0, &listener)));
  const int port = ty_listener_port(listener);
  ty_listener_free(listener);
  return port;
}

// 0, or 1 after a line of what went wrong.
int exitCodeOf(const Status& status) {
  if (status.ok()) return 0;
  std::cerr << "error: " << status.message() << "\n";
  return 1;
}

int run(const AllReduceCase& what) {
  const StatusOr<int> port = freePort();
  if (!port.ok()) return exitCodeOf(port.status());
  std::vector<pid_t> children;
  for (int rank = 1; rank < what.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) return exitCodeOf(beRank(rank, what, *port));
    children.push_back(pid);
  }
  int failed = exitCodeOf(beRank(0, what, *port));
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed |= status;
  }
  return failed != 0;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "expected: RANKS BYTES ITERATIONS WARM_UP\n";
    return 2;
  }
  return trainyard::bench::run(
      {std::stoi(argv[1]), std::stoull(argv[2]), std::stoi(argv[3]), std::stoi(argv[4])});
}
