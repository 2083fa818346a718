// gRPC's callback server as our code uses it.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/fakes/grpc/call.h"
#include "tests/fakes/grpc/codec.h"

namespace grpc {

class AuthContext {
 public:
  explicit AuthContext(bool authenticated) : authenticated_(authenticated) {}
  bool IsPeerAuthenticated() const { return authenticated_; }

 private:
  const bool authenticated_;
};

// What a handler returns. It belongs to itself: OnDone() comes once, last.
class ServerUnaryReactor {
 public:
  virtual ~ServerUnaryReactor() = default;
  void StartSendInitialMetadata();
  void Finish(Status status);
  virtual void OnCancel() {}
  virtual void OnDone() = 0;

 private:
  friend class trainyard::fakes::Call;
  void bind(std::shared_ptr<trainyard::fakes::Call> call);
  void unbind() {
    std::lock_guard lock(mutex_);
    call_ = nullptr;
  }

  // The handler may answer, or let another thread do so, before it has returned.
  std::mutex mutex_;
  std::shared_ptr<trainyard::fakes::Call> call_;  // null: not yet
  bool early_metadata_ = false;
  std::optional<Status> early_finish_;
};

class ServerContextBase {
 public:
  ServerContextBase(const trainyard::fakes::Metadata& metadata, bool authenticated);
  const std::multimap<string_ref, string_ref>& client_metadata() const { return views_; }
  std::shared_ptr<const AuthContext> auth_context() const { return auth_; }

 private:
  const trainyard::fakes::Metadata metadata_;
  std::multimap<string_ref, string_ref> views_;
  const std::shared_ptr<const AuthContext> auth_;
};

class CallbackServerContext final : public ServerContextBase {
 public:
  using ServerContextBase::ServerContextBase;
  ServerUnaryReactor* DefaultReactor() { return &reactor_; }

 private:
  class Default final : public ServerUnaryReactor {
    void OnDone() override {}
  };
  Default reactor_;
};

class Service {
 public:
  virtual ~Service() = default;

 protected:
  template <typename Asked, typename Answer>
  void add(
      const std::string& method,
      std::function<ServerUnaryReactor*(CallbackServerContext*, const Asked*, Answer*)> handle);

 private:
  friend class ServerBuilder;
  std::map<std::string, std::function<std::unique_ptr<trainyard::fakes::Exchange>()>> methods_;
};

}  // namespace grpc

namespace trainyard::fakes {

// A server, as calls and connections see it.
class ServerCore {
 public:
  using Methods = std::map<std::string, std::function<std::unique_ptr<Exchange>()>>;
  ServerCore(Methods methods, grpc::Credentials credentials, std::size_t most_bytes)
      : credentials(std::move(credentials)), most_bytes(most_bytes), methods_(std::move(methods)) {}

  const grpc::Credentials credentials;
  const std::size_t most_bytes;

  // Null: there is no such method.
  std::unique_ptr<Exchange> open(const std::string& method) const;
  // Whether it takes calls. Each that it has taken is left again.
  bool enter(const std::shared_ptr<Call>& call);
  void leave(const std::shared_ptr<Call>& call);
  bool alive() const;
  // Ends all calls and waits until they have left.
  void shutDown();

 private:
  const Methods methods_;
  mutable std::mutex mutex_;
  std::condition_variable left_;
  std::set<std::shared_ptr<Call>> calls_;
  bool alive_ = true;
};

// Of a connection that a channel has made to a real port and announced there with its number.
std::shared_ptr<ServerCore> serverOfConnection(std::uint64_t number);
void announce(int fd, const std::shared_ptr<ServerCore>& server);

template <typename Asked, typename Answer>
class TypedExchange final : public Exchange {
 public:
  using Handle =
      std::function<grpc::ServerUnaryReactor*(grpc::CallbackServerContext*, const Asked*, Answer*)>;
  explicit TypedExchange(Handle handle) : handle_(std::move(handle)) {}
  bool parse(const grpc::ByteBuffer& request) override { return decode(request, &asked_); }
  grpc::ServerUnaryReactor* handle(grpc::CallbackServerContext* context) override {
    return handle_(context, &asked_, &answer_);
  }
  grpc::ByteBuffer reply() override { return encode(answer_); }

 private:
  const Handle handle_;
  Asked asked_;
  Answer answer_;
};

}  // namespace trainyard::fakes

namespace grpc {

template <typename Asked, typename Answer>
void Service::add(
    const std::string& method,
    std::function<ServerUnaryReactor*(CallbackServerContext*, const Asked*, Answer*)> handle) {
  methods_[method] = [handle] {
    return std::make_unique<trainyard::fakes::TypedExchange<Asked, Answer>>(handle);
  };
}

class Server {
 public:
  explicit Server(std::shared_ptr<trainyard::fakes::ServerCore> core) : core_(std::move(core)) {}
  ~Server() { core_->shutDown(); }
  // At once, whatever the deadline.
  void Shutdown(gpr_timespec) { core_->shutDown(); }
  void Shutdown() { core_->shutDown(); }

 private:
  const std::shared_ptr<trainyard::fakes::ServerCore> core_;
};

class ResourceQuota {
 public:
  explicit ResourceQuota(const std::string&) {}
  void Resize(std::size_t) {}
};

namespace experimental {
// Takes connections that others have accepted.
class ExternalConnectionAcceptor {
 public:
  struct NewConnectionParameters {
    int listener_fd = -1;
    int fd = -1;  // becomes ours
  };
  void HandleNewConnection(NewConnectionParameters* parameters);

  std::weak_ptr<trainyard::fakes::ServerCore> server;
};
}  // namespace experimental

class ServerBuilder {
 public:
  class experimental_type {
   public:
    enum class ExternalConnectionType { FROM_FD };
    explicit experimental_type(ServerBuilder* builder) : builder_(builder) {}
    std::unique_ptr<experimental::ExternalConnectionAcceptor> AddExternalConnectionAcceptor(
        ExternalConnectionType, std::shared_ptr<ServerCredentials> credentials);

   private:
    ServerBuilder* const builder_;
  };
  experimental_type experimental() { return experimental_type(this); }
  void SetMaxReceiveMessageSize(int bytes) { most_bytes_ = static_cast<std::size_t>(bytes); }
  void SetMaxSendMessageSize(int) {}
  void AddChannelArgument(const std::string&, int) {}
  void SetResourceQuota(const ResourceQuota&) {}
  void RegisterService(Service* service) {
    methods_.insert(service->methods_.begin(), service->methods_.end());
  }
  std::unique_ptr<Server> BuildAndStart();

 private:
  std::size_t most_bytes_ = std::size_t{4} << 20;
  trainyard::fakes::ServerCore::Methods methods_;
  std::shared_ptr<ServerCredentials> credentials_;
  experimental::ExternalConnectionAcceptor* acceptor_ = nullptr;
};

}  // namespace grpc
