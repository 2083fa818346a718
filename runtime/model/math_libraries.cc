#include <omp.h>

#include <atomic>
#include <string>

#include "fmt/format.h"
#include "runtime/model/blas.h"
#include "runtime/model/libtorch.h"
#include "runtime/model/model.h"
#include "runtime/model/onednn.h"
#include "runtime/model/threads.h"

namespace trainyard::runtime {
namespace {

std::atomic<int> compute_threads = 1;

}  // namespace

int computeThreads() {
  return compute_threads;
}

void useComputeThreads() {
  omp_set_num_threads(compute_threads);
}

void setComputeThreads(int n) {
  compute_threads = n;
  useComputeThreads();
  setBlasThreads(n);
  setTorchThreads(n);
}

bool hasLibTorch() {
  return !torchVersion().empty();
}

std::string mathLibraries() {
  const std::string torch = hasLibTorch() ? fmt::format(", LibTorch {}", torchVersion()) : "";
  const int threads = computeThreads();
  return fmt::format("oneDNN {}, {}{}, {} thread{}", oneDnnVersion(), blasName(), torch, threads,
                     threads == 1 ? "" : "s");
}

}  // namespace trainyard::runtime
