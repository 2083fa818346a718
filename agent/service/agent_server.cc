#include "agent/service/agent_server.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/status_map.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "trainyard/v1/measurements.grpc.pb.h"

namespace trainyard::agent {
namespace {

constexpr Duration kStopTime = std::chrono::milliseconds(300);

class AgentService final : public v1::Agent::Service {
 public:
  AgentService(TaskHub& hub, const std::string& token) : hub_(hub), token_(token) {}

  grpc::Status PushMembership(grpc::ServerContext* context,
                              const v1::PushMembershipRequest* request,
                              v1::PushMembershipReply* reply) override {
    if (grpc::Status denied = checkToken(*context, token_); !denied.ok()) return denied;
    const StatusOr<std::int64_t> held = hub_.push(request->membership(), request->sha256());
    if (held.ok()) reply->set_revision(*held);
    return toGrpc(held.status());
  }

  grpc::Status GetTask(grpc::ServerContext* context, const v1::GetTaskRequest*,
                       v1::TaskState* reply) override {
    if (grpc::Status denied = checkToken(*context, token_); !denied.ok()) return denied;
    *reply = hub_.state();
    return grpc::Status::OK;
  }

  grpc::Status StopJob(grpc::ServerContext* context, const v1::StopJobRequest* request,
                       v1::StopJobReply*) override {
    if (grpc::Status denied = checkToken(*context, token_); !denied.ok()) return denied;
    std::optional<Duration> within;
    if (request->has_seconds()) within = fromSeconds(request->seconds());
    hub_.stopJob(request->reason(), within);
    return grpc::Status::OK;
  }

 private:
  TaskHub& hub_;
  const std::string token_;
};

class TaskReportService final : public v1::TaskReport::Service {
 public:
  TaskReportService(TaskHub& hub, const std::string& token) : hub_(hub), token_(token) {}

  grpc::Status Report(grpc::ServerContext* context, const v1::RuntimeReport* request,
                      v1::RuntimeDirective* reply) override {
    if (grpc::Status denied = checkToken(*context, token_); !denied.ok()) return denied;
    StatusOr<v1::RuntimeDirective> directive = hub_.report(*request);
    if (directive.ok()) *reply = std::move(*directive);
    return toGrpc(directive.status());
  }

 private:
  TaskHub& hub_;
  const std::string token_;
};

class TaskMeasurementsService final : public v1::TaskMeasurements::Service {
 public:
  TaskMeasurementsService(TaskHub& hub, const std::string& token) : hub_(hub), token_(token) {}

  grpc::Status Record(grpc::ServerContext* context, const v1::Measurements* request,
                      v1::RecordReply*) override {
    if (grpc::Status denied = checkToken(*context, token_); !denied.ok()) return denied;
    return toGrpc(hub_.record(*request));
  }

 private:
  TaskHub& hub_;
  const std::string token_;
};

StatusOr<std::unique_ptr<grpc::Server>> serveUnix(const std::string& socket, grpc::Service& reports,
                                                  grpc::Service& measurements) {
  const bool file = socket[0] != '@';
  if (file) ::unlink(socket.c_str());  // of an agent that was killed
  grpc::ServerBuilder builder;
  applyServerDefaults(builder);
  int bound = 0;
  builder.AddListeningPort(unixTarget(socket), grpc::InsecureServerCredentials(), &bound);
  builder.RegisterService(&reports);
  builder.RegisterService(&measurements);
  // From its first moment the file is nobody else's.
  const mode_t before = ::umask(0177);
  auto server = startServer(builder, "task reports", socket, bound);
  ::umask(before);
  return server;
}

StatusOr<std::unique_ptr<grpc::Server>> serveTcp(const AgentServerOptions& options, int& port,
                                                 grpc::Service& service) {
  const std::string& bind = options.bind;
  const bool v6 = bind.find(':') != std::string::npos;
  const std::string address =
      v6 ? fmt::format("[{}]:{}", bind, port) : fmt::format("{}:{}", bind, port);
  grpc::ServerBuilder builder;
  applyServerDefaults(builder);
  int bound = 0;
  builder.AddListeningPort(
      address, options.tls ? secureServer(*options.tls) : grpc::InsecureServerCredentials(),
      &bound);
  builder.RegisterService(&service);
  auto server = startServer(builder, "agent", address, bound);
  port = bound;
  return server;
}

}  // namespace

struct AgentServer::State {
  State(TaskHub& hub, const std::string& token)
      : agent(hub, token), report(hub, token), measurements(hub, token) {}

  AgentService agent;
  TaskReportService report;
  TaskMeasurementsService measurements;
  int port = 0;
  std::unique_ptr<grpc::Server> tcp_server;
  std::unique_ptr<grpc::Server> unix_server;
};

AgentServer::AgentServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

AgentServer::~AgentServer() {
  state_->tcp_server->Shutdown(deadlineAfter(kStopTime));
  state_->unix_server->Shutdown(deadlineAfter(kStopTime));
}

int AgentServer::port() const {
  return state_->port;
}

StatusOr<std::unique_ptr<AgentServer>> AgentServer::start(const AgentServerOptions& options,
                                                          TaskHub& hub) {
  auto state = std::make_unique<State>(hub, options.token);
  state->port = options.port;
  TY_ASSIGN_OR_RETURN(state->tcp_server, serveTcp(options, state->port, state->agent));
  StatusOr<std::unique_ptr<grpc::Server>> unix_server =
      serveUnix(options.socket, state->report, state->measurements);
  if (!unix_server.ok()) {
    state->tcp_server->Shutdown(deadlineAfter(kStopTime));
    return unix_server.status();
  }
  state->unix_server = std::move(*unix_server);
  return std::make_unique<AgentServer>(std::move(state));
}

std::string reportSocket(const std::string& task_dir, const TaskIdentity& self) {
  const std::string path = task_dir + "/report.sock";
  if (path.size() < sizeof(sockaddr_un::sun_path)) return path;
  return fmt::format("@trainyard-{}-{}-{}", self.job.uid, taskName(self.id), self.created);
}

}  // namespace trainyard::agent
