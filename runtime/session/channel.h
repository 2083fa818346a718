// Messages over a Unix socket between a program and its member.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "base/process/unique_fd.h"
#include "runtime/session/message.h"

namespace trainyard::runtime::session {

// Asked some 20 times a second by whoever waits; true ends the wait.
using Cancelled = std::function<bool()>;

// Of one thread. Errors end it: UNAVAILABLE (the other end is gone), DATA_LOSS (not of this
// protocol), CANCELLED.
class Channel {
 public:
  explicit Channel(UniqueFd fd) : fd_(std::move(fd)) {}
  // UNAVAILABLE, naming the path, when nobody listens there.
  static StatusOr<Channel> connect(const std::string& path);

  Status send(Kind kind, std::string_view body);
  StatusOr<Message> receive(const Cancelled& cancelled);
  // The body of a message of this kind. What the other end failed with, where it says so.
  StatusOr<std::string> receive(Kind kind, const Cancelled& cancelled);
  int fd() const { return fd_.get(); }

 private:
  Status read(char* into, std::size_t bytes, const Cancelled& cancelled);

  UniqueFd fd_;
};

// A socket file that only this user may connect to; removed with it. What another process left at
// `path` is replaced.
class ChannelListener {
 public:
  static StatusOr<ChannelListener> open(const std::string& path);
  ChannelListener(ChannelListener&& other) noexcept;
  ChannelListener& operator=(ChannelListener&&) = delete;
  ~ChannelListener();

  StatusOr<Channel> accept(const Cancelled& cancelled);
  const std::string& path() const { return path_; }

 private:
  ChannelListener(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
};

}  // namespace trainyard::runtime::session
