#include "base/rpc/grpc_log.h"

#include "base/core/log.h"
#include "grpc/support/log.h"

namespace trainyard {

void quietGrpc() {
  gpr_set_log_function([](gpr_log_func_args* args) {
    TY_DEBUG("grpc: {}:{}: {}", args->file, args->line, args->message);
  });
}

}  // namespace trainyard
