// Requests to one server: which of them are under way, what its answers belong to, where the
// weights go. On the thread of its client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/lanes/lane_client.h"
#include "runtime/ps/payload.h"
#include "runtime/ps/shared_peers.h"
#include "runtime/tensor/element_type.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

struct ChunkReply {
  int ps = 0;  // whom the request was sent to
  std::uint32_t chunk = 0;
  std::uint64_t attempt = 0;
  Status status;  // of the call itself
  v1::ChunkReplyHeader header = {};
  std::size_t elements = 0;  // of weights that come with it
  std::size_t bytes = 0;     // that these have on the wire, or in shared memory
  int lane = 0;
  std::optional<lanes::Pace> pace = {};  // of the lane; nothing where the payload went elsewhere
};
// Called from the client's thread, and for what is refused at once from send()'s.
struct ChunkEvents {
  std::function<void(std::uint32_t chunk, std::uint64_t attempt)> received;
  // Where the weights go, one span after the other, together reply.elements; nothing: nowhere. Then
  // and with a failure nothing follows, else stored() or cut().
  std::function<std::vector<std::span<float>>(const ChunkReply& reply)> replied;
  std::function<void(const ChunkReply& reply)> stored;
  // Not all of the weights have come, and no more will; nothing is written there any more.
  std::function<void(const ChunkReply& reply, const Status& why)> cut;
};

// Who pushes, and what lets it.
struct DataAccess {
  lanes::LaneSecrets secrets;
  lanes::End self;
};

class ChunkLink final : public lanes::LaneClient::Reader {
 public:
  struct Options {
    int ps = 0;
    DataAccess access;
    Duration call_limit;
    int grid = 1;
    ElementType wire = ElementType::kFloat32;  // of bodies
    // An offer of memory has been answered: both sides read each other's, or not. Later also with
    // what kept this side from reading the server's.
    std::function<void(const Status&)> opened;
  };
  // Where a process of the server listens.
  struct Target {
    std::string address;
    lanes::End server;
  };
  struct Request {
    std::uint32_t chunk = 0;
    std::uint64_t attempt = 0;
    std::string header;
    std::vector<lanes::BodyPiece> body = {};
    bool shared = false;  // its payload is in memory that the server reads
  };

  // `events` must outlive it.
  ChunkLink(lanes::EventLoop& loop, Options options, const ChunkEvents& events);

  void send(const Target& target, Request request);
  void offer(const Target& target, const v1::ShareMemoryRequest& memory);
  void forget();
  // Nothing is under way afterwards.
  void end(const Status& why);
  void tick(TimePoint now);

  Status onHeader(int lane, const lanes::FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override;
  Status onFrame(int lane) override;
  void onLost(std::optional<int> lane, const Status& why) override;

 private:
  struct Pending {
    std::uint64_t key = 0;
    std::uint32_t chunk = 0;
    std::uint64_t attempt = 0;
    TimePoint sent{};
    bool shared = false;
    bool offer = false;  // of memory, no request
    bool forgotten = false;
  };
  // What is being read on a lane.
  struct Arriving {
    std::optional<ChunkReply> storing = std::nullopt;
    // 16-bit weights, and where they go when all are there.
    std::shared_ptr<std::byte[]> narrow = nullptr;
    std::vector<std::span<float>> targets = {};
  };
  void aim(const Target& target);
  void fail(Pending pending, const Status& why);
  using Waiting = std::unordered_map<std::uint64_t, Pending>::iterator;
  Status onChunk(int lane, Waiting found, std::string_view header, std::uint64_t bytes,
                 std::vector<std::span<std::byte>>& body);
  void store(int lane, ChunkReply reply, std::vector<std::span<float>> targets,
             std::vector<std::span<std::byte>>& body);
  Status onOffered(const lanes::FrameHead& head, std::string_view header);
  void copyShared(const ChunkReply& reply, const SharedPart& weights) const;

  lanes::EventLoop& loop_;
  const Options options_;
  const ChunkEvents& events_;
  Target target_;
  std::unique_ptr<lanes::LaneClient> client_;
  SharedFiles files_;
  SharedPeer memory_{files_};  // of the process that is called
  std::uint64_t number_ = 0;
  std::unordered_map<std::uint64_t, Pending> pending_;  // by number
  std::vector<Arriving> arriving_;                      // by lane
  BodyPool bodies_;
};

}  // namespace trainyard::runtime::ps
