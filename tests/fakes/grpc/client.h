// gRPC's channels, stubs and client calls as our code uses them.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tests/fakes/grpc/call.h"
#include "tests/fakes/grpc/codec.h"

namespace grpc {

// Connects when a call wants it, to a server of this process behind a real port of this machine
// ("ip:port", "[ip]:port").
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(std::string target, std::shared_ptr<ChannelCredentials> credentials)
      : target_(std::move(target)), credentials_(std::move(credentials)) {}
  // Null: `why`.
  std::shared_ptr<trainyard::fakes::ServerCore> connect(Status* why);

 private:
  std::shared_ptr<trainyard::fakes::ServerCore> connectAnew(Status* why);

  const std::string target_;
  const std::shared_ptr<ChannelCredentials> credentials_;  // null: no call succeeds
  std::mutex mutex_;
  std::weak_ptr<trainyard::fakes::ServerCore> server_;
};
using ChannelInterface = Channel;

std::shared_ptr<Channel> CreateCustomChannel(const std::string& target,
                                             const std::shared_ptr<ChannelCredentials>& credentials,
                                             const ChannelArguments& arguments);

class ClientContext {
 public:
  void AddMetadata(const std::string& key, const std::string& value) {
    metadata_.emplace(key, value);
  }
  void set_deadline(gpr_timespec deadline) { deadline_ = deadline; }
  void set_wait_for_ready(bool wait) { wait_for_ready_ = wait; }
  void TryCancel();

 private:
  friend std::shared_ptr<trainyard::fakes::Call> prepare(ClientContext* context,
                                                         const std::string& method,
                                                         ByteBuffer request,
                                                         trainyard::fakes::CallListener listener);
  trainyard::fakes::Metadata metadata_;
  std::optional<gpr_timespec> deadline_;
  bool wait_for_ready_ = false;
  std::mutex mutex_;
  std::weak_ptr<trainyard::fakes::Call> call_;
  bool cancelled_ = false;  // before there was a call
};

std::shared_ptr<trainyard::fakes::Call> prepare(ClientContext* context, const std::string& method,
                                                ByteBuffer request,
                                                trainyard::fakes::CallListener listener);

class ClientUnaryReactor {
 public:
  virtual ~ClientUnaryReactor() = default;
  // It may be gone before this returns.
  void StartCall() { std::exchange(start_, nullptr)(); }
  virtual void OnReadInitialMetadataDone(bool) {}
  virtual void OnDone(const Status&) {}

 private:
  template <typename Asked, typename Answer>
  friend void prepareCall(const std::shared_ptr<Channel>&, const std::string&, ClientContext*,
                          const Asked*, Answer*, ClientUnaryReactor*);
  std::function<void()> start_;
};

// The three ways to call: with a reactor that starts it, with a function, and waiting.
template <typename Asked, typename Answer>
void prepareCall(const std::shared_ptr<Channel>& channel, const std::string& method,
                 ClientContext* context, const Asked* asked, Answer* answer,
                 ClientUnaryReactor* reactor) {
  reactor->start_ = [=] {
    trainyard::fakes::CallListener listener;
    listener.metadata = [reactor](bool ok) { reactor->OnReadInitialMetadataDone(ok); };
    listener.done = [reactor, answer](const Status& status, const ByteBuffer& reply) {
      if (status.ok()) trainyard::fakes::decode(reply, answer);
      reactor->OnDone(status);
    };
    prepare(context, method, trainyard::fakes::encode(*asked), std::move(listener))
        ->start([channel](Status* why) { return channel->connect(why); });
  };
}

template <typename Asked, typename Answer>
void callBack(const std::shared_ptr<Channel>& channel, const std::string& method,
              ClientContext* context, const Asked* asked, Answer* answer,
              std::function<void(Status)> done) {
  trainyard::fakes::CallListener listener;
  listener.done = [done = std::move(done), answer](const Status& status, const ByteBuffer& reply) {
    if (status.ok()) trainyard::fakes::decode(reply, answer);
    done(status);
  };
  prepare(context, method, trainyard::fakes::encode(*asked), std::move(listener))
      ->start([channel](Status* why) { return channel->connect(why); });
}

template <typename Asked, typename Answer>
Status callAndWait(const std::shared_ptr<Channel>& channel, const std::string& method,
                   ClientContext* context, const Asked& asked, Answer* answer) {
  const auto ended = std::make_shared<std::promise<Status>>();
  callBack(channel, method, context, &asked, answer,
           [ended](Status status) { ended->set_value(std::move(status)); });
  return ended->get_future().get();
}

struct StubOptions {};

class GenericStub {
 public:
  explicit GenericStub(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
  void PrepareUnaryCall(ClientContext* context, const std::string& method, StubOptions,
                        const ByteBuffer* request, ByteBuffer* reply, ClientUnaryReactor* reactor) {
    prepareCall(channel_, method, context, request, reply, reactor);
  }
  void UnaryCall(ClientContext* context, const std::string& method, StubOptions,
                 const ByteBuffer* request, ByteBuffer* reply, std::function<void(Status)> done) {
    callBack(channel_, method, context, request, reply, std::move(done));
  }

 private:
  const std::shared_ptr<Channel> channel_;
};

}  // namespace grpc
