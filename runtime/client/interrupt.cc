#include "runtime/client/interrupt.h"

#include <memory>
#include <mutex>

namespace trainyard::runtime::client {
namespace {

struct Interrupt {
  std::mutex mutex;
  ty_interrupt_function function = nullptr;
  void* data = nullptr;
};
// Never destroyed: a thread may wait while the process ends.
Interrupt& interrupt() {
  static Interrupt& instance = *std::make_unique<Interrupt>().release();
  return instance;
}

}  // namespace

void setInterrupt(ty_interrupt_function function, void* data) {
  const std::lock_guard lock(interrupt().mutex);
  interrupt().function = function;
  interrupt().data = data;
}

bool isInterrupted() {
  ty_interrupt_function function = nullptr;
  void* data = nullptr;
  {
    const std::lock_guard lock(interrupt().mutex);
    function = interrupt().function;
    data = interrupt().data;
  }
  return function != nullptr && function(data) != 0;
}

}  // namespace trainyard::runtime::client
