// Assertions about ourselves, never about the outside world. A failed check prints what was
// believed and aborts; it never throws, so that no handler can mistake a bug for a lost peer.
#pragma once

namespace trainyard {

[[noreturn]] void checkFailed(const char* file, int line, const char* condition,
                              const char* belief);

}  // namespace trainyard

// TY_CHECK(chunk < chunks.size(), "the plan names only chunks of this job")
#define TY_CHECK(condition, belief)                                                     \
  do {                                                                                  \
    if (!(condition)) ::trainyard::checkFailed(__FILE__, __LINE__, #condition, belief); \
  } while (0)
