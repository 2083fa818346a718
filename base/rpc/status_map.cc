#include "base/rpc/status_map.h"

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {

grpc::Status toGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(fromAbsl(status.message()))};
}

Status fromGrpc(const grpc::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  return Status(static_cast<absl::StatusCode>(status.error_code()),
                fmt::format("{}: {}", what, status.error_message()));
}

}  // namespace trainyard
