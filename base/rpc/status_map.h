// gRPC's status type and ours have the same codes; only failures travel.
#pragma once

#include <string_view>

#include "base/core/status.h"
#include "grpcpp/grpcpp.h"

namespace trainyard {

// OK stays OK. The failure class travels only as far as the code implies it.
grpc::Status toGrpc(const Status& status);

// `what` names the call and the peer: "<what>: <message>".
Status fromGrpc(const grpc::Status& status, std::string_view what);

}  // namespace trainyard
