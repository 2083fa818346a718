#include "agent/agent.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "agent/membership/membership_file.h"
#include "agent/membership/membership_store.h"
#include "agent/service/agent_server.h"
#include "agent/service/task_hub.h"
#include "agent/supervisor/agent_file.h"
#include "agent/supervisor/port_holder.h"
#include "agent/supervisor/task_loop.h"
#include "agent/task_program.h"
#include "agent/telling/tell_sockets.h"
#include "agent/traffic/task_metrics.h"
#include "agent/traffic/wire_meter.h"
#include "base/core/commit.h"
#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/rng.h"
#include "base/core/strings.h"
#include "base/http/http_server.h"
#include "base/http/metrics.h"
#include "base/process/child_process.h"
#include "base/process/files.h"
#include "base/process/scope_undo.h"
#include "base/rpc/token.h"
#include "base/security/job_keys.h"

namespace trainyard::agent {
namespace {

namespace fs = std::filesystem;

// The kernel tells of the last connections of a program within milliseconds, on a busy machine some
// tens of them. What it could not tell would be waited for in vain.
constexpr Duration kWireBound = std::chrono::seconds(3);
// A probe of a kubelet's, which gives up after 10 s and then writes an event, waits for a task that
// starts instead of failing again and again.
constexpr Duration kProbeWaits = std::chrono::seconds(9);

StatusOr<TlsIdentity> readTlsIdentity(const fs::path& folder) {
  constexpr std::size_t kMaxBytes = 64 << 10;
  TlsIdentity identity;
  TY_ASSIGN_OR_RETURN(identity.ca, readFile(folder / "ca.crt", kMaxBytes));
  TY_ASSIGN_OR_RETURN(identity.cert, readFile(folder / "tls.crt", kMaxBytes));
  TY_ASSIGN_OR_RETURN(identity.key, readFile(folder / "tls.key", kMaxBytes));
  return identity;
}

HttpReply readiness(bool ready) {
  if (ready) return {.body = "ok\n"};
  return {.code = 503, .body = "the task is not ready\n"};
}

// The parts of the agent, from the bottom up; destroyed in reverse.
class Agent {
 public:
  // `store` and `wire` outlive this; null: bytes on the wire are not counted.
  Agent(const AgentFlags& flags, const TaskIdentity& self, WakeUp pushed, MembershipStore& store,
        WireMeter* wire)
      : flags_(flags),
        self_(self),
        pushed_(std::move(pushed)),
        store_(store),
        wire_(wire),
        metrics_(std::make_shared<TaskMetrics>(
            self, [wire] { return wire != nullptr ? wire->read() : std::nullopt; })),
        hub_(self, store_, *metrics_, [this] { pushed_.wake(); }) {}

  ~Agent() { hub_.endWaits(); }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // `environment`: as of runAgent().
  Status start(std::vector<std::string> environment);
  // After start(); what the parts refer to outlives them.
  TaskLoopParts loopParts(SignalWaiter& signals, MembershipSource& file, PortHolder& port);

 private:
  Status listenToProgram(const std::string& token);
  Status startServers(const std::string& token);
  Status startPages();
  void publish(const ChildView& view, int port);

  const AgentFlags& flags_;
  const TaskIdentity& self_;
  const WakeUp pushed_;
  MembershipStore& store_;
  WireMeter* const wire_;
  std::shared_ptr<TaskMetrics> metrics_;
  TaskHub hub_;
  MetricsPage page_;
  std::string socket_;
  std::optional<TellSockets> tells_;  // of a program of the user's own
  std::string program_secret_;        // likewise
  std::optional<TaskProgram> program_;
  std::unique_ptr<AgentServer> server_;
  std::unique_ptr<HttpServer> http_;
};

// Before the servers' threads exist: sockets get their mode by that of the whole process.
Status Agent::listenToProgram(const std::string& token) {
  program_secret_ = deriveProgramSecret(token);
  std::error_code error;
  fs::path temporary = fs::temp_directory_path(error);
  if (error) temporary = "/tmp";
  StatusOr<TellSockets> sockets =
      TellSockets::open(fs::absolute(flags_.task_dir), temporary, self_.processes);
  if (!sockets.ok()) return annotate(sockets.status(), "socket for the program");
  tells_.emplace(*std::move(sockets));
  return absl::OkStatus();
}

Status Agent::start(std::vector<std::string> environment) {
  TY_ASSIGN_OR_RETURN(const std::string token, readToken(flags_.token_file));
  if (self_.foreign) TY_RETURN_IF_ERROR(listenToProgram(token));
  socket_ = reportSocket(fs::absolute(flags_.task_dir).native(), self_);
  program_.emplace(
      flags_, self_, store_,
      ProgramSockets{
          .report = socket_, .tell = tells_ ? &*tells_ : nullptr, .secret = program_secret_},
      std::move(environment));
  TY_RETURN_IF_ERROR(startServers(token));
  return startPages();
}

Status Agent::startServers(const std::string& token) {
  std::optional<TlsIdentity> tls;
  if (!flags_.tls_dir.empty()) {
    TY_ASSIGN_OR_RETURN(tls, readTlsIdentity(flags_.tls_dir));
  }
  TY_ASSIGN_OR_RETURN(server_, AgentServer::start({.bind = flags_.bind,
                                                   .port = flags_.agent_port,
                                                   .socket = socket_,
                                                   .token = token,
                                                   .tls = std::move(tls)},
                                                  hub_));
  return absl::OkStatus();
}

Status Agent::startPages() {
  addBuildInfo(page_.registry(), TRAINYARD_VERSION, builtCommit());
  page_.add(makeProcessMetrics());
  page_.add(metrics_);
  StatusOr<std::unique_ptr<HttpServer>> http = HttpServer::start(
      flags_.bind, flags_.metrics_port,
      {{"/metrics", [this] { return page_.render(); }},
       {"/healthz", [] { return HttpReply{.body = "ok\n"}; }},
       {"/readyz", [this] { return readiness(hub_.ready()); }},
       {"/readyz?wait", [this] { return readiness(hub_.awaitReady(kProbeWaits)); }}});
  if (!http.ok()) return annotate(http.status(), "metrics");
  http_ = std::move(*http);
  return absl::OkStatus();
}

void Agent::publish(const ChildView& view, int port) {
  hub_.setChild(view);
  const fs::path folder = flags_.task_dir;
  const AgentAddress address{.ip = flags_.bind,
                             .agent_port = server_->port(),
                             .metrics_port = http_->port(),
                             .task_port = port,
                             .created = self_.created,
                             .ready = hub_.ready()};
  // The last word on traffic.
  if (view.child == "Exited" && wire_ != nullptr) wire_->settle(systemClock().now() + kWireBound);
  const v1::TaskState state = hub_.state();
  if (view.child == "Exited" && state.has_report()) {
    const Status kept = writeReportFile(folder / "report.json", state.report());
    if (!kept.ok()) TY_ERROR("agent: {}", fromAbsl(kept.message()));
    if (!flags_.last_words.empty()) {
      const Status said = writeLastWords(flags_.last_words, state.report());
      if (!said.ok()) TY_ERROR("agent: {}", fromAbsl(said.message()));
    }
  }
  const Status written = writeAgentFile(folder / "agent.json", address, view);
  if (!written.ok()) TY_ERROR("agent: {}", fromAbsl(written.message()));
}

TaskLoopParts Agent::loopParts(SignalWaiter& signals, MembershipSource& file, PortHolder& port) {
  TaskLoopParts parts = {
      .clock = &systemClock(),
      .signals = &signals,
      .launcher_fd = flags_.launcher_fd,
      .pushed = &pushed_,
      .store = &store_,
      .file = &file,
      .port = &port,
      .self = self_,
      .prepare =
          [this, &port](std::uint32_t start) {
            return program_->prepare(start, port.port(), hub_.state().report());
          },
      .publish = [this, &port](const ChildView& view) { publish(view, port.port()); },
      .ready = [this] { return hub_.ready(); },
      .reports = [this] { return hub_.reports(); }};
  if (!self_.foreign) return parts;
  parts.tell = [this] { return program_->tell(); };
  parts.tells = tells_->fds();
  parts.read_tells = [this] {
    tells_->read(
        [this](std::uint32_t process, std::string_view datagram) { hub_.tell(process, datagram); });
  };
  return parts;
}

SupervisorOptions::OnChange onChangeOf(const AgentFlags& flags) {
  using OnChange = SupervisorOptions::OnChange;
  if (flags.on_change == "Restart") return OnChange::kRestart;
  return flags.on_change == "Signal" ? OnChange::kSignal : OnChange::kNone;
}

}  // namespace

StatusOr<int> runAgent(const AgentFlags& flags, const TaskIdentity& self,
                       std::vector<std::string> environment, SignalWaiter& signals) {
  TY_RETURN_IF_ERROR(makeDirectories(flags.task_dir, 0700));
  TY_RETURN_IF_ERROR(becomeSubreaper());
  ScopeUndo undo;
  undo.push([] {
    if (!killDescendants(systemClock().now() + std::chrono::seconds(5))) {
      TY_ERROR("agent: some processes of the task did not end");
    }
  });
  TY_ASSIGN_OR_RETURN(WakeUp pushed, WakeUp::create());
  Rng rng(mixKey(static_cast<std::uint64_t>(systemClock().unixMillis()), ::getpid()));
  TY_ASSIGN_OR_RETURN(PortHolder port,
                      PortHolder::hold(flags.bind, flags.task_port, rng, self.foreign));
  // A worker of ours serves nobody: its traffic is that of the parameter servers.
  MembershipStore store(self.job.uid);
  std::optional<WireMeter> wire;
  if (self.foreign) {
    wire.emplace(port.port(), WireScope{self, [&store] { return store.newest(); }});
  } else if (self.id.role() == v1::ROLE_PS) {
    wire.emplace(port.port());
  }
  if (wire && !flags.bind.starts_with("127.")) wire->fallBackTo(InterfaceMeter());
  Agent agent(flags, self, std::move(pushed), store, wire ? &*wire : nullptr);
  TY_RETURN_IF_ERROR(agent.start(std::move(environment)));
  MembershipFile file(flags.membership_file);
  SupervisorOptions options;
  options.restarts = !flags.no_restart;
  options.final_exits = {.foreign = self.foreign,
                         .more = ExitCodeSet::parse(flags.final_exits).value_or(ExitCodeSet())};
  options.grace = fromSeconds(flags.stop_grace);
  if (hitFailpoint("agent.backoff") == FailAction::kError) {
    options.max_backoff = options.first_backoff;
  }
  if (self.foreign) options.on_change = onChangeOf(flags);
  TaskLoop loop(agent.loopParts(signals, file, port), options);
  return loop.run();
}

}  // namespace trainyard::agent
