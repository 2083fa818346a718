#include "operator/progress/grpc_progress.h"

#include <atomic>

#include "base/rpc/channel.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::control {
namespace {

constexpr TaskKey kPs0{v1::ROLE_PS, 0};
constexpr TaskKey kWorker0{v1::ROLE_WORKER, 0};
const JobKey kJob{"default", "job"};
const std::string kToken(64, 'a');

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
  int pushes() const { return pushes_; }

  grpc::Status GetTask(grpc::ServerContext* context, const v1::GetTaskRequest*,
                       v1::TaskState* reply) override {
    const grpc::Status allowed = checkToken(*context, kToken);
    if (!allowed.ok()) return allowed;
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
    const std::lock_guard lock(mutex_);
    state_.set_revision(request->membership().revision());
    reply->set_revision(state_.revision());
    return request->sha256().size() == 64
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no sha256");
  }
  grpc::Status StopJob(grpc::ServerContext*, const v1::StopJobRequest*,
                       v1::StopJobReply*) override {
    ++stops_;
    return grpc::Status::OK;
  }

 private:
  mutable std::mutex mutex_;
  v1::TaskState state_;
  std::atomic<int> stops_ = 0, pushes_ = 0;
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
  StatusOr<std::string> token(const JobKey&) override { return kToken; }
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
  Status failure_;
};

void sayStep(FakeAgent& agent, std::int64_t step, const std::string& outcome = "") {
  agent.change([&](v1::TaskState* state) {
    state->mutable_report()->mutable_job()->set_step(step);
    state->mutable_report()->mutable_job()->set_outcome(outcome);
  });
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
    wish.stop = stop;
    return wish;
  }

  FakeAgent ps_{kPs0, 1};
  FakeAgent worker_{kWorker0, 1};
  FakeDirectory directory_;
  std::atomic<int> changes_ = 0;
  GrpcProgress progress_{directory_, {std::chrono::milliseconds(5), std::chrono::seconds(5)}};
};

TEST_F(GrpcProgressTest, CollectsTheTasksAndTheCoordinatorsWord) {
  sayStep(ps_, 40);
  poll();
  const JobReport report = progress_.newest(kJob);
  EXPECT_EQ(report.tasks.size(), 2u);
  ASSERT_TRUE(report.progress.has_value());
  EXPECT_EQ(report.progress->step(), 40);
  EXPECT_EQ(report.progress_created, 1u);
}

TEST_F(GrpcProgressTest, TellsOfChangesOnly) {
  poll();
  EXPECT_EQ(changes_, 1);
  poll();
  EXPECT_EQ(changes_, 1);
  sayStep(ps_, 41);
  poll();
  EXPECT_EQ(changes_, 2);
}

TEST_F(GrpcProgressTest, LastWordStaysWhenTheAgentIsGone) {
  sayStep(ps_, 1000, "succeeded");
  poll();
  directory_.set({worker_.endpoint()});
  poll();
  EXPECT_EQ(progress_.newest(kJob).progress->outcome(), "succeeded");
}

TEST_F(GrpcProgressTest, LaterLifeOutweighsAnEarlierOne) {
  sayStep(ps_, 90, "stopped");
  poll();
  FakeAgent next(kPs0, 2);
  sayStep(next, 91);
  directory_.set({next.endpoint(), worker_.endpoint()});
  poll();
  EXPECT_EQ(progress_.newest(kJob).progress_created, 2u);
  EXPECT_EQ(progress_.newest(kJob).progress->outcome(), "");
}

TEST_F(GrpcProgressTest, AnswerOfAnotherLifeIsNotHeard) {
  AgentEndpoint stale = ps_.endpoint();
  stale.created = 7;
  sayStep(ps_, 5);
  directory_.set({stale});
  poll();
  EXPECT_TRUE(progress_.newest(kJob).tasks.empty());
}

TEST_F(GrpcProgressTest, PushesTheMembershipUntilItIsThere) {
  progress_.follow(kJob, "uid", wish(3, false));
  poll();
  EXPECT_EQ(ps_.pushed(), 3);
  EXPECT_EQ(worker_.pushed(), 3);
  poll();
  poll();
  EXPECT_EQ(ps_.pushes(), 1);
}

TEST_F(GrpcProgressTest, AsksTheCoordinatorToStopUntilItHas) {
  sayStep(ps_, 5);
  progress_.follow(kJob, "uid", wish(1, true));
  poll();
  poll();
  EXPECT_EQ(ps_.stops(), 2);
  sayStep(ps_, 6, "stopped");
  poll();
  EXPECT_EQ(ps_.stops(), 2);
  EXPECT_EQ(worker_.stops(), 0);
}

TEST_F(GrpcProgressTest, SilentAgentIsNoFailure) {
  AgentEndpoint nobody{kWorker0, 1, "127.0.0.1:1"};
  sayStep(ps_, 5);
  directory_.set({nobody, ps_.endpoint()});
  poll();
  EXPECT_EQ(progress_.newest(kJob).tasks.size(), 1u);
}

TEST_F(GrpcProgressTest, UnknownAddressesAreAFailure) {
  directory_.fail(absl::NotFoundError("no such job"));
  EXPECT_EQ(progress_.pollOnce(kJob).code(), absl::StatusCode::kNotFound);
}

TEST_F(GrpcProgressTest, AnotherUidStartsEmptyAndForgetForgets) {
  sayStep(ps_, 5);
  poll();
  progress_.follow(kJob, "another", {});
  EXPECT_TRUE(progress_.newest(kJob).tasks.empty());
  poll();
  EXPECT_EQ(progress_.newest(kJob).tasks.size(), 2u);
  progress_.forget(kJob);
  EXPECT_TRUE(progress_.newest(kJob).tasks.empty());
  EXPECT_EQ(progress_.pollOnce(kJob).code(), absl::StatusCode::kNotFound);
}

TEST_F(GrpcProgressTest, ThreadPollsByItself) {
  progress_.start();
  sayStep(ps_, 123);
  const TimePoint end = systemClock().now() + std::chrono::seconds(20);
  const auto heard = [&] {
    const auto word = progress_.newest(kJob).progress;
    return word && word->step() == 123;
  };
  while (!heard() && systemClock().now() < end) std::this_thread::yield();
  EXPECT_TRUE(heard());
  progress_.stop();
}

}  // namespace
}  // namespace trainyard::control
