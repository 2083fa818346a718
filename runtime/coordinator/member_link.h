// Keeps a member and the coordinator in touch: sends reports, brings views.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
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

// Two threads of its own. A report goes out when poked, when the former one was answered, and again
// after a failure; at most two are under way (the newer one makes the coordinator answer the
// older).
class MemberLink {
 public:
  struct Options {
    TlsIdentity identity;  // RuntimeKeys::control
    Duration heartbeat = std::chrono::seconds(1);
    Duration retry_delay = std::chrono::milliseconds(100);
  };
  // `report` is called for each call, on the link's thread; `view` on another one of the link's, in
  // the order in which views come. However long a view takes, a report goes out each heartbeat: who
  // is busy is not dead. A member with a token of another job gets a view that holds a refusal
  // alone.
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
  // Waits until `view` has had the answer to a report that was made after this call, or `limit` has
  // passed. Not from `view`.
  bool flush(Duration limit);

 private:
  struct Call;
  struct TakeCall;
  struct Answer {
    std::uint64_t number = 0;  // of the report
    v1::View view;
  };
  void run();
  void takeViews();
  bool wantsReport(TimePoint now) const;
  void send(std::unique_lock<std::mutex>& lock);
  void done(Call* call, const grpc::Status& status);
  void countDenial();

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
  std::deque<Answer> answers_;  // the first is being taken, the others wait
  std::uint64_t sent_ = 0;
  TimePoint sent_at_{};
  std::uint64_t taken_ = 0;  // highest number of a report whose answer was taken
  bool heard_ = false;       // a report was answered
  int denials_ = 0;          // in a row
  TimePoint not_before_{};
  std::string problem_;
  std::thread thread_;
  std::thread views_;
};

}  // namespace trainyard::runtime
