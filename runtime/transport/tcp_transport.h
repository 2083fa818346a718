// Messages over TCP: two connections for each pair of ranks, one for each direction of data.
// Control (a rank aborts, waits, leaves) goes against the direction of the data, so that it is
// never behind any. There is no thread: the one that waits sends, receives and puts together.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "runtime/transport/frame.h"
#include "runtime/transport/tcp_mesh.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::transport {

struct TcpOptions {
  // A wait of this length is a stall: the others are told, and on_stall is called, again after
  // twice as long, and so on. At most a third of what is left until a wait's deadline.
  Duration stall_after = std::chrono::seconds(5);
  OnStall on_stall = {};  // none: a warning in the log
  Spin spin = {};
  // Of every payload, at about 0.15 ns a byte on each side. TCP's own checksum misses about one in
  // 65,536 damaged packets.
  bool checksum = false;
  // Asked a few times a second by waits and check(), on their thread: true ends the group for this
  // rank with CANCELLED. The others are told nothing: whoever cancels knows that they do so too.
  std::function<bool()> cancelled = {};
};

class TcpTransport : public Transport {
 public:
  TcpTransport(TcpMesh mesh, TcpOptions options);
  // Tells the others that this rank leaves. In a group that has failed it stays up to a second
  // until the others have heard why.
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::uint64_t send(int peer, const MessageId& id, std::span<const std::byte> bytes) override;
  std::uint64_t receive(int peer, const MessageId& id, const Landing& landing) override;
  Status waitSent(int peer, std::uint64_t count, const Wait& wait) override;
  Status waitReceived(int peer, std::uint64_t count, const Wait& wait) override;
  Status check() override;
  Status watch(OutsideWait& wait) override;
  void endWatch(const OutsideWait& wait) override;
  bool hasLeft(int peer) const override {
    return peers_[static_cast<std::size_t>(peer)].left_group;
  }
  void abort(const Status& status) override;
  const Counters& counters() const override { return counters_; }

 private:
  struct Outgoing {
    FrameBytes header;
    std::span<const std::byte> payload;
    std::size_t sent = 0;  // of header and payload together
  };
  struct Incoming {
    MessageId id;
    Landing landing;
  };
  struct Peer {
    TcpMesh::Pair connections;
    std::deque<Outgoing> sends;
    std::uint64_t posted_sends = 0;
    std::uint64_t left = 0;
    std::deque<Incoming> receives;
    std::uint64_t posted_receives = 0;
    std::uint64_t landed = 0;
    // Of the message that arrives: its header so far, payload stored or put together, and what of
    // an element has come (at the front of `scratch`).
    FrameBytes header;
    std::size_t header_have = 0;
    std::size_t payload_have = 0;
    std::size_t carry = 0;
    std::uint32_t announced_checksum = 0;
    std::uint32_t checksum = 0;
    std::vector<std::byte> scratch;
    std::string control;  // of a word that has not come whole
    std::string unsaid;   // of words to the peer
    bool control_open = true;
    bool left_group = false;
  };

  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
  template <typename Done>
  Status waitUntil(int peer, const Wait& wait, const Done& done);
  bool pushOut(int peer);
  bool takeIn(int peer);
  void took(int peer, std::size_t bytes);
  void tookPayload(Peer& from, std::size_t bytes, std::size_t carry);
  bool headerIsRight(int peer);
  void finishReceive(int peer);
  void linger();
  void awaitLastWord(int peer);
  void readControlOfAll();
  void readControl(int peer);
  void onControl(int peer, const Frame& frame, std::string_view text);
  // `detail` is of kAbort: the failure's code.
  void sendControl(int peer, FrameKind kind, std::uint64_t value, std::uint32_t detail,
                   std::string_view text);
  void sayWaiting(std::optional<int> on);
  void pollOnce(TimePoint until);
  void fail(Status status);
  bool isCancelled();
  void reportStall(int peer, const Wait& wait, Duration waited);

  const int rank_;
  const std::uint64_t epoch_;
  const TcpOptions options_;
  std::vector<Peer> peers_;
  std::vector<std::optional<int>> waiting_;  // what each rank says it waits for
  Counters counters_;
  Status failure_;
  Wait current_{};  // for failures: what this rank waits for
};

}  // namespace trainyard::runtime::transport
