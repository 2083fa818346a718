#include "runtime/tensor/internal/isa.h"

#include <vector>

#include "base/core/check.h"

namespace trainyard::runtime::internal {
namespace {

std::vector<Isa> detect() {
  std::vector<Isa> isas{Isa::kBaseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) isas.push_back(Isa::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    isas.push_back(Isa::kAvx512);
  }
#endif
  return isas;
}

}  // namespace

const char* isaName(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  TY_CHECK(false, "the instruction sets above are all there are");
}

std::span<const Isa> supportedIsas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

Isa bestIsa() {
  static const Isa best = supportedIsas().back();
  return best;
}

}  // namespace trainyard::runtime::internal
