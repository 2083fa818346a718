// Which BLAS computes, found by asking the dynamic linker: packages and alternatives only say which
// one should.
#include <dlfcn.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "runtime/model/model.h"
#include "runtime/model/network.h"

namespace trainyard::runtime {
namespace {

struct Blas {
  std::string name;
  bool slow = false;
};

// The file that holds `symbol`, links resolved; empty when unknown.
std::string fileOf(void* symbol) {
  Dl_info info{};
  if (symbol == nullptr || dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::unique_ptr<char, decltype(&free)> path(realpath(info.dli_fname, nullptr), &free);
  return path ? path.get() : info.dli_fname;
}

// Looks a function up in the library at `path` and those that it needs.
template <typename Function>
Function* findIn(const std::string& path, const char* name) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* symbol = dlsym(library, name);
  dlclose(library);  // RTLD_NOLOAD only counted a reference to what stays loaded
  return reinterpret_cast<Function*>(symbol);
}

// "OpenBLAS 0.3.21 NO_AFFINITY USE_OPENMP Zen MAX_THREADS=64" -> "OpenBLAS 0.3.21"
std::string openBlasName(const char* config) {
  const std::string_view text = config;
  const std::size_t end = text.find(' ', text.find(' ') + 1);
  return std::string(text.substr(0, end));
}

// LibTorch calls sgemm_ through the global scope: the first library that defines it computes. Other
// BLAS libraries may be loaded beside it (OpenCV brings its own), so a list of libraries proves
// nothing.
Blas findBlas() {
  const std::string path = fileOf(dlsym(RTLD_DEFAULT, "sgemm_"));
  if (path.empty()) return {"built into LibTorch"};
  if (auto* config = findIn<char*()>(path, "openblas_get_config")) return {openBlasName(config())};
  if (path.find("torch") != std::string::npos || path.find("mkl") != std::string::npos) {
    return {fmt::format("MKL or another in {}", path)};
  }
  if (findIn<const char*()>(path, "bli_info_get_version_str") != nullptr) return {"BLIS"};
  if (path.find("atlas") != std::string::npos) return {"ATLAS"};
  return {fmt::format("reference BLAS ({}); libopenblas0-openmp is about five times as fast", path),
          true};
}

}  // namespace

bool hasLibTorch() {
  return true;
}

MathLibraries mathLibraries() {
  const Blas blas = findBlas();
  const int threads = torchThreads();
  return {fmt::format("LibTorch {}, BLAS: {}, {} thread{}", torchVersion(), blas.name, threads,
                      threads == 1 ? "" : "s"),
          blas.slow};
}

void setComputeThreads(int n) {
  setTorchThreads(n);
  const std::string path = fileOf(dlsym(RTLD_DEFAULT, "sgemm_"));
  if (auto* set = findIn<void(int)>(path, "openblas_set_num_threads")) set(n);
}

}  // namespace trainyard::runtime
