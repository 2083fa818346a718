// Keeps a member and the coordinator in touch: sends reports, brings views.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/core/clock.h"
#include "base/rpc/callback_threads.h"
#include "base/security/job_keys.h"
#include "trainyard/v1/coordinator.grpc.pb.h"

namespace trainyard::runtime {

// One thread of its own. A report goes out when poked, when the former one was answered, and again
// after a failure; at most two are under way (the newer one makes the coordinator answer the
// older).
class MemberLink {
 public:
  struct Options {
    TlsIdentity identity;  // RuntimeKeys::control
    Duration heartbeat = std::chrono::seconds(1);
    Duration retry_delay = std::chrono::milliseconds(100);
  };
  // `report` is called for each call, on the link's thread; `view` on gRPC's threads. A member with
  // a token of another job gets a view that holds a refusal alone.
  MemberLink(Options options, const Clock& clock, std::function<v1::MemberReport()> report,
             std::function<void(const v1::View&)> view);
  ~MemberLink();  // closes

  // Where the coordinator listens ("ip:port"); may change.
  void setAddress(const std::string& address);
  void start();
  // Report at once: something changed. Any thread, never blocks.
  void poke();
  // Sends a question of its own (see TakeRequest). `answer` is called once, on gRPC's thread, or
  // before this returns when there is no coordinator.
  void take(const v1::TakeRequest& request,
            std::function<void(const grpc::Status&, const v1::TakeReply&)> answer);
  // Sends no more, but lets calls under way end.
  void stop();
  // Stops and waits for calls under way: afterwards neither function is called any more.
  void close();
  // Consecutive failures; for messages like "cannot reach the coordinator at ...".
  std::string problem() const;
  // Waits until a report that was made after this call was answered, or `limit` has passed.
  bool flush(Duration limit);

 private:
  struct Call;
  struct TakeCall;
  void run();
  void send(std::unique_lock<std::mutex>& lock);
  void done(Call* call, const grpc::Status& status);
  bool countDenial();
  v1::View denial() const;

  const std::shared_ptr<CallbackThreads> threads_ = CallbackThreads::hold();
  const Options options_;
  const Clock& clock_;
  const std::function<v1::MemberReport()> report_;
  const std::function<void(const v1::View&)> view_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string address_;
  std::shared_ptr<v1::Coordinator::Stub> stub_;
  bool poked_ = true;
  bool stopping_ = false;
  int under_way_ = 0;
  int under_way_takes_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t answered_ = 0;  // highest number of an answered report
  int denials_ = 0;             // in a row
  TimePoint not_before_{};
  std::string problem_;
  std::thread thread_;
};

}  // namespace trainyard::runtime
