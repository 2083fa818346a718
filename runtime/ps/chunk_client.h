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
#include "grpcpp/generic/generic_stub.h"
#include "runtime/ps/wire.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// Thread-safe.
class ChunkClient {
 public:
  // Called from gRPC's threads.
  struct Events {
    std::function<void(std::uint32_t chunk, std::uint64_t attempt)> received;
    // `payload` is null unless status is OK.
    std::function<void(std::uint32_t chunk, std::uint64_t attempt, const Status& status,
                       const v1::ChunkReplyHeader& header, std::unique_ptr<WirePayload> payload)>
        replied;
  };

  // `call_limit` bounds one call; the server answers or says NOT_READY well before.
  ChunkClient(std::string token, Duration call_limit, Events events);
  ~ChunkClient();  // closes

  // Where ps `ps` listens from now on ("ip:port").
  void setAddress(int ps, const std::string& address);
  void send(int ps, std::uint64_t attempt, const v1::ChunkRequestHeader& header,
            const std::vector<PayloadPiece>& payload);
  // Gives up all calls in flight; their `replied` comes with CANCELLED.
  void cancelAll();
  // Gives up all calls in flight and waits for their `replied`; later sends are answered CANCELLED.
  void close();

 private:
  class Call;
  struct Server {
    std::string address;
    // Several connections: one TCP flow does not fill a fast link.
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    std::vector<std::shared_ptr<grpc::GenericStub>> stubs;
    std::size_t next = 0;
  };
  void finished(Call* call);

  const std::string token_;
  const Duration call_limit_;
  const Events events_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<Server> servers_;
  std::vector<Call*> calls_;
  bool closed_ = false;
};

}  // namespace trainyard::runtime::ps
