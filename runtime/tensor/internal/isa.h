// One loop, compiled for several instruction sets, chosen at run time. By hand rather than by
// target_clones: its resolvers run before the sanitizers' start, and a test can call every variant.
//
// A loop is a struct with a static always-inline function `run`; its instantiations below inherit
// the flags of the file that includes this, so `run` belongs in an anonymous namespace.
#pragma once

#include <span>

namespace trainyard::runtime::internal {

#define TY_ALWAYS_INLINE inline __attribute__((always_inline))

enum class Isa { kBaseline, kAvx2, kAvx512 };

const char* isaName(Isa isa);
// Those this machine executes; the baseline first, the best last.
std::span<const Isa> supportedIsas();
Isa bestIsa();

template <typename Loop, typename... Args>
__attribute__((noinline)) auto runBaseline(Args... args) {
  return Loop::run(args...);
}

#if defined(__x86_64__)
template <typename Loop, typename... Args>
__attribute__((noinline, target("avx2"))) auto runAvx2(Args... args) {
  return Loop::run(args...);
}

template <typename Loop, typename... Args>
__attribute__((noinline, target("avx512f,avx512vl,avx512dq,avx512bw"))) auto runAvx512(
    Args... args) {
  return Loop::run(args...);
}
#endif

// Loop::run(args...) as compiled for `isa`, which this machine must support.
template <typename Loop, typename... Args>
auto runOn(Isa isa, Args... args) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return runAvx512<Loop>(args...);
  if (isa == Isa::kAvx2) return runAvx2<Loop>(args...);
#endif
  return runBaseline<Loop>(args...);
}

}  // namespace trainyard::runtime::internal
