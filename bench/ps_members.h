// Members of a job that bench programs make up themselves, without a coordinator: parameter servers
// at addresses that are known, and workers that take part from step 0 on.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "base/security/job_keys.h"
#include "runtime/catalog/variable.h"
#include "runtime/ps/ps_synchronizer.h"

namespace trainyard::runtime::ps {

inline constexpr char kBenchJob[] = "bench";

RuntimeKeys benchKeys();
v1::Incarnation firstLife();
DataAccess accessOf(const RuntimeKeys& keys, v1::Role role, int index);

struct BenchWorker {
  int index = 0;
  int workers = 1;
  std::vector<std::string> servers;  // HOST:PORT, in order
  bool shared_memory = false;        // with those servers, which are on this machine
};
// The view in which all take part from step 0 on.
v1::View activeView(const BenchWorker& worker);
// That worker's side, active. `weights` as of PsSynchronizer; `placement` must outlive it.
// INVALID_ARGUMENT: an address that is none.
StatusOr<std::unique_ptr<PsSynchronizer>> synchronizerOf(const BenchWorker& worker,
                                                         const Placement& placement,
                                                         std::vector<std::span<float>> weights);

// One variable of one element for each server: enough to wait for each other.
std::vector<Variable> barrierVariables(int servers);

}  // namespace trainyard::runtime::ps
