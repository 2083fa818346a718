// What the C interface's opaque types are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/core/clock.h"
#include "runtime/client/fork_guard.h"
#include "runtime/client/program_group.h"
#include "runtime/client/trainyard.h"
#include "runtime/client/work.h"
#include "runtime/data/sample_stream.h"
#include "runtime/session/program_session.h"
#include "runtime/transport/tcp_mesh.h"

struct ty_listener {
  explicit ty_listener(trainyard::runtime::transport::TcpListener made)
      : listener(std::move(made)) {}

  trainyard::runtime::transport::TcpListener listener;
  std::uint64_t generation = trainyard::runtime::client::processGeneration();
  trainyard::runtime::client::ClosedInChildren sockets;
};

struct ty_group {
  explicit ty_group(std::shared_ptr<trainyard::runtime::client::ProgramGroup> joined)
      : group(std::move(joined)) {}

  std::shared_ptr<trainyard::runtime::client::ProgramGroup> group;
  std::uint64_t generation = trainyard::runtime::client::processGeneration();
};

struct ty_work {
  ty_work(std::shared_ptr<trainyard::runtime::client::Work> given,
          std::weak_ptr<trainyard::runtime::client::ProgramGroup> of)
      : work(std::move(given)), group(std::move(of)) {}

  std::shared_ptr<trainyard::runtime::client::Work> work;
  // Gone after the group has been left: then there is nothing to carry out.
  std::weak_ptr<trainyard::runtime::client::ProgramGroup> group;
  std::uint64_t generation = trainyard::runtime::client::processGeneration();
};

struct ty_session {
  explicit ty_session(std::unique_ptr<trainyard::runtime::session::ProgramSession> opened)
      : session(std::move(opened)) {
    sockets.add(session->fd());
  }

  std::unique_ptr<trainyard::runtime::session::ProgramSession> session;
  trainyard::runtime::session::TurnMessage turn;           // whose sample numbers the program reads
  std::optional<trainyard::runtime::SampleStream> stream;  // when it is declared
  std::uint64_t generation = trainyard::runtime::client::processGeneration();
  trainyard::runtime::client::ClosedInChildren sockets;
};

namespace trainyard::runtime::client {

// Seconds as the C interface gives them: what is no number or below zero is none, and for ever is
// longer than any program lives and short enough to be added to a time.
inline Duration durationOf(double seconds) {
  constexpr double kForEver = 1e9;
  return fromSeconds(seconds > 0 ? std::min(seconds, kForEver) : 0);
}

// Made by this process, and not by the one that it was forked from.
template <typename Handle>
bool isAlive(const Handle* handle) {
  return handle != nullptr && handle->generation == processGeneration();
}

}  // namespace trainyard::runtime::client
