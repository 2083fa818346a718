// The coordinator with a socket, a clock and a checkpoint directory around it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/core/clock.h"
#include "base/core/work_thread.h"
#include "runtime/checkpoint/claim.h"
#include "runtime/coordinator/coordinator.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.grpc.pb.h"

namespace trainyard::runtime {

// Thread-safe. Must outlive its server, which must know its clients (checkPeer()); stop() before
// the server is destroyed.
class CoordinatorService final : public v1::Coordinator::CallbackService {
 public:
  struct Options {
    std::string checkpoint_dir;
    int keep = 5;
    // What the manifest says beside what the coordinator knows (variables, optimizer, data, ...).
    std::function<void(Manifest&, const v1::DataFingerprint&)> complete;
    std::function<void(const v1::Evaluation&)> evaluated;
    // Makes durable that the job is over.
    std::function<Status(const FinishAction&)> finish;
    // Of this coordinator to the directory; null: nobody else writes there. Looked at before
    // anything is written, and from time to time: a coordinator that is not heard any more goes on
    // no longer than that beside the one in its place.
    std::shared_ptr<Claim> claim;
    Duration claim_every = std::chrono::seconds(5);
    // Another has begun in this coordinator's place: nothing is written any more. Called by the
    // thread that writes, perhaps more than once.
    std::function<void(const Status&)> displaced;
  };
  CoordinatorService(Options options, Coordinator coordinator, const Clock& clock);
  ~CoordinatorService() override;

  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context,
                                 const v1::MemberReport* report, v1::View* view) override;
  grpc::ServerUnaryReactor* Take(grpc::CallbackServerContext* context,
                                 const v1::TakeRequest* request, v1::TakeReply* reply) override;
  void setMembership(const v1::Membership& membership);
  // As Coordinator::requestStop.
  void requestStop(std::optional<Duration> within = std::nullopt);
  // What a directive asks for: requestStop() where it does.
  void follow(const v1::RuntimeDirective& directive);
  // What only the coordinator's process tells: of the job, and whom it hears.
  void fill(v1::RuntimeReport& report) const;
  void measure(v1::Measurements& measured) const;
  bool finished() const;
  v1::Phase phase() const;
  std::string failure() const;
  // Ends the threads and answers what is parked. Waits for a file that is being written.
  void stop();

 private:
  template <typename Reply>
  class Call;
  template <typename Reply>
  using Calls = std::map<std::uint64_t, Call<Reply>*>;
  template <typename Reply>
  Calls<Reply>& calls();
  template <typename Reply>
  Call<Reply>* take(std::uint64_t ticket);
  template <typename Reply, typename Event>
  grpc::ServerUnaryReactor* serve(grpc::CallbackServerContext* context, Reply* reply, Event event);
  template <typename Event>
  void handle(Event event);
  void execute(std::vector<CoordinatorAction> actions);
  void commit(Manifest manifest);
  Status commitAndPrune(Manifest& manifest);
  Status holdClaim();
  void watchClaim(TimePoint now);
  void finish(const FinishAction& end);
  void tick();
  bool stopped() const;

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Coordinator coordinator_;
  std::uint64_t next_ticket_ = 1;
  Calls<v1::View> reports_;
  Calls<v1::TakeReply> takes_;
  bool stopping_ = false;
  TimePoint claim_seen_{};          // of the ticker's thread alone
  std::atomic<bool> looks_{false};  // at the claim, or is about to
  WorkThread files_;                // a disk that does not answer must not stop the clock
  std::thread ticker_;
};

}  // namespace trainyard::runtime
