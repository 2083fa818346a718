// gRPC's threads for callbacks, kept while somebody calls.
//
// gRPC starts them for the first channel or server that uses callbacks and joins them where the
// last one is destroyed (CompletionQueue::ReleaseCallbackAlternativeCQ). That may be a channel of
// which a call holds the last reference; a call ends on one of these threads, which would join
// itself.
#pragma once

#include <memory>

#include "grpcpp/channel.h"

namespace trainyard {

// Who calls by callbacks has one of these from before its first call until after its last one has
// been destroyed, and gives it back on a thread of its own. All share one.
class CallbackThreads {
 public:
  // Thread-safe.
  static std::shared_ptr<CallbackThreads> hold();

 private:
  CallbackThreads();
  std::shared_ptr<grpc::Channel> channel_;  // leads nowhere
};

}  // namespace trainyard
