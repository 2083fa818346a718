// Messages from one rank to another, outside of the order of the group's operations: over
// connections of their own, by a thread of its own, which begins with the first message.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/process/unique_fd.h"
#include "runtime/client/letter_box.h"
#include "runtime/client/work.h"
#include "runtime/transport/tcp_mesh.h"

namespace trainyard::runtime::client {

// Thread-safe, but for close(), which is one thread's.
class Mail {
 public:
  // `timeout`: of one message, from when it was given.
  Mail(transport::TcpMesh mesh, Duration timeout, std::shared_ptr<Monitor> monitor);
  ~Mail();  // close()
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  // Precondition: another rank of the group.
  std::shared_ptr<Work> send(int to, std::uint64_t tag, const collective::Array& array);
  std::shared_ptr<Work> receive(int from, std::uint64_t tag, const collective::Array& into);
  // What is under way fails with `why`, as all that comes later.
  void close(const Status& why);

 private:
  struct Outgoing {
    LetterBytes header;
    collective::Array array;
    std::size_t sent = 0;  // of header and array together
    TimePoint deadline;
    std::shared_ptr<Work> work;
  };
  // One that is lost keeps its connections, shut down, until close(): a forked child closes them by
  // their numbers, which must be nobody else's until then.
  struct Peer {
    std::unique_ptr<stream::Stream> out, in;
    bool lost = false;
    bool takes() const { return out != nullptr && !lost; }
    bool gives() const { return in != nullptr && !lost; }
    std::deque<Outgoing> sends;
    LetterBytes header;
    std::size_t header_have = 0;
    std::size_t have = 0;  // of the letter's bytes
    std::optional<Arrival> arrival;
  };

  void begin();
  void wake();
  void loop();
  void waitForEvents();
  TimePoint nextDeadline() const;
  void pushOut(int rank, Peer& peer, std::vector<Delivered>& done);
  void takeIn(int rank, Peer& peer, std::vector<Delivered>& done);
  void lose(int rank, Status why, std::vector<Delivered>& done);
  void expire(std::vector<Delivered>& done);
  bool anybodyLeft() const;

  const int rank_;
  const Duration timeout_;
  const std::shared_ptr<Monitor> monitor_;
  std::mutex mutex_;  // all below but the thread
  std::vector<Peer> peers_;
  LetterBox box_;
  Status closed_;
  UniqueFd wake_;
  std::thread thread_;
};

}  // namespace trainyard::runtime::client
