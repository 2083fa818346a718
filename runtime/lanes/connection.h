// One lane's connection after its handshake: frames in both directions, on one loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/lanes/event_loop.h"
#include "runtime/lanes/frame.h"
#include "runtime/lanes/pace.h"
#include "runtime/stream/stream.h"

namespace trainyard::runtime::lanes {

// Memory to send; `owner` is released when it has left.
struct BodyPiece {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// Belongs to its loop's thread.
class Connection final : public EventLoop::Source {
 public:
  // Who reads what arrives. Called on the loop, never from within send().
  class Reader {
   public:
    virtual ~Reader() = default;
    // A frame's head and header are in and are the other side's. `body`: where its body goes, one
    // span after the other, together head.body_bytes; the memory stays valid until onFrame(),
    // skipBody() or onClosed(). Not OK: the connection ends with it.
    virtual Status onHeader(const FrameHead& head, std::string_view header,
                            std::vector<std::span<std::byte>>& body) = 0;
    // Its last byte is in. Not OK: the connection ends with it.
    virtual Status onFrame() = 0;
    // The connection has ended; nothing else follows. It must not be destroyed within.
    virtual void onClosed(const Status& why) = 0;
  };
  struct Seals {
    FrameSeal in;
    FrameSeal out;
  };

  // `loop` and `reader` must outlive it. start() begins to read.
  Connection(EventLoop& loop, std::unique_ptr<stream::Stream> stream, Seals seals, Reader& reader);
  ~Connection() override;

  void start();
  // Queues a frame and sends what the connection takes. Of nothing after the end.
  void send(FrameKind kind, Topic topic, std::uint64_t number, std::string header,
            std::vector<BodyPiece> body = {});
  // The rest of the body that is arriving goes nowhere, and is no frame any more; its memory is not
  // touched from now on. False: none is arriving.
  bool skipBody();
  // Ends it; onClosed() is called before this returns, unless it has been.
  void close(const Status& why);
  bool closed() const { return stream_ == nullptr; }
  // Nothing: the kernel does not say.
  std::optional<Pace> pace() const { return closed() ? std::nullopt : paceOf(stream_->fd()); }

  void onReady() override;

 private:
  struct Out {
    FrameBytes head;
    std::string header;
    std::vector<BodyPiece> body;
  };
  void write();
  void dropWritten(std::size_t bytes);
  void gather(std::vector<iovec>& parts) const;
  void read();
  StatusOr<bool> readSome();
  Status takeHeads();
  Status begin(const FrameHead& head);
  std::size_t fillBody(std::span<const std::byte> bytes);
  Status endBody();
  void watch();

  EventLoop& loop_;
  std::unique_ptr<stream::Stream> stream_;  // null: closed
  Seals seals_;
  Reader& reader_;

  std::deque<Out> out_;
  std::size_t sent_ = 0;  // bytes of the first one
  std::vector<iovec> parts_;
  bool watches_writable_ = false;

  // Heads and headers, and what comes with them in one read.
  std::vector<std::byte> staged_;
  std::size_t begin_ = 0, end_ = 0;
  bool in_body_ = false;
  bool skipping_ = false;                   // the body goes nowhere
  std::vector<std::span<std::byte>> body_;  // what is still to come
  std::size_t at_ = 0;                      // the first of body_ that is
  std::uint64_t left_ = 0;                  // bytes of the body
};

}  // namespace trainyard::runtime::lanes
