// Agents that answer as they are told to, and who knows of them, for what polls agents.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/rpc/channel.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "operator/progress/grpc_progress.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::control {

inline constexpr TaskKey kPs0{v1::ROLE_PS, 0};
inline constexpr TaskKey kWorker0{v1::ROLE_WORKER, 0};
inline const JobKey kJob{"default", "job"};
inline const std::string kToken(64, 'a');

// An agent of one task on a free port.
class FakeAgent : public v1::Agent::Service {
 public:
  FakeAgent(const TaskKey& key, std::uint32_t created) {
    state_.mutable_id()->set_role(key.role);
    state_.mutable_id()->set_index(key.index);
    state_.set_created(created);
    grpc::ServerBuilder builder;
    applyServerDefaults(builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeAgent() override { server_->Shutdown(std::chrono::system_clock::time_point()); }

  AgentEndpoint endpoint() {
    const std::lock_guard lock(mutex_);
    return {{state_.id().role(), state_.id().index()},
            state_.created(),
            fmt::format("127.0.0.1:{}", port_)};
  }
  void change(const std::function<void(v1::TaskState*)>& change) {
    const std::lock_guard lock(mutex_);
    change(&state_);
  }
  std::int64_t pushed() const {
    const std::lock_guard lock(mutex_);
    return state_.revision();
  }
  int stops() const { return stops_; }
  double stopSeconds() const { return stop_seconds_; }
  int pushes() const { return pushes_; }
  // From now on a push is answered once it has been cancelled.
  void holdPushes() { held_ = true; }
  // From now on it can, or cannot, be heard.
  void silence(bool silent) { silent_ = silent; }
  int questions() const { return questions_; }
  // Over which it was asked.
  std::size_t connections() const {
    const std::lock_guard lock(mutex_);
    return connections_.size();
  }
  // So many pushes, or calls to stop, are answered as by a process that ends meanwhile.
  void refuse(int calls) { refusals_ = calls; }

  grpc::Status GetTask(grpc::ServerContext* context, const v1::GetTaskRequest*,
                       v1::TaskState* reply) override {
    const grpc::Status allowed = checkToken(*context, kToken);
    if (!allowed.ok()) return allowed;
    ++questions_;
    {
      const std::lock_guard lock(mutex_);
      connections_.insert(context->peer());
    }
    if (silent_) return {grpc::StatusCode::UNAVAILABLE, "not heard"};
    const std::lock_guard lock(mutex_);
    *reply = state_;
    return grpc::Status::OK;
  }
  grpc::Status PushMembership(grpc::ServerContext* context,
                              const v1::PushMembershipRequest* request,
                              v1::PushMembershipReply* reply) override {
    const grpc::Status allowed = checkToken(*context, kToken);
    if (!allowed.ok()) return allowed;
    ++pushes_;
    if (refusals_-- > 0) return kEnds;
    while (held_ && !context->IsCancelled()) std::this_thread::yield();
    const std::lock_guard lock(mutex_);
    state_.set_revision(request->membership().revision());
    reply->set_revision(state_.revision());
    return request->sha256().size() == 64
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no sha256");
  }
  grpc::Status StopJob(grpc::ServerContext*, const v1::StopJobRequest* request,
                       v1::StopJobReply*) override {
    ++stops_;
    if (refusals_-- > 0) return kEnds;
    stop_seconds_ = request->has_seconds() ? request->seconds() : -1;
    return grpc::Status::OK;
  }

 private:
  const grpc::Status kEnds{grpc::StatusCode::CANCELLED, "CANCELLED"};
  mutable std::mutex mutex_;
  v1::TaskState state_;
  std::set<std::string> connections_;
  std::atomic<int> stops_ = 0, pushes_ = 0;
  std::atomic<int> refusals_ = 0;
  std::atomic<bool> held_ = false, silent_ = false;
  std::atomic<int> questions_ = 0;
  std::atomic<double> stop_seconds_ = -1;  // none was told
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class FakeDirectory : public AgentDirectory {
 public:
  StatusOr<std::vector<AgentEndpoint>> agents(const JobKey&) override {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    return endpoints_;
  }
  StatusOr<std::string> token(const JobKey&) override { return token_; }
  void setToken(const std::string& token) { token_ = token; }  // before it is used
  void set(std::vector<AgentEndpoint> endpoints) {
    const std::lock_guard lock(mutex_);
    endpoints_ = std::move(endpoints);
  }
  void fail(const Status& failure) {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
  }

 private:
  std::mutex mutex_;
  std::vector<AgentEndpoint> endpoints_;
  std::string token_ = kToken;
  Status failure_;
};

inline void sayStep(FakeAgent& agent, std::int64_t step, const std::string& outcome = "") {
  agent.change([&](v1::TaskState* state) {
    state->mutable_report()->mutable_job()->set_step(step);
    state->mutable_report()->mutable_job()->set_outcome(outcome);
  });
}

inline bool eventually(const std::function<bool()>& condition) {
  const TimePoint end = systemClock().now() + std::chrono::seconds(60);
  while (!condition() && systemClock().now() < end) std::this_thread::yield();
  return condition();
}

class GrpcProgressTest : public testing::Test {
 protected:
  GrpcProgressTest() {
    directory_.set({ps_.endpoint(), worker_.endpoint()});
    progress_.watch([this](const JobKey& key) {
      EXPECT_EQ(key, kJob);
      ++changes_;
    });
    progress_.follow(kJob, "uid", {});
  }
  void poll() {
    const Status status = progress_.pollOnce(kJob);
    EXPECT_TRUE(status.ok()) << status;
  }
  static JobWish wish(std::int64_t revision, bool stop) {
    JobWish wish;
    wish.membership.emplace().set_revision(revision);
    if (stop) wish.stop_by = systemClock().now() + std::chrono::seconds(600);
    return wish;
  }

  FakeAgent ps_{kPs0, 1};
  FakeAgent worker_{kWorker0, 1};
  FakeDirectory directory_;
  std::atomic<int> changes_ = 0;
  GrpcProgress progress_{directory_,
                         {.interval = std::chrono::milliseconds(5),
                          .timeout = std::chrono::seconds(5),
                          .progress_every = {}}};
};

}  // namespace trainyard::control
