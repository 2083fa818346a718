// trainyard-agent: process 1 of a task. Starts, restarts and stops the task's program, tells it the
// membership, and shows the task's state, metrics and health to others.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "agent/agent_flags.h"
#include "agent/membership/identity.h"
#include "agent/membership/membership_file.h"
#include "agent/membership/membership_store.h"
#include "agent/service/agent_server.h"
#include "agent/service/task_hub.h"
#include "agent/supervisor/agent_file.h"
#include "agent/supervisor/child_command.h"
#include "agent/supervisor/foreign_program.h"
#include "agent/supervisor/port_holder.h"
#include "agent/supervisor/runtime_choice.h"
#include "agent/supervisor/task_loop.h"
#include "agent/telling/tell_sockets.h"
#include "agent/traffic/task_metrics.h"
#include "agent/traffic/wire_meter.h"
#include "base/core/commit.h"
#include "base/core/exit_code.h"
#include "base/core/log.h"
#include "base/core/log_context.h"
#include "base/core/rng.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "base/http/http_server.h"
#include "base/http/metrics.h"
#include "base/process/child_process.h"
#include "base/process/files.h"
#include "base/process/scope_undo.h"
#include "base/process/signals.h"
#include "base/rpc/grpc_process.h"
#include "base/rpc/token.h"
#include "base/security/job_keys.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::agent {
namespace {

namespace fs = std::filesystem;

// The kernel tells of the last connections of a program within milliseconds, on a busy machine some
// tens of them. What it could not tell would be waited for in vain.
constexpr Duration kWireBound = std::chrono::seconds(3);

std::vector<std::string> environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

std::map<std::string, std::string> volumesOf(const std::vector<std::string>& flags) {
  std::map<std::string, std::string> volumes;
  for (const std::string& flag : flags) {
    const auto [name, folder] = splitFirst(flag, '=');
    volumes[std::string(name)] = std::string(folder);
  }
  return volumes;
}

StatusOr<TlsIdentity> readTlsIdentity(const fs::path& folder) {
  constexpr std::size_t kMaxBytes = 64 << 10;
  TlsIdentity identity;
  TY_ASSIGN_OR_RETURN(identity.ca, readFile(folder / "ca.crt", kMaxBytes));
  TY_ASSIGN_OR_RETURN(identity.cert, readFile(folder / "tls.crt", kMaxBytes));
  TY_ASSIGN_OR_RETURN(identity.key, readFile(folder / "tls.key", kMaxBytes));
  return identity;
}

// Lines of several processes in one stream, each with the name of its process. One write each, so
// that they stay whole.
std::function<void(std::string_view)> prefixedOutput(const std::string& name) {
  return [name](std::string_view line) {
    const std::string text = fmt::format("{}: {}\n", name, line);
    if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) {
      TY_DEBUG("agent: {}: output: {}", name, std::strerror(errno));
    }
  };
}

// The parts of the agent, from the bottom up; destroyed in reverse.
class Agent {
 public:
  static StatusOr<int> run(const AgentFlags& flags, const TaskIdentity& self,
                           SignalWaiter& signals);

 private:
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

  Status listenToProgram(const std::string& token);
  Status startServers();
  TaskLoopParts loopParts(SignalWaiter& signals, MembershipSource& file, PortHolder& port);
  StatusOr<std::vector<NamedProcess>> prepareProgram(std::uint32_t start, int port);
  ForeignPlace placeOf(std::uint32_t process) const;
  StatusOr<ForeignProgram> readProgram() const;
  StatusOr<SpawnOptions> prepareForeign(const v1::Membership& membership, const std::string& file,
                                        std::uint32_t process) const;
  StatusOr<std::string> writeProgram(const std::string& task_dir, const std::string& file,
                                     std::uint32_t process) const;
  StatusOr<std::string> writeMembership(const v1::Membership& membership) const;
  StatusOr<std::string> tellForeign() const;
  StatusOr<SpawnOptions> prepareRuntime(std::uint32_t start, int port,
                                        const std::string& membership, std::uint32_t process) const;
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

Status Agent::startServers() {
  TY_ASSIGN_OR_RETURN(const std::string token, readToken(flags_.token_file));
  if (self_.foreign) TY_RETURN_IF_ERROR(listenToProgram(token));
  std::optional<TlsIdentity> tls;
  if (!flags_.tls_dir.empty()) {
    TY_ASSIGN_OR_RETURN(tls, readTlsIdentity(flags_.tls_dir));
  }
  socket_ = reportSocket(fs::absolute(flags_.task_dir).native(), self_);
  TY_ASSIGN_OR_RETURN(server_, AgentServer::start({.bind = flags_.bind,
                                                   .port = flags_.agent_port,
                                                   .socket = socket_,
                                                   .token = token,
                                                   .tls = std::move(tls)},
                                                  hub_));
  addBuildInfo(page_.registry(), TRAINYARD_VERSION, builtCommit());
  page_.add(makeProcessMetrics());
  page_.add(metrics_);
  StatusOr<std::unique_ptr<HttpServer>> http = HttpServer::start(
      flags_.bind, flags_.metrics_port,
      {{"/metrics", [this] { return page_.render(); }},
       {"/healthz", [] { return HttpReply{.body = "ok\n"}; }},
       {"/readyz", [this] {
          return hub_.ready() ? HttpReply{.body = "ok\n"}
                              : HttpReply{.code = 503, .body = "the task is not ready\n"};
        }}});
  if (!http.ok()) return annotate(http.status(), "metrics");
  http_ = std::move(*http);
  return absl::OkStatus();
}

ForeignPlace Agent::placeOf(std::uint32_t process) const {
  return {.process = process,
          .report = tells_ ? tells_->path(process) : "",
          .taken = {flags_.agent_port, flags_.metrics_port}};
}

StatusOr<ForeignProgram> Agent::readProgram() const {
  if (!flags_.command_file.empty()) return readForeignProgram(flags_.command_file);
  return foreignProgram(flags_.program, volumesOf(flags_.program_volumes), environment());
}

StatusOr<SpawnOptions> Agent::prepareForeign(const v1::Membership& membership,
                                             const std::string& file, std::uint32_t process) const {
  TY_ASSIGN_OR_RETURN(ForeignProgram program, readProgram());
  program.gpu_by_rank = flags_.gpu_by_rank;
  ForeignStart start = foreignStart(
      program, foreignVariables(membership, self_, file, program.volumes, placeOf(process)),
      self_.id.role(), environment(), program_secret_);
  SpawnOptions options;
  options.argv = std::move(start.argv);
  options.env = std::move(start.env);
  options.cwd = program.working_dir;
  if (self_.processes > 1) options.on_line = prefixedOutput(processName(self_, process));
  return options;
}

// The command that the runtime starts beside it, for a program that brings the model; the path.
// Nothing where the runtime has the model itself.
StatusOr<std::string> Agent::writeProgram(const std::string& task_dir, const std::string& file,
                                          std::uint32_t process) const {
  if (flags_.command_file.empty() && flags_.program.empty()) return "";
  TY_ASSIGN_OR_RETURN(const ForeignProgram program, readProgram());
  const ForeignStart start = foreignStart(
      program, foreignVariables(*store_.newest(), self_, file, program.volumes, placeOf(process)),
      self_.id.role(), environment());
  const nlohmann::ordered_json json = {
      {"argv", start.argv}, {"env", start.env}, {"workingDir", program.working_dir}};
  const fs::path path = fs::path(task_dir) / "program.json";
  // The environment may hold secrets.
  TY_RETURN_IF_ERROR(replaceFile(path, json.dump() + "\n", 0600));
  return path.native();
}

// Where the program reads it; the path.
StatusOr<std::string> Agent::writeMembership(const v1::Membership& membership) const {
  const fs::path path = fs::path(flags_.task_dir) / "membership.json";
  TY_RETURN_IF_ERROR(replaceFile(path, formatMembership(membership)));
  return path.native();
}

// The file is always the newest; what stands in the program's environment cannot follow it.
StatusOr<std::string> Agent::tellForeign() const {
  const auto newest = store_.newest();
  TY_RETURN_IF_ERROR(writeMembership(*newest).status());
  return fingerprint(foreignVariables(*newest, self_, "", {}, placeOf(0)));
}

StatusOr<std::vector<NamedProcess>> Agent::prepareProgram(std::uint32_t start, int port) {
  if (tells_) tells_->discard();
  // The program reads what this agent goes by, which a push may have made newer than the job's
  // file.
  const auto newest = store_.newest();
  TY_ASSIGN_OR_RETURN(const std::string membership, writeMembership(*newest));
  std::vector<NamedProcess> program;
  for (std::uint32_t process = 0; process < self_.processes; ++process) {
    NamedProcess one;
    if (self_.processes > 1) one.name = processName(self_, process);
    if (self_.foreign) {
      TY_ASSIGN_OR_RETURN(one.options, prepareForeign(*newest, membership, process));
    } else {
      TY_ASSIGN_OR_RETURN(one.options, prepareRuntime(start, port, membership, process));
    }
    one.options.new_process_group = true;
    one.options.die_with_spawning_thread = true;
    program.push_back(std::move(one));
  }
  return program;
}

// What only one of several processes writes lies in a folder of its own, and only the first listens
// on the task's port.
StatusOr<SpawnOptions> Agent::prepareRuntime(std::uint32_t start, int port,
                                             const std::string& membership,
                                             std::uint32_t process) const {
  std::string task_dir = flags_.task_dir;
  if (self_.processes > 1) {
    task_dir = (fs::path(task_dir) / fmt::format("process-{}", process)).native();
    TY_RETURN_IF_ERROR(makeDirectories(task_dir, 0700));
  }
  TY_ASSIGN_OR_RETURN(const std::string program, writeProgram(task_dir, membership, process));
  TY_ASSIGN_OR_RETURN(const RuntimeChoice choice,
                      chooseRuntime(flags_.job_file, flags_.runtime, self_, flags_.workers_here,
                                    std::getenv("CUDA_VISIBLE_DEVICES")));
  const ChildCommand command{.runtime = choice.program,
                             .id = processId(self_, process),
                             .created = self_.created,
                             .job_file = flags_.job_file,
                             .job_dir = flags_.job_dir,
                             .task_dir = task_dir,
                             .token_file = flags_.token_file,
                             .membership_file = membership,
                             .agent_socket = socket_,
                             .bind = flags_.bind,
                             .port = process == 0 ? port : 0,
                             .threads = choice.threads,
                             .program = program,
                             .log_format = flags_.log_format,
                             .volumes = flags_.volumes};
  SpawnOptions options;
  options.argv = childArguments(command, start);
  options.env = runtimeEnvironment(environment());
  return options;
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
      .prepare = [this, &port](std::uint32_t start) { return prepareProgram(start, port.port()); },
      .publish = [this, &port](const ChildView& view) { publish(view, port.port()); },
      .ready = [this] { return hub_.ready(); },
      .reports = [this] { return hub_.reports(); }};
  if (!self_.foreign) return parts;
  parts.tell = [this] { return tellForeign(); };
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

StatusOr<int> Agent::run(const AgentFlags& flags, const TaskIdentity& self, SignalWaiter& signals) {
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
  TY_RETURN_IF_ERROR(agent.startServers());
  MembershipFile file(flags.membership_file);
  SupervisorOptions options;
  options.restarts = !flags.no_restart;
  options.foreign = self.foreign;
  options.grace = fromSeconds(flags.stop_grace);
  if (self.foreign) options.on_change = onChangeOf(flags);
  TaskLoop loop(agent.loopParts(signals, file, port), options);
  return loop.run();
}

int fail(const Status& status, int code) {
  TY_ERROR("agent: {}", fromAbsl(status.message()));
  return code;
}

// `trainyard-agent install FROM TO`: copies a folder, such as this agent with all that it needs,
// into a volume. Images without a shell have nothing else that could.
int install(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (!error) {
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
  }
  if (!error) return kExitOk;
  return fail(
      errnoStatus(error.value(), fmt::format("install {} to {}", from.native(), to.native())),
      kExitFailure);
}

// Cuts "-- PROGRAM ARGUMENTS" off.
std::vector<std::string> takeProgram(int& argc, char** argv) {
  const auto end = argv + argc;
  const auto cut =
      std::find_if(argv, end, [](const char* word) { return std::strcmp(word, "--") == 0; });
  if (cut == end) return {};
  argc = static_cast<int>(cut - argv);
  return {cut + 1, end};
}

int runMain(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "install") == 0) return install(argv[2], argv[3]);
  CLI::App app("Process 1 of a training task: runs and watches the task's program.",
               "trainyard-agent");
  AgentFlags flags;
  addFlags(app, flags);
  flags.program = takeProgram(argc, argv);
  try {
    app.parse(argc, argv);
    const bool named = !flags.command_file.empty();
    const bool given = !flags.program.empty();
    if ((named && given) || (!named && !given && flags.runtime.empty())) {
      throw CLI::RequiredError(
          "--runtime, --command or -- PROGRAM, or --runtime beside one of them");
    }
  } catch (const CLI::ParseError& error) {
    return answerParseError(app, error, std::cout, std::cerr);
  }
  TaskIdentity self;
  self.id.set_role(flags.role == "ps" ? v1::ROLE_PS : v1::ROLE_WORKER);
  self.id.set_index(flags.index);
  self.created = flags.created;
  self.processes = self.id.role() == v1::ROLE_WORKER ? flags.processes : 1;
  self.foreign = flags.runtime.empty();
  configureLog({.format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
                .level = LogLevel::kInfo,
                .task = taskName(self.id)});
  // Before any thread exists.
  StatusOr<SignalWaiter> signals = SignalWaiter::create({SIGTERM, SIGINT, SIGCHLD});
  if (!signals.ok()) return fail(signals.status(), kExitAgentFailure);
  ::signal(SIGPIPE, SIG_IGN);
  prepareGrpc();
  StatusOr<JobIdentity> job = readJobIdentity(flags.job_file);
  if (!job.ok()) return fail(job.status(), kExitUsage);
  self.job = std::move(*job);
  setLogIdentity({self.job.name, roleName(self.id.role()), self.id.index()});
  const StatusOr<int> code = Agent::run(flags, self, *signals);
  if (code.ok()) return *code;
  const bool permanent = failureClass(code.status()) == FailureClass::kPermanent;
  return fail(code.status(), permanent ? kExitUsage : kExitAgentFailure);
}

}  // namespace
}  // namespace trainyard::agent

int main(int argc, char** argv) {
  return trainyard::agent::runMain(argc, argv);
}
