#include "tests/fakes/grpc/client.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "tests/fakes/grpc/server.h"

namespace grpc {
namespace {

// The first byte of what TLS and HTTP/2 begin with.
constexpr char kTls = 22;
constexpr char kPlain = 'P';

Status unavailable(const std::string& why) {
  return {StatusCode::UNAVAILABLE, "failed to connect: " + why};
}

// -1: nobody listens there.
int connectTo(const std::string& target) {
  const std::size_t colon = target.rfind(':');
  if (colon == std::string::npos || target.starts_with("unix")) return -1;
  std::string host = target.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), target.c_str() + colon + 1, &hints, &found) != 0) return -1;
  int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && ::connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
    ::close(fd);
    fd = -1;
  }
  ::freeaddrinfo(found);
  return fd;
}

// Sends the greeting that announce() reads; whether somebody took it.
bool greet(int fd, char kind, std::uint64_t number) {
  char greeting[1 + sizeof number] = {kind};
  std::memcpy(greeting + 1, &number, sizeof number);
  char taken = 0;
  return ::send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting &&
         ::read(fd, &taken, 1) == 1;
}

}  // namespace

std::shared_ptr<trainyard::fakes::ServerCore> Channel::connect(Status* why) {
  std::lock_guard lock(mutex_);
  auto server = server_.lock();
  if (server != nullptr && server->alive()) return server;
  server = connectAnew(why);
  server_ = server;
  return server;
}

std::shared_ptr<trainyard::fakes::ServerCore> Channel::connectAnew(Status* why) {
  static std::atomic<std::uint64_t> numbers{0};
  if (credentials_ == nullptr) {
    *why = unavailable("a lame channel");
    return nullptr;
  }
  const int fd = connectTo(target_);
  if (fd < 0) {
    *why = unavailable("Connection refused");
    return nullptr;
  }
  const std::uint64_t number = ++numbers;
  const bool taken = greet(fd, credentials_->secure() ? kTls : kPlain, number);
  ::close(fd);
  auto server = taken ? trainyard::fakes::serverOfConnection(number) : nullptr;
  if (server == nullptr) {
    *why = unavailable("Socket closed");
  } else if (credentials_->secure() && !credentials_->trust(server->credentials)) {
    *why = unavailable("SSL_ERROR_SSL: certificate verify failed");
    server = nullptr;
  } else if (credentials_->secure() && !server->credentials.trust(*credentials_)) {
    *why = unavailable("Socket closed");
    server = nullptr;
  }
  return server;
}

std::shared_ptr<Channel> CreateCustomChannel(const std::string& target,
                                             const std::shared_ptr<ChannelCredentials>& credentials,
                                             const ChannelArguments&) {
  return std::make_shared<Channel>(target, credentials);
}

void ClientContext::TryCancel() {
  std::shared_ptr<trainyard::fakes::Call> call;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    call = call_.lock();
  }
  if (call != nullptr) call->cancel();
}

std::shared_ptr<trainyard::fakes::Call> prepare(ClientContext* context, const std::string& method,
                                                ByteBuffer request,
                                                trainyard::fakes::CallListener listener) {
  trainyard::fakes::Request made;
  made.method = method;
  made.bytes = std::move(request);
  made.metadata = context->metadata_;
  made.wait_for_ready = context->wait_for_ready_;
  if (context->deadline_) {
    const gpr_timespec left = gpr_time_sub(*context->deadline_, gpr_now(GPR_CLOCK_MONOTONIC));
    made.deadline = std::chrono::steady_clock::now() +
                    std::chrono::nanoseconds(left.tv_sec * 1'000'000'000 + left.tv_nsec);
  }
  auto call = std::make_shared<trainyard::fakes::Call>(std::move(made), std::move(listener));
  bool cancelled = false;
  {
    std::lock_guard lock(context->mutex_);
    context->call_ = call;
    cancelled = context->cancelled_;
  }
  if (cancelled) call->cancel();
  return call;
}

}  // namespace grpc
