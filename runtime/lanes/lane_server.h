// A server's ends of its lanes: one loop, a data thread, for each of them; lane k of every caller
// is on thread k.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "base/process/unique_fd.h"
#include "runtime/lanes/connection.h"
#include "runtime/lanes/event_loop.h"
#include "runtime/lanes/greeting.h"

namespace trainyard::runtime::lanes {

// take(): any thread. Sessions belong to the threads of their lanes.
class LaneServer {
 public:
  struct Options {
    int lanes = 1;
    LaneSecrets secrets;
    // Why a caller is not taken, or "". On the first thread.
    std::function<std::string(const Intro&)> judge;
    // Who reads what the caller says, on the lane's thread; the connection is the reader's as long
    // as that lives, which is a little longer than until its onClosed().
    std::function<std::unique_ptr<Connection::Reader>(Connection&, const Intro&)> open;
  };
  // Errors as of EventLoop::start().
  static StatusOr<std::unique_ptr<LaneServer>> start(Options options);
  // As stop().
  ~LaneServer();
  // Ends all connections and threads. Neither from a data thread nor twice at a time.
  void stop();

  // A connection that has come to the task's port, of which nothing has been read.
  void take(UniqueFd socket);
  int lanes() const { return static_cast<int>(threads_.size()); }
  EventLoop& loop(int lane) const;

 private:
  struct Peer;
  struct Thread;
  explicit LaneServer(Options options);
  void greet(UniqueFd socket);
  void greeted(StatusOr<Greeted> result);
  void open(Greeted greeted);
  void tick();

  const Options options_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::unique_ptr<Greeting>> greetings_;  // the first thread's
  TimePoint tell_not_before_{};                       // the first thread's
};

}  // namespace trainyard::runtime::lanes
