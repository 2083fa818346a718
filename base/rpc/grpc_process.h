// How gRPC behaves in all of this process.
#pragma once

namespace trainyard {

// Once, from main, before any channel or server exists:
// - What gRPC itself has to say goes to our log, at level debug: whoever calls gRPC reports the
//   failure with its place.
// - Debian's Abseil is built with its search for deadlocks, which records the order of all locks
//   that gRPC takes, for every call; it is switched off.
void prepareGrpc();

}  // namespace trainyard
