// What gRPC itself has to say.
#pragma once

namespace trainyard {

// Sends what gRPC itself has to say to our log, at level debug: whoever calls gRPC reports the
// failure with its place. Once, from main, before any channel or server exists.
void quietGrpc();

}  // namespace trainyard
