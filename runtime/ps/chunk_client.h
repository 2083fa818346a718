// Sends chunk requests to the parameter servers over lanes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/lanes/event_loop.h"
#include "runtime/lanes/greeting.h"
#include "runtime/ps/chunk_link.h"
#include "runtime/ps/payload.h"
#include "runtime/ps/shared_payloads.h"
#include "runtime/tensor/element_type.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// Payloads go with the messages; to servers on this machine they stay in memory that those read,
// as weights that come back do in theirs. What arrives is stored where it belongs while it arrives.
// Thread-safe; one thread of its own.
class ChunkClient {
 public:
  using Reply = ChunkReply;
  using Events = ChunkEvents;
  struct Options {
    DataAccess access;
    // Bounds one call; the server answers or says NOT_READY well before.
    Duration call_limit = std::chrono::seconds(90);
    // Servers of the grid: lanes take turns among the chunks that one of them has.
    int grid = 1;
    // Memory that servers on this machine may read, asked for once, by who sends to the first of
    // them, and without a lock; none: nothing is shared.
    std::function<StatusOr<std::shared_ptr<SharedPool>>()> memory = {};
    bool reads_weights = true;                 // from theirs; else answers have none
    ElementType wire = ElementType::kFloat32;  // of bodies, both ways
  };

  ChunkClient(Options options, Events events);
  ~ChunkClient();  // closes

  // Where ps `ps`, or kWorkerKeeper, listens from now on ("ip:port"); `near`: on this machine.
  void setAddress(int ps, const std::string& address, bool near = false);
  // The payload's bytes as they are sent. Not OK: nothing was sent, and there will be no reply.
  // UNAVAILABLE: there is no address yet; CANCELLED: closed.
  [[nodiscard]] StatusOr<std::size_t> send(int ps, std::uint64_t attempt,
                                           v1::ChunkRequestHeader header,
                                           const std::vector<PayloadPiece>& payload);
  // The same with a body as it is (row_body.h), which is always sent.
  [[nodiscard]] StatusOr<std::size_t> sendBytes(int ps, std::uint64_t attempt,
                                                v1::ChunkRequestHeader header,
                                                lanes::BodyPiece body);
  // Nothing is expected any more of what was sent before: no event but cut() follows for it.
  void forget();
  // Gives up all calls in flight; their replied() or cut() comes with CANCELLED before this
  // returns. Not from an event.
  void close();

 private:
  struct Server {
    std::string address;
    bool near = false;
    // Of memory: offered again after a restart of the server, not after a refusal.
    enum class Offer { kNone, kMade, kRefused, kTaken } offer = Offer::kNone;
  };
  ChunkLink& linkOf(int ps);
  void post(int ps, ChunkLink::Target target, std::optional<v1::ShareMemoryRequest> offer,
            ChunkLink::Request request);
  void makeMemory(int ps);
  std::optional<v1::ShareMemoryRequest> offerOf(Server& server);
  void opened(int ps, const Status& status);

  const Options options_;
  const Events events_;
  std::mutex mutex_;
  std::shared_ptr<SharedPayloads> payloads_;  // null: no memory, or none yet
  bool memory_asked_ = false;
  BodyPool bodies_;
  std::map<int, Server> servers_;  // by ps
  bool closed_ = false;
  std::map<int, std::unique_ptr<ChunkLink>> links_;  // by ps; the loop's thread alone
  Status trouble_;                                   // the process may not have a loop
  std::unique_ptr<lanes::EventLoop> loop_;
};

}  // namespace trainyard::runtime::ps
