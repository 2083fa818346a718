#include "base/core/check.h"

#include <cstdio>
#include <cstdlib>

namespace trainyard {

void checkFailed(const char* file, int line, const char* condition, const char* belief) {
  std::fprintf(stderr, "%s:%d: check failed: %s (%s)\n", file, line, condition, belief);
  std::fflush(stderr);
  std::abort();
}

}  // namespace trainyard
