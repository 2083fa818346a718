// The port that the task's program will listen on, chosen before the program runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard::agent {

// Keeps a TCP port from others by a socket that is bound but does not listen, until release(). The
// program may bind it right after. One that was chosen is left alone by all other holders of this
// network namespace as long as this one lives: until the program listens there, and while it is
// started again, the port looks free. Not thread-safe. Movable.
class PortHolder {
 public:
  // `port` 0: one that is free and outside the range of ports the kernel hands out by itself, so
  // that no client's connection takes it between release() and the program's start. UNAVAILABLE
  // naming address and port when it (or, for 0, all that were tried) is taken; INVALID_ARGUMENT
  // when `address` is no IP address.
  // With `neighbour` the port after it is kept in the same way: one that is chosen has a free one
  // beside it; beside one that is given it is kept where it is free.
  static StatusOr<PortHolder> hold(const std::string& address, int port, Rng& rng,
                                   bool neighbour = false);

  int port() const { return port_; }
  void release() {
    held_.socket.reset();
    held_.beside.reset();
  }
  // Takes the port again after release(); what hold() says of a given port.
  Status holdAgain();

 private:
  // Sockets: of the port, of the one after it, and what says that both were chosen; the latter two
  // may be none.
  struct Held {
    UniqueFd socket;
    UniqueFd beside;
    std::vector<UniqueFd> chosen;
  };
  PortHolder(std::string address, int port, bool neighbour, Held held)
      : address_(std::move(address)), port_(port), neighbour_(neighbour), held_(std::move(held)) {}
  static StatusOr<Held> choose(const std::string& address, int port, bool neighbour);

  std::string address_;
  int port_ = 0;
  bool neighbour_ = false;
  Held held_;
};

}  // namespace trainyard::agent
