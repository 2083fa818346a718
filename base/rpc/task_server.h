// One port with two servers behind it: one over mutual TLS, for control and data that are to be
// encrypted, the other unencrypted, for bulk data.
//
// The first byte of a connection says to which it goes: TLS begins with a handshake record (22),
// what gRPC sends unencrypted with the letter P. So a task needs no second port, and what is
// counted, allowed and announced by port stays as it is. A service that is registered with one
// server does not exist at the other.
#pragma once

#include <cstdint>
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
  ServerLimits data_limits = {};
};

// One thread of its own, which sees to connections that have not said anything yet; calls are on
// gRPC's.
class TaskServer {
 public:
  // The services must outlive the server. Without any for data, connections that do not begin with
  // TLS are closed. UNAVAILABLE "<what>: cannot listen at <address>" when the address is taken or
  // not ours.
  static StatusOr<std::unique_ptr<TaskServer>> start(const TaskServerOptions& options,
                                                     const std::vector<grpc::Service*>& control,
                                                     const std::vector<grpc::Service*>& data = {});
  // Takes no more connections and ends all calls at once.
  ~TaskServer();

  int port() const { return port_; }

 private:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  struct Side {
    std::unique_ptr<Acceptor> acceptor;  // null: there is no such server
    std::unique_ptr<grpc::Server> server;
  };
  // A connection that has not said anything.
  struct Silent {
    UniqueFd fd;
    TimePoint give_up_at;
  };

  TaskServer(UniqueFd listener, WakeUp end)
      : listener_(std::move(listener)), end_(std::move(end)) {}
  static Status open(Side& side, const std::vector<grpc::Service*>& services,
                     const std::shared_ptr<grpc::ServerCredentials>& credentials,
                     const ServerLimits& limits);
  void run();
  void accept(TimePoint now);
  bool handOver(Silent& connection) const;

  UniqueFd listener_;
  WakeUp end_;
  int port_ = 0;
  Side control_;
  Side data_;
  std::vector<Silent> silent_;  // the oldest first
  TimePoint accept_again_{};    // the process has no file descriptor left
  std::thread thread_;
};

}  // namespace trainyard
