#include "base/rpc/callback_threads.h"

#include <condition_variable>
#include <mutex>

#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"

namespace trainyard {

// The threads belong to a channel once it has made a call. This one's is refused at once, without
// any connection, for want of credentials.
CallbackThreads::CallbackThreads()
    : channel_(grpc::CreateCustomChannel("", nullptr, grpc::ChannelArguments())) {
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  const grpc::Slice empty;
  const grpc::ByteBuffer nothing(&empty, 1);
  grpc::ByteBuffer reply;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  stub.UnaryCall(&context, "/", grpc::StubOptions(), &nothing, &reply, [&](const grpc::Status&) {
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

std::shared_ptr<CallbackThreads> CallbackThreads::hold() {
  static std::mutex mutex;
  static std::weak_ptr<CallbackThreads> shared;
  const std::lock_guard lock(mutex);
  std::shared_ptr<CallbackThreads> threads = shared.lock();
  if (threads == nullptr) {
    threads.reset(new CallbackThreads());
    shared = threads;
  }
  return threads;
}

}  // namespace trainyard
