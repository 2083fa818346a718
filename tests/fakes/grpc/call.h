// One unary call of the fake: what its client and its server do to each other, on any thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tests/fakes/grpc/executor.h"
#include "tests/fakes/grpc/values.h"

namespace grpc {
class CallbackServerContext;
class ServerUnaryReactor;
}  // namespace grpc

namespace trainyard::fakes {

class ServerCore;

// A call's request and reply in the server, of whatever type.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual bool parse(const grpc::ByteBuffer& request) = 0;
  virtual grpc::ServerUnaryReactor* handle(grpc::CallbackServerContext* context) = 0;
  virtual grpc::ByteBuffer reply() = 0;
};

using Metadata = std::multimap<std::string, std::string>;

struct Request {
  std::string method;
  grpc::ByteBuffer bytes;
  Metadata metadata;
  std::optional<Executor::Time> deadline;
  bool wait_for_ready = false;
};

// Who hears of a call in its client; one event after the other.
struct CallListener {
  std::function<void(bool ok)> metadata;  // once, before done; null: nobody asks
  std::function<void(const grpc::Status& status, const grpc::ByteBuffer& reply)> done;  // once
};

// Finds the server, or says why it cannot.
using Connect = std::function<std::shared_ptr<ServerCore>(grpc::Status* why)>;

class Call : public std::enable_shared_from_this<Call> {
 public:
  Call(Request request, CallListener listener);
  ~Call();
  void start(Connect connect);
  // By the client.
  void cancel();

  // By the server: what its reactor says, and that it is going.
  void sendMetadata();
  void finish(const grpc::Status& status);
  void abandon();

 private:
  void reach(const Connect& connect);
  void deliver(const std::shared_ptr<ServerCore>& server);
  void bind(grpc::ServerUnaryReactor* reactor);
  void end(const grpc::Status& status, grpc::ByteBuffer reply = {});
  void tell(std::function<void()> event);
  void runEvents();
  void cancelServer();
  void tellCancel();
  void leave();

  Request request_;
  const CallListener listener_;
  std::mutex mutex_;
  // The client's side.
  std::deque<std::function<void()>> events_;
  bool telling_ = false;
  bool heard_metadata_ = false;
  bool ended_ = false;
  // The server's side.
  std::shared_ptr<ServerCore> server_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<grpc::CallbackServerContext> context_;
  grpc::ServerUnaryReactor* reactor_ = nullptr;  // null: not yet
  bool cancelled_ = false;
  bool telling_cancel_ = false;
  bool finished_ = false;
};

}  // namespace trainyard::fakes
