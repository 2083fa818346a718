// A caller's ends of its lanes to one server: called when something is to be sent, and again after
// a failure. Belongs to its loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/lanes/connection.h"
#include "runtime/lanes/event_loop.h"
#include "runtime/lanes/greeting.h"
#include "runtime/lanes/pace.h"

namespace trainyard::runtime::lanes {

class LaneClient {
 public:
  // Who reads what the server says. Never called from within send().
  class Reader {
   public:
    virtual ~Reader() = default;
    // As Connection::Reader's.
    virtual Status onHeader(int lane, const FrameHead& head, std::string_view header,
                            std::vector<std::span<std::byte>>& body) = 0;
    virtual Status onFrame(int lane) = 0;
    // What was sent on this lane and not answered will not be; nothing: on none.
    virtual void onLost(std::optional<int> lane, const Status& why) = 0;
  };
  struct Request {
    std::uint64_t number = 0;
    Topic topic = Topic::kChunk;
    std::uint64_t key = 0;  // of two requests with one key the first arrives first
    std::string header;
    std::vector<BodyPiece> body = {};
  };

  // `loop` and `reader` must outlive it; `intro`'s lane is none.
  LaneClient(EventLoop& loop, std::string address, LaneSecrets secrets, Intro intro,
             Reader& reader);
  ~LaneClient();

  // UNAVAILABLE, with what happened: the server cannot be reached, and it is too early to try
  // again.
  Status send(Request request);
  // The lane of a key; nothing as long as the server has not said how many there are.
  std::optional<int> laneOf(std::uint64_t key) const;
  // Of a lane's connection; nothing: there is none, or nothing is known of it.
  std::optional<Pace> pace(int lane) const;
  // The body that is arriving on a lane goes nowhere; false: none is.
  bool skipBody(int lane);
  // Ends one lane: onLost() follows. It is called again when something is to be sent.
  void drop(std::optional<int> lane, const Status& why);
  // To be called now and then.
  void tick(TimePoint now);

 private:
  class Lane;
  Lane& laneAt(std::uint64_t key);
  void ready(Lane& lane, StatusOr<Greeted> greeted);

  EventLoop& loop_;
  const std::string address_;
  const LaneSecrets secrets_;
  const Intro intro_;
  Reader& reader_;
  std::optional<std::size_t> count_;  // of the server's lanes
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Request> waiting_;  // for the number of lanes
  // Posted tasks of an object that is gone do nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace trainyard::runtime::lanes
