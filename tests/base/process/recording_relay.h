// Who listens on the way: a TCP relay on this machine that keeps all that passes through it.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/process/pipe.h"
#include "base/process/poll.h"
#include "base/process/unique_fd.h"
#include "gtest/gtest.h"

namespace trainyard {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

inline UniqueFd connectTo(int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  EXPECT_EQ(::connect(fd.get(), to, sizeof address), 0) << "port " << port;
  return fd;
}

inline void sendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the other side has closed
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// All that comes until the other side closes; a limit of `limit` is a failure.
inline std::string receiveUntilClosed(int fd, Duration limit = std::chrono::seconds(60)) {
  std::string all;
  const TimePoint end = systemClock().now() + limit;
  char buffer[4096];
  for (;;) {
    if (!waitReadable(fd, end)) {
      ADD_FAILURE() << "the connection is still open";
      return all;
    }
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) return all;
    all.append(buffer, static_cast<std::size_t>(got));
  }
}

class RecordingRelay {
 public:
  // Of one connection.
  struct Heard {
    std::string to_server;
    std::string to_client;
  };

  // What becomes of bytes on their way, and whether the connection goes on.
  struct Passed {
    std::string bytes;
    bool open = true;
  };
  // Of the connection of that number, on the relay's thread.
  using Meddle =
      std::function<Passed(std::size_t connection, bool to_server, std::string_view bytes)>;

  explicit RecordingRelay(int server_port, Meddle meddle = {})
      : server_port_(server_port), meddle_(std::move(meddle)) {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    auto* at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_.get(), at, sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(listener_.get(), at, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~RecordingRelay() {
    end_.wake();
    thread_.join();
  }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<Heard> heard() const {
    std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  struct Pair {
    UniqueFd client;
    UniqueFd server;
    std::size_t number;
  };

  void run() {
    for (;;) {
      std::vector<pollfd> fds = {{.fd = end_.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const Pair& pair : pairs_) {
        fds.push_back({.fd = pair.client.get(), .events = POLLIN, .revents = 0});
        fds.push_back({.fd = pair.server.get(), .events = POLLIN, .revents = 0});
      }
      pollUntil(fds, systemClock().now() + std::chrono::hours(1));
      if (fds[0].revents != 0) return;
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        const bool open = (fds[2 * i + 2].revents == 0 || pass(pairs_[i], true)) &&
                          (fds[2 * i + 3].revents == 0 || pass(pairs_[i], false));
        if (!open) pairs_[i].client.reset();
      }
      std::erase_if(pairs_, [](const Pair& pair) { return !pair.client.valid(); });
      if (fds[1].revents != 0) accept();
    }
  }
  void accept() {
    UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client.valid()) return;
    std::lock_guard lock(mutex_);
    pairs_.push_back({std::move(client), connectTo(server_port_), heard_.size()});
    heard_.emplace_back();
  }
  bool pass(Pair& pair, bool to_server) {
    char buffer[16384];
    const int from = to_server ? pair.client.get() : pair.server.get();
    const ssize_t got = ::recv(from, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    const std::string_view bytes(buffer, static_cast<std::size_t>(got));
    {
      std::lock_guard lock(mutex_);
      Heard& heard = heard_[pair.number];
      (to_server ? heard.to_server : heard.to_client) += bytes;
    }
    const int to = to_server ? pair.server.get() : pair.client.get();
    if (!meddle_) {
      sendAll(to, bytes);
      return true;
    }
    const Passed passed = meddle_(pair.number, to_server, bytes);
    sendAll(to, passed.bytes);
    return passed.open;
  }

  const int server_port_;
  const Meddle meddle_;
  WakeUp end_ = WakeUp::create().value();
  UniqueFd listener_;
  int port_ = 0;
  std::vector<Pair> pairs_;
  mutable std::mutex mutex_;
  std::vector<Heard> heard_;
  std::thread thread_;
};

}  // namespace trainyard
