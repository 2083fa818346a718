// One port for gRPC over mutual TLS and for connections of another kind beside it.
//
// The first byte of a connection says which it is: TLS begins with a handshake record (22), the
// others with the letter T. So a task needs no second port, and what is counted, allowed and
// announced by port stays as it is. Whatever else comes is closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/pipe.h"
#include "base/process/unique_fd.h"
#include "base/rpc/channel.h"
#include "base/security/job_keys.h"
#include "grpcpp/grpcpp.h"

namespace trainyard {

struct TaskServerOptions {
  std::string what;  // who listens, for messages
  // Host name or address, one of IPv6 with or without brackets; empty, 0.0.0.0 and ::, all.
  std::string bind = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any
  TlsIdentity identity;    // of the server for control; see secureServer()
  ServerLimits control_limits = {};
};

// One thread of its own, which sees to connections that have not said anything yet; calls are on
// gRPC's.
class TaskServer {
 public:
  // Gets connections of the other kind, of which nothing has been read; on the server's thread.
  using Take = std::function<void(UniqueFd)>;
  // A socket that listens at the address, and with which start() can go on later: who calls until
  // then waits. UNAVAILABLE "<what>: cannot listen at <address>" when the address is taken or not
  // ours.
  static StatusOr<UniqueFd> listen(const TaskServerOptions& options);
  // The services must outlive the server. With no `listener` errors are also those of listen().
  static StatusOr<std::unique_ptr<TaskServer>> start(const TaskServerOptions& options,
                                                     const std::vector<grpc::Service*>& control,
                                                     Take take = {}, UniqueFd listener = {});
  // Takes no more connections and ends all calls at once.
  ~TaskServer();

  int port() const { return port_; }

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  // A connection that has not said anything.
  struct Silent {
    UniqueFd fd;
    TimePoint give_up_at;
  };

  TaskServer(UniqueFd listener, WakeUp end)
      : listener_(std::move(listener)), end_(std::move(end)) {}
  Status open(const TaskServerOptions& options, const std::vector<grpc::Service*>& services);
  void run();
  void accept(TimePoint now);
  bool handOver(Silent& connection);

  UniqueFd listener_;
  WakeUp end_;
  int port_ = 0;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  Take take_;
  std::vector<Silent> silent_;  // the oldest first
  TimePoint accept_again_{};    // the process has no file descriptor left
  std::thread thread_;
};

}  // namespace trainyard
