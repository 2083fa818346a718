// Sends chunk requests to the parameter servers over gRPC.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/rpc/callback_threads.h"
#include "base/rpc/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "runtime/ps/shared_slots.h"
#include "runtime/ps/wire.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::ps {

// Who offers memory to servers on its own machine, and of which chunks by server; none: nobody.
struct ChunkSharing {
  std::uint32_t worker = 0;
  std::vector<std::vector<SharedSlots::Chunk>> chunks = {};
};

// What lets a client push to a job's servers.
struct DataAccess {
  std::string key;  // see PsService
  // Of this process (secureClient()); null: unencrypted.
  std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr;
};

// Payloads go with the messages, and through shared memory once a near server has opened it.
// Thread-safe.
class ChunkClient {
 public:
  struct Reply {
    int ps = 0;  // whom the request was sent to
    std::uint32_t chunk = 0;
    std::uint64_t attempt = 0;
    Status status;  // of the call itself
    v1::ChunkReplyHeader header = {};
    std::unique_ptr<WirePayload> payload = nullptr;  // null unless status is OK
  };
  // Called from gRPC's threads.
  struct Events {
    std::function<void(std::uint32_t chunk, std::uint64_t attempt)> received;
    std::function<void(Reply reply)> replied;
  };

  // `call_limit` bounds one call; the server answers or says NOT_READY well before.
  ChunkClient(DataAccess access, Duration call_limit, Events events, ChunkSharing sharing = {});
  ~ChunkClient();  // closes

  // Where ps `ps` listens from now on ("ip:port"); `near`: on this machine.
  void setAddress(int ps, const std::string& address, bool near = false);
  // Which chunks go to which server from now on; memory is shared anew where that changes.
  void share(std::vector<std::vector<SharedSlots::Chunk>> chunks);
  // Not OK: nothing was sent, and there will be no reply. UNAVAILABLE: there is no address yet;
  // CANCELLED: closed.
  [[nodiscard]] Status send(int ps, std::uint64_t attempt, const v1::ChunkRequestHeader& header,
                            const std::vector<PayloadPiece>& payload);
  // Gives up all calls in flight; their `replied` comes with CANCELLED.
  void cancelAll();
  // Gives up all calls in flight and waits for their `replied`.
  void close();

 private:
  class Call;
  class Offer;
  struct Server {
    std::string address;
    bool near = false;  // on this machine
    // Several connections: one TCP flow does not fill a fast link.
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    std::vector<std::shared_ptr<grpc::GenericStub>> stubs;
    std::size_t next = 0;
    std::shared_ptr<SharedSlots> slots;  // null: not offered, or not yet opened
  };
  void offer(int ps, const std::string& address);
  void offered(Offer* offer, const Status& status);
  void giveUp(int ps, const std::shared_ptr<SharedSlots::Hold>& hold);
  void finished(Call* call);

  void ended();

  const std::shared_ptr<CallbackThreads> threads_ = CallbackThreads::hold();
  const DataAccess access_;
  const Duration call_limit_;
  const Events events_;
  std::mutex mutex_;
  ChunkSharing sharing_;
  std::condition_variable idle_;
  std::vector<Server> servers_;
  std::vector<Call*> calls_;
  std::vector<Offer*> offers_;
  int under_way_ = 0;  // calls and offers that are not destroyed yet
  bool closed_ = false;
};

}  // namespace trainyard::runtime::ps
