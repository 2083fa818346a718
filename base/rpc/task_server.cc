#include "base/rpc/task_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/process/poll.h"
#include "base/rpc/secure_channel.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr unsigned char kTlsHandshake = 22;
constexpr unsigned char kOther = 'T';
constexpr int kBacklog = 1024;
// Who connects says something at once. More than so many at a time that do not are somebody's who
// only wants to be in the way: the oldest goes.
constexpr Duration kSilence = std::chrono::seconds(10);
constexpr std::size_t kMaxSilent = 1024;
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr Duration kLongest = std::chrono::hours(1);
// What gRPC gives its own listeners with our keepalive (channel.cc): data that a peer has not
// confirmed by then end the connection.
constexpr int kUnconfirmedMs = 10'000;

std::string withoutBrackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

Status cannotListen(const TaskServerOptions& options) {
  return absl::UnavailableError(
      fmt::format("{}: cannot listen at {}:{}: the address is taken or not one of this machine",
                  options.what, options.bind, options.port));
}

// Connections inherit the listener's options.
void setOptions(int fd, int family) {
  const int on = 1;
  const int off = 0;
  // A port that was just in use may be taken again; not one that is in use.
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnconfirmedMs, sizeof kUnconfirmedMs);
  if (family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
}

// Invalid where that cannot be.
UniqueFd listenAt(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.valid()) setOptions(fd.get(), found->ai_family);
  const bool listening = fd.valid() && ::bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                         ::listen(fd.get(), kBacklog) == 0;
  ::freeaddrinfo(found);
  return listening ? std::move(fd) : UniqueFd();
}

int portOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

}  // namespace

StatusOr<UniqueFd> TaskServer::listen(const TaskServerOptions& options) {
  const std::string host = withoutBrackets(options.bind);
  // All addresses means those of both families, where the machine has both.
  const bool all = host.empty() || host == "0.0.0.0" || host == "::";
  UniqueFd fd = listenAt(all ? "::" : host, options.port);
  if (all && !fd.valid()) fd = listenAt("0.0.0.0", options.port);
  if (!fd.valid()) return cannotListen(options);
  return fd;
}

StatusOr<std::unique_ptr<TaskServer>> TaskServer::start(const TaskServerOptions& options,
                                                        const std::vector<grpc::Service*>& control,
                                                        Take take, UniqueFd listener) {
  if (!listener.valid()) {
    TY_ASSIGN_OR_RETURN(listener, listen(options));
  }
  TY_ASSIGN_OR_RETURN(WakeUp end, WakeUp::create());
  std::unique_ptr<TaskServer> server(new TaskServer(std::move(listener), std::move(end)));
  server->port_ = portOf(server->listener_.get());
  server->take_ = std::move(take);
  TY_RETURN_IF_ERROR(server->open(options, control));
  server->thread_ = std::thread([self = server.get()] { self->run(); });
  return server;
}

Status TaskServer::open(const TaskServerOptions& options,
                        const std::vector<grpc::Service*>& services) {
  grpc::ServerBuilder builder;
  applyServerDefaults(builder, options.control_limits);
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      secureServer(options.identity));
  for (grpc::Service* service : services) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC starts no server");
  return absl::OkStatus();
}

TaskServer::~TaskServer() {
  end_.wake();
  if (thread_.joinable()) thread_.join();
  listener_.reset();  // before the servers: who comes now is refused and tries again
  if (server_ != nullptr) server_->Shutdown(deadlineAfter(Duration(0)));
}

void TaskServer::run() {
  for (;;) {
    const TimePoint now = systemClock().now();
    const bool accepts = now >= accept_again_;
    std::vector<pollfd> fds = {
        {.fd = end_.fd(), .events = POLLIN, .revents = 0},
        {.fd = accepts ? listener_.get() : -1, .events = POLLIN, .revents = 0}};
    for (const Silent& one : silent_)
      fds.push_back({.fd = one.fd.get(), .events = POLLIN, .revents = 0});
    TimePoint until = silent_.empty() ? now + kLongest : silent_.front().give_up_at;
    if (!accepts) until = std::min(until, accept_again_);
    pollUntil(fds, until);
    if (fds[0].revents != 0) return;
    for (std::size_t i = 2; i < fds.size(); ++i) {
      if (fds[i].revents != 0 && handOver(silent_[i - 2])) silent_[i - 2].fd.reset();
    }
    const TimePoint then = systemClock().now();
    std::erase_if(silent_,
                  [&](const Silent& one) { return !one.fd.valid() || one.give_up_at <= then; });
    if (fds[1].revents != 0) accept(then);
  }
}

void TaskServer::accept(TimePoint now) {
  for (;;) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      const bool exhausted =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (exhausted) accept_again_ = now + kAcceptPause;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    Silent connection{std::move(fd), now + kSilence};
    if (handOver(connection)) continue;
    if (silent_.size() == kMaxSilent) silent_.erase(silent_.begin());
    silent_.push_back(std::move(connection));
  }
}

// Looks at the first byte and leaves it there. True: the connection is somebody's now, or nobody's.
bool TaskServer::handOver(Silent& connection) {
  unsigned char first = 0;
  const ssize_t got = ::recv(connection.fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got != 1) return true;
  if (first == kOther && take_ != nullptr) {
    take_(std::move(connection.fd));
    return true;
  }
  if (first != kTlsHandshake) return true;
  Acceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener_.get();
  parameters.fd = connection.fd.release();
  acceptor_->HandleNewConnection(&parameters);
  return true;
}

}  // namespace trainyard
