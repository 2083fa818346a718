// The port that the task's program will listen on, chosen before the program runs.
#pragma once

#include <string>

#include "base/core/rng.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard::agent {

// Keeps a TCP port from others by a socket that is bound but does not listen, until release(). The
// program may bind it right after. Not thread-safe. Movable.
class PortHolder {
 public:
  // `port` 0: one that is free and outside the range of ports the kernel hands out by itself, so
  // that no client's connection takes it between release() and the program's start. UNAVAILABLE
  // naming address and port when it (or, for 0, all that were tried) is taken; INVALID_ARGUMENT
  // when `address` is no IP address.
  static StatusOr<PortHolder> hold(const std::string& address, int port, Rng& rng);

  int port() const { return port_; }
  void release() { socket_.reset(); }
  // Takes the port again after release(); what hold() says of a given port.
  Status holdAgain();

 private:
  PortHolder(std::string address, int port, UniqueFd socket)
      : address_(std::move(address)), port_(port), socket_(std::move(socket)) {}

  std::string address_;
  int port_ = 0;
  UniqueFd socket_;
};

}  // namespace trainyard::agent
