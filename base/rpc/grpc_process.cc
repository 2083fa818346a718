#include "base/rpc/grpc_process.h"

#include <cstring>

#include "absl/synchronization/mutex.h"
#include "base/core/log.h"
#include "grpc/support/log.h"

namespace trainyard {

void prepareGrpc() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  gpr_set_log_function([](gpr_log_func_args* args) {
    if (std::strstr(args->message, "assertion failed") != nullptr) {
      TY_ERROR("grpc: {}:{}: {}", args->file, args->line, args->message);  // it aborts next
    }
    TY_DEBUG("grpc: {}:{}: {}", args->file, args->line, args->message);
  });
}

}  // namespace trainyard
