// A service with a race, which the thread sanitizer must find through the fake: that it would see
// one of the services that others link it with.
#include <future>
#include <vector>

#include "base/rpc/secure_channel.h"
#include "base/rpc/task_server.h"
#include "trainyard/v1/coordinator.grpc.pb.h"

namespace {

using trainyard::v1::Coordinator;

class Racing final : public Coordinator::CallbackService {
 public:
  int calls() const { return calls_; }

 private:
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context,
                                 const trainyard::v1::MemberReport*,
                                 trainyard::v1::View*) override {
    ++calls_;  // no lock
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  int calls_ = 0;
};

void call(int port, const trainyard::TlsIdentity& identity) {
  const auto stub = Coordinator::NewStub(trainyard::openSecureChannel(
      "127.0.0.1:" + std::to_string(port), identity, trainyard::kRuntimeServerName));
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    trainyard::v1::View view;
    (void)stub->Sync(&context, {}, &view);
  }
}

}  // namespace

int main() {
  Racing service;
  const auto keys = trainyard::deriveRuntimeKeys("the-token");
  auto server =
      trainyard::TaskServer::start({.what = "planted", .identity = keys.control}, {&service});
  if (!server.ok()) return 1;
  std::vector<std::future<void>> callers;
  for (int i = 0; i < 4; ++i) {
    callers.push_back(
        std::async(std::launch::async, [&] { call((*server)->port(), keys.control); }));
  }
  for (std::future<void>& caller : callers) caller.get();
  return service.calls() == 0 ? 1 : 0;
}
