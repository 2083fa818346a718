// What our code relies on in gRPC's calls. The thread sanitizer runs it, and whatever else has the
// label `threads`, with tests/fakes/grpc in gRPC's place: that is held to the same.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/rpc/callback_threads.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/task_server.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"
#include "trainyard/v1/coordinator.grpc.pb.h"

namespace trainyard {
namespace {

using testing::ElementsAre;

constexpr Duration kCallsEnd = std::chrono::seconds(60);

// What happened, in order; any thread.
class Log {
 public:
  void add(const std::string& what) {
    std::lock_guard lock(mutex_);
    lines_.push_back(what);
    changed_.notify_all();
  }
  // All there is, once there are so many.
  std::vector<std::string> await(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kCallsEnd, [&] { return lines_.size() >= count; }));
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

// Keeps each call of Sync until release(); answers a Take at once, one way or the other.
class Service final : public v1::Coordinator::CallbackService {
 public:
  explicit Service(Log& log) : log_(log) {}
  void release() {
    std::vector<Parked*> parked;
    {
      std::lock_guard lock(mutex_);
      parked.swap(parked_);
    }
    for (Parked* call : parked) call->Finish(grpc::Status::OK);
  }
  void awaitParked(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kCallsEnd, [&] { return parked_.size() >= count; }));
  }

 private:
  class Parked final : public grpc::ServerUnaryReactor {
   public:
    explicit Parked(Service& service) : service_(service) {}
    void OnCancel() override {
      service_.log_.add("cancelled");
      if (service_.remove(this)) Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override {
      service_.log_.add("done");
      const std::unique_ptr<Parked> owner(this);
    }

   private:
    Service& service_;
  };
  bool remove(Parked* call) {
    std::lock_guard lock(mutex_);
    return std::erase(parked_, call) > 0;
  }
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext*, const v1::MemberReport*,
                                 v1::View* view) override {
    auto* const call = std::make_unique<Parked>(*this).release();
    view->set_sequence(7);
    call->StartSendInitialMetadata();
    std::lock_guard lock(mutex_);
    parked_.push_back(call);
    changed_.notify_all();
    return call;
  }
  // From another thread, and before the handler has returned.
  grpc::ServerUnaryReactor* Take(grpc::CallbackServerContext* context, const v1::TakeRequest*,
                                 v1::TakeReply*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    std::thread([reactor] { reactor->Finish({grpc::StatusCode::NOT_FOUND, "nothing"}); }).join();
    return reactor;
  }

  Log& log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Parked*> parked_;
};

// One Sync, whose events are written down.
class ParkedCall final : public grpc::ClientUnaryReactor {
 public:
  ParkedCall(Log& log, v1::Coordinator::Stub& stub, Duration limit = kCallsEnd) : log_(log) {
    setDeadline(context_, limit);
    stub.async()->Sync(&context_, &report_, &view_, this);
  }
  void cancel() { context_.TryCancel(); }
  const v1::View& view() const { return view_; }

 private:
  void OnReadInitialMetadataDone(bool ok) override { log_.add(ok ? "heard" : "not heard"); }
  void OnDone(const grpc::Status& status) override {
    log_.add("ended with " + std::to_string(status.error_code()));
  }
  Log& log_;
  grpc::ClientContext context_;
  v1::MemberReport report_;
  v1::View view_;
};

class CallsTest : public testing::Test {
 protected:
  CallsTest() : service_(server_log_) {
    auto started = TaskServer::start({.what = "ps-0", .identity = keys_.control}, {&service_});
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    stub_ = v1::Coordinator::NewStub(openSecureChannel(
        "127.0.0.1:" + std::to_string(server_->port()), keys_.control, kRuntimeServerName));
  }
  ~CallsTest() override {
    service_.release();
    server_.reset();
  }
  static std::string endedWith(grpc::StatusCode code) {
    return "ended with " + std::to_string(code);
  }

  const std::shared_ptr<CallbackThreads> threads_ = CallbackThreads::hold();
  const RuntimeKeys keys_ = deriveRuntimeKeys("the-token");
  Log server_log_;
  Log client_log_;
  Service service_;
  std::unique_ptr<TaskServer> server_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

TEST_F(CallsTest, ACallIsHeardBeforeItsAnswer) {
  ParkedCall call(client_log_, *stub_);
  call.StartCall();
  EXPECT_THAT(client_log_.await(1), ElementsAre("heard"));
  service_.release();
  EXPECT_THAT(client_log_.await(2), ElementsAre("heard", endedWith(grpc::StatusCode::OK)));
  EXPECT_EQ(call.view().sequence(), 7u);
  EXPECT_THAT(server_log_.await(1), ElementsAre("done"));
}

TEST_F(CallsTest, AHandlerMayBeAnsweredForBeforeItReturns) {
  grpc::ClientContext context;
  setDeadline(context, kCallsEnd);
  v1::TakeReply reply;
  const grpc::Status status = stub_->Take(&context, {}, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "nothing");
}

TEST_F(CallsTest, WhoCancelsIsToldAndTheServerToo) {
  ParkedCall call(client_log_, *stub_);
  call.StartCall();
  client_log_.await(1);
  call.cancel();
  EXPECT_THAT(client_log_.await(2), ElementsAre("heard", endedWith(grpc::StatusCode::CANCELLED)));
  EXPECT_THAT(server_log_.await(2), ElementsAre("cancelled", "done"));
}

TEST_F(CallsTest, ACallEndsAtItsDeadline) {
  ParkedCall call(client_log_, *stub_, std::chrono::seconds(1));
  call.StartCall();
  EXPECT_THAT(client_log_.await(2).back(), endedWith(grpc::StatusCode::DEADLINE_EXCEEDED));
}

TEST_F(CallsTest, CancelledBeforeItStartsItEndsAllTheSame) {
  ParkedCall call(client_log_, *stub_);
  call.cancel();
  call.StartCall();
  EXPECT_THAT(client_log_.await(2).back(), endedWith(grpc::StatusCode::CANCELLED));
}

TEST_F(CallsTest, AServerThatEndsTakesItsCallsAlong) {
  ParkedCall call(client_log_, *stub_);
  call.StartCall();
  service_.awaitParked(1);
  server_.reset();
  EXPECT_THAT(server_log_.await(2), ElementsAre("cancelled", "done")) << "before it is gone";
  client_log_.await(2);
  grpc::ClientContext context;
  setDeadline(context, kCallsEnd);
  v1::View view;
  EXPECT_EQ(stub_->Sync(&context, {}, &view).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(CallsTest, AnsweredAndCancelledAtOnceACallStillEndsOnce) {
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    Log log;
    ParkedCall call(log, *stub_);
    call.StartCall();
    service_.awaitParked(1);
    std::thread canceller([&] { call.cancel(); });
    service_.release();
    canceller.join();
    log.await(2);
  }
  EXPECT_TRUE(eventually([&] {
    const std::vector<std::string> lines = server_log_.await(0);
    return std::count(lines.begin(), lines.end(), "done") == kRounds;
  }));
}

}  // namespace
}  // namespace trainyard
