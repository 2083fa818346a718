#include "agent/service/agent_server.h"

#include <sys/stat.h>

#include <atomic>

#include "base/core/strings.h"
#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "prometheus/text_serializer.h"
#include "tests/base/process/temp_dir.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "trainyard/v1/measurements.grpc.pb.h"

namespace trainyard::agent {
namespace {

using testing::HasSubstr;

TaskIdentity makeSelf() {
  TaskIdentity self{.job = {.name = "demo", .ns = "", .uid = "uid-1"}, .id = {}, .created = 4};
  self.id.set_role(v1::ROLE_WORKER);
  self.id.set_index(1);
  return self;
}

v1::Membership makeMembership(std::int64_t revision, const std::string& host = "a") {
  v1::Membership membership;
  membership.set_uid("uid-1");
  membership.set_revision(revision);
  membership.add_tasks()->set_host(host);
  return membership;
}

v1::RuntimeReport makeReport(std::uint32_t start) {
  v1::RuntimeReport report;
  report.set_job_uid("uid-1");
  *report.mutable_id() = makeSelf().id;
  report.mutable_incarnation()->set_created(4);
  report.mutable_incarnation()->set_start(start);
  report.set_ready(true);
  report.set_step(12);
  return report;
}

class AgentServerTest : public testing::Test {
 protected:
  AgentServerTest()
      : store_("uid-1"),
        metrics_(makeSelf()),
        hub_(makeSelf(), store_, metrics_, [this] { ++pushes_; }) {
    socket_ = (dir_.path() / "report.sock").native();
    StatusOr<std::unique_ptr<AgentServer>> server =
        AgentServer::start({.port = 0, .socket = socket_, .token = token_}, hub_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    agent_ = v1::Agent::NewStub(openChannel(fmt::format("127.0.0.1:{}", server_->port())));
    task_ = v1::TaskReport::NewStub(openChannel(unixTarget(socket_)));
  }

  // Calls `method` of `stub` with the given token ("": none).
  template <typename Stub, typename Request, typename Reply>
  grpc::Status call(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply& reply, const std::string& token) {
    grpc::ClientContext context;
    setDeadline(context, std::chrono::seconds(20));
    context.set_wait_for_ready(true);
    if (!token.empty()) addToken(context, token);
    return (stub.*method)(&context, request, &reply);
  }
  grpc::Status push(const v1::Membership& membership, const std::string& sha256 = "") {
    v1::PushMembershipRequest request;
    *request.mutable_membership() = membership;
    request.set_sha256(sha256);
    v1::PushMembershipReply reply;
    return call(*agent_, &v1::Agent::Stub::PushMembership, request, reply, token_);
  }
  StatusOr<v1::RuntimeDirective> report(const v1::RuntimeReport& report) {
    v1::RuntimeDirective directive;
    const grpc::Status status =
        call(*task_, &v1::TaskReport::Stub::Report, report, directive, token_);
    if (status.ok()) return directive;
    return Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  v1::TaskState getTask() {
    v1::TaskState state;
    EXPECT_TRUE(call(*agent_, &v1::Agent::Stub::GetTask, v1::GetTaskRequest(), state, token_).ok());
    return state;
  }
  void runChild(std::uint32_t start) {
    ChildView view;
    view.child = "Running";
    view.start = start;
    hub_.setChild(view);
  }

  const TempDir dir_;
  const std::string token_ = std::string(64, 'c');
  std::string socket_;
  std::atomic<int> pushes_{0};
  MembershipStore store_;
  TaskMetrics metrics_;
  TaskHub hub_;
  std::unique_ptr<AgentServer> server_;
  std::unique_ptr<v1::Agent::Stub> agent_;
  std::unique_ptr<v1::TaskReport::Stub> task_;
};

TEST_F(AgentServerTest, RefusesEveryCallWithoutTheToken) {
  for (const std::string& token : {std::string(), std::string(64, 'd'), token_ + "c"}) {
    v1::PushMembershipRequest push;
    *push.mutable_membership() = makeMembership(1);
    v1::PushMembershipReply push_reply;
    v1::TaskState state;
    v1::StopJobReply stop_reply;
    v1::RuntimeDirective directive;
    runChild(1);
    const auto denied = grpc::StatusCode::UNAUTHENTICATED;
    EXPECT_EQ(call(*agent_, &v1::Agent::Stub::PushMembership, push, push_reply, token).error_code(),
              denied);
    EXPECT_EQ(
        call(*agent_, &v1::Agent::Stub::GetTask, v1::GetTaskRequest(), state, token).error_code(),
        denied);
    EXPECT_EQ(call(*agent_, &v1::Agent::Stub::StopJob, v1::StopJobRequest(), stop_reply, token)
                  .error_code(),
              denied);
    EXPECT_EQ(
        call(*task_, &v1::TaskReport::Stub::Report, makeReport(1), directive, token).error_code(),
        denied);
  }
  EXPECT_EQ(store_.revision(), 0);
  EXPECT_FALSE(hub_.ready());
}

TEST_F(AgentServerTest, TakesPushedMemberships) {
  EXPECT_TRUE(push(makeMembership(5), membershipHash(makeMembership(5))).ok());
  EXPECT_EQ(pushes_, 1);
  EXPECT_TRUE(push(makeMembership(5)).ok());
  EXPECT_TRUE(push(makeMembership(4)).ok());
  EXPECT_EQ(pushes_, 1) << "nothing new";
  EXPECT_EQ(push(makeMembership(5, "other")).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(push(makeMembership(6), std::string(64, '0')).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(getTask().revision(), 5);
}

TEST_F(AgentServerTest, DirectsTheProgram) {
  runChild(2);
  StatusOr<v1::RuntimeDirective> directive = report(makeReport(2));
  ASSERT_TRUE(directive.ok()) << directive.status();
  EXPECT_FALSE(directive->has_membership());
  EXPECT_FALSE(directive->stop_job());
  ASSERT_TRUE(push(makeMembership(5)).ok());
  EXPECT_EQ(report(makeReport(2))->membership().revision(), 5);
  v1::RuntimeReport current = makeReport(2);
  current.set_revision(5);
  EXPECT_FALSE(report(current)->has_membership()) << "it has it already";
  v1::StopJobReply reply;
  ASSERT_TRUE(call(*agent_, &v1::Agent::Stub::StopJob, v1::StopJobRequest(), reply, token_).ok());
  EXPECT_TRUE(report(current)->stop_job());
  EXPECT_FALSE(report(current)->has_stop_seconds()) << "as the job says";
  v1::StopJobRequest limited;
  limited.set_seconds(600);
  ASSERT_TRUE(call(*agent_, &v1::Agent::Stub::StopJob, limited, reply, token_).ok());
  EXPECT_GT(report(current)->stop_seconds(), 500);
  EXPECT_LT(report(current)->stop_seconds(), 600) << "it counts down";
  limited.set_seconds(0);
  ASSERT_TRUE(call(*agent_, &v1::Agent::Stub::StopJob, limited, reply, token_).ok());
  EXPECT_TRUE(report(current)->has_stop_seconds());
  EXPECT_EQ(report(current)->stop_seconds(), 0) << "its time is over";
}

TEST_F(AgentServerTest, TakesReportsOfThePresentLifeOnly) {
  runChild(2);
  const Status late = report(makeReport(1)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.message()), HasSubstr("start 1"));
  v1::RuntimeReport foreign = makeReport(2);
  foreign.set_job_uid("uid-9");
  EXPECT_EQ(report(foreign).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(getTask().has_report());
  ASSERT_TRUE(report(makeReport(2)).ok());
  EXPECT_TRUE(hub_.ready());
  const v1::TaskState state = getTask();
  EXPECT_EQ(state.child(), "Running");
  EXPECT_EQ(state.created(), 4u);
  EXPECT_EQ(state.start(), 2u);
  EXPECT_EQ(state.report().step(), 12);
  ChildView ended;
  ended.child = "Exited";
  ended.start = 2;
  ended.last_signal = 9;
  hub_.setChild(ended);
  EXPECT_FALSE(hub_.ready());
  EXPECT_EQ(getTask().last_signal(), 9);
  EXPECT_EQ(getTask().report().step(), 12) << "the last words stay";
  runChild(3);
  EXPECT_FALSE(getTask().has_report());
}

TEST_F(AgentServerTest, TakesMeasurementsOfThePresentLifeOnly) {
  const auto task = v1::TaskMeasurements::NewStub(openChannel(unixTarget(socket_)));
  const auto record = [&](std::uint32_t start, const std::string& token) {
    v1::Measurements measured;
    measured.set_job_uid("uid-1");
    *measured.mutable_id() = makeSelf().id;
    measured.mutable_incarnation()->set_created(4);
    measured.mutable_incarnation()->set_start(start);
    v1::RecordReply reply;
    return call(*task, &v1::TaskMeasurements::Stub::Record, measured, reply, token).error_code();
  };
  runChild(2);
  EXPECT_EQ(record(2, token_), grpc::StatusCode::OK);
  EXPECT_EQ(record(1, token_), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(record(2, "wrong"), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(AgentServerTest, KeepsTheSocketToItsUser) {
  struct stat info {};
  ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AgentServerTest, NamesATakenPort) {
  const Status taken = AgentServer::start({.port = server_->port(),
                                           .socket = (dir_.path() / "second.sock").native(),
                                           .token = token_},
                                          hub_)
                           .status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr(fmt::format(":{}", server_->port())));
}

TEST(TaskHubOfSeveralProcesses, HearsEachAndSpeaksAsOne) {
  TaskIdentity self = makeSelf();
  self.processes = 3;
  MembershipStore store("uid-1");
  TaskMetrics metrics(self);
  TaskHub hub(self, store, metrics, [] {});
  ChildView view;
  view.child = "Running";
  view.start = 1;
  hub.setChild(view);
  EXPECT_THAT(hub.reports(), testing::ElementsAre(0, 0, 0));
  for (std::uint32_t process = 0; process < 3; ++process) {
    EXPECT_FALSE(hub.ready());
    v1::RuntimeReport report = makeReport(1);
    *report.mutable_id() = processId(self, process);
    EXPECT_EQ(report.id().index(), 3 + process);
    report.set_examples(10);
    if (process == 0) report.mutable_job()->set_step(12);
    ASSERT_TRUE(hub.report(report).ok());
  }
  EXPECT_TRUE(hub.ready());
  EXPECT_THAT(hub.reports(), testing::ElementsAre(1, 1, 1));
  const v1::RuntimeReport merged = hub.state().report();
  EXPECT_EQ(merged.id().index(), 1u);
  EXPECT_EQ(merged.examples(), 30u);
  EXPECT_EQ(merged.step(), 12);
  EXPECT_EQ(merged.job().step(), 12);
  v1::RuntimeReport other = makeReport(1);
  other.mutable_id()->set_index(2);
  EXPECT_EQ(hub.report(other).status().code(), absl::StatusCode::kFailedPrecondition)
      << "of the worker before";
}

class TellingHubTest : public testing::Test {
 protected:
  static TaskIdentity foreign() {
    TaskIdentity self = makeSelf();
    self.foreign = true;
    self.processes = 2;
    return self;
  }
  void runChild(std::uint32_t start, const std::string& child = "Running") {
    ChildView view;
    view.child = child;
    view.start = start;
    hub_.setChild(view);
  }
  std::string page() { return prometheus::TextSerializer().Serialize(metrics_.Collect()); }

  MembershipStore store_{"uid-1"};
  TaskMetrics metrics_{foreign()};
  TaskHub hub_{foreign(), store_, metrics_, [] {}};
};

TEST_F(TellingHubTest, WhatAProgramTellsIsInTheReportAndOnThePage) {
  runChild(1);
  EXPECT_FALSE(hub_.state().report().has_told());
  EXPECT_THAT(page(), testing::Not(HasSubstr("trainyard_global_step")));
  hub_.tell(0, R"({"step": 7, "loss": 0.5, "examples": 100})");
  hub_.tell(1, R"({"step": 9, "examples": 50})");
  const v1::RuntimeReport report = hub_.state().report();
  EXPECT_EQ(report.told().step(), 7);
  EXPECT_EQ(report.told().loss(), 0.5);
  EXPECT_EQ(report.examples(), 150u);
  EXPECT_TRUE(report.ready());
  const std::string labels = R"({trainyard_job="demo",role="worker",index="1"} )";
  for (const char* line : {"trainyard_global_step|7", "trainyard_training_loss|0.5",
                           "trainyard_worker_examples_total|150", "trainyard_worker_steps_total|0",
                           "trainyard_task_refused_tellings_total|0"}) {
    const auto [name, value] = splitFirst(line, '|');
    EXPECT_THAT(page(), HasSubstr(fmt::format("\n{}{}{}\n", name, labels, value)));
  }
  EXPECT_THAT(hub_.reports(), testing::ElementsAre(0, 0)) << "its silence means nothing";
}

TEST_F(TellingHubTest, ARestartedProgramStartsAnewAndCountersGoOn) {
  runChild(1);
  hub_.tell(0, R"({"step": 7, "loss": 0.5, "examples": 100})");
  runChild(1, "Exited");
  EXPECT_EQ(hub_.state().report().told().step(), 7) << "can still be read";
  runChild(2);
  EXPECT_FALSE(hub_.state().report().has_told());
  EXPECT_THAT(page(), testing::Not(HasSubstr("trainyard_global_step")));
  EXPECT_THAT(page(), HasSubstr("trainyard_worker_examples_total{"));
  hub_.tell(0, R"({"step": 1, "examples": 10})");
  EXPECT_EQ(hub_.state().report().told().step(), 1);
  EXPECT_FALSE(hub_.state().report().told().has_loss());
  EXPECT_EQ(hub_.state().report().examples(), 10u);
  EXPECT_THAT(page(), testing::ContainsRegex("trainyard_worker_examples_total.* 110\n"));
}

TEST_F(TellingHubTest, WhatIsNoTellingIsCountedAndChangesNothing) {
  runChild(1);
  hub_.tell(0, "junk");
  hub_.tell(1, R"({"step": -1})");
  EXPECT_FALSE(hub_.state().report().has_told());
  EXPECT_THAT(page(), testing::ContainsRegex("trainyard_task_refused_tellings_total.* 2\n"));
}

TEST(ReportSocket, IsAbstractWhereThePathIsTooLong) {
  EXPECT_EQ(reportSocket("/runs/a", makeSelf()), "/runs/a/report.sock");
  const std::string folder(95, 'x');  // with "/report.sock" 107 characters: just fits
  EXPECT_EQ(reportSocket(folder, makeSelf()), folder + "/report.sock");
  EXPECT_EQ(reportSocket(folder + "x", makeSelf()), "@trainyard-uid-1-worker-1-4");
}

TEST(ReportSocket, WorksAsAbstractSocket) {
  MembershipStore store("uid-1");
  TaskMetrics metrics(makeSelf());
  TaskHub hub(makeSelf(), store, metrics, [] {});
  ChildView view;
  view.child = "Running";
  view.start = 1;
  hub.setChild(view);
  const std::string socket = fmt::format("@trainyard-test-{}", ::getpid());
  const auto server =
      AgentServer::start({.port = 0, .socket = socket, .token = std::string(64, 'e')}, hub);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::TaskReport::NewStub(openChannel(unixTarget(socket)));
  grpc::ClientContext context;
  setDeadline(context, std::chrono::seconds(20));
  addToken(context, std::string(64, 'e'));
  v1::RuntimeDirective directive;
  EXPECT_TRUE(stub->Report(&context, makeReport(1), &directive).ok());
}

// Who reaches the port may still not be the operator of this job.
TEST_F(AgentServerTest, WithTlsBothSidesProveWhoTheyAre) {
  const JobKeys keys = deriveJobKeys("a root secret of thirty-two bytes", "uid-1");
  const JobKeys others = deriveJobKeys("a root secret of thirty-two bytes", "uid-2");
  const auto server = AgentServer::start({.port = 0,
                                          .socket = (dir_.path() / "other.sock").native(),
                                          .token = token_,
                                          .tls = keys.task},
                                         hub_);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = fmt::format("127.0.0.1:{}", (*server)->port());
  const auto ask = [&](const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = v1::Agent::NewStub(channel);
    grpc::ClientContext context;
    setDeadline(context, std::chrono::seconds(60));
    addToken(context, token_);
    v1::TaskState state;
    return stub->GetTask(&context, v1::GetTaskRequest(), &state).error_code();
  };
  const auto refused = grpc::StatusCode::UNAVAILABLE;
  EXPECT_EQ(ask(openSecureChannel(address, keys.client, kTaskServerName)), grpc::StatusCode::OK);
  EXPECT_EQ(ask(openSecureChannel(address, keys.client, "other.trainyard.dev")), refused);
  EXPECT_EQ(ask(openSecureChannel(address, others.client, kTaskServerName)), refused);
  // A task of the same job is not its operator.
  EXPECT_EQ(ask(openSecureChannel(address, keys.task, kTaskServerName)), refused);
  EXPECT_EQ(ask(openChannel(address)), refused);
}

}  // namespace
}  // namespace trainyard::agent
