// One end of a lane, whose other end says what the fuzzer's input says.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/lanes/connection.h"
#include "runtime/lanes/event_loop.h"
#include "runtime/lanes/frame.h"

namespace trainyard::fuzz {

// The loop of all connections of this process. Its thread is not the fuzzer's.
runtime::lanes::EventLoop& laneLoop();
// Does it on that thread, and waits for its end.
void onLaneLoop(const std::function<void()>& what);

// A frame that its receiver should take. `body`: as much of it as there is.
struct FedFrame {
  runtime::lanes::FrameHead head;
  std::string header;
  std::string body;
};

// The bytes of the other side. The first byte of the input says how many come at a time (0: as many
// as can), the second what else happens on the way (Way). Each frame whose seal is 0 gets the right
// one: hardly any other input would have it.
class LaneFeed {
 public:
  // Writing does; the other side does at last; numbers in bodies have 16 bits, where that counts.
  enum Way : unsigned char { kBlocks = 1, kEnds = 2, kNarrow = 4 };
  using Open = std::function<std::unique_ptr<runtime::lanes::Connection::Reader>(
      runtime::lanes::Connection&)>;

  explicit LaneFeed(std::string_view input);

  // Feeds all of it to a connection with this reader, on the loop. What the reader is shown must be
  // frames() in their order with their bodies, and no other end than what is wrong with the input
  // or the reader says. Returns what was sent.
  std::string run(const Open& open);
  const std::vector<FedFrame>& frames() const { return frames_; }
  bool narrow() const { return (way_ & kNarrow) != 0; }

 private:
  class Wire;
  class Witness;
  void seal();
  static void feed(runtime::lanes::Connection& connection, Wire& wire);

  const unsigned char step_;
  const unsigned char way_;
  std::string bytes_;
  std::vector<FedFrame> frames_;
  bool wrong_ = false;  // what follows them is no frame
};

// The frames in what was sent, of which the last may be cut short.
std::vector<FedFrame> framesOf(std::string_view sent);

// An input: frames without a seal, and what stands before them.
std::string fedFrame(runtime::lanes::FrameKind kind, runtime::lanes::Topic topic,
                     std::uint64_t number, std::string_view header, std::string_view body = "");
// Each of these bytes in one piece, and in small ones with all that can happen.
std::vector<std::string> fedSeeds(const std::vector<std::string>& messages);

}  // namespace trainyard::fuzz
