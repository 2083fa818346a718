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

namespace trainyard::agent {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxProcesses = 64;
constexpr int kMaxWorkersHere = 10000;
// The kernel tells of the last connections of a program within milliseconds, on a busy machine some
// tens of them. What it could not tell would be waited for in vain.
constexpr Duration kWireBound = std::chrono::seconds(3);

struct Flags {
  std::string role;
  std::uint32_t index = 0;
  std::uint32_t created = 0;
  std::uint32_t processes = 1;
  std::string job_dir;
  std::string task_dir;
  std::string job_file;
  std::string membership_file;
  std::string token_file;
  std::string runtime;
  std::string command_file;
  std::vector<std::string> program;  // what follows "--"
  std::vector<std::string> program_volumes;
  bool no_restart = false;
  std::string on_change = "Restart";
  bool gpu_by_rank = false;
  int launcher_fd = -1;
  std::string bind = "127.0.0.1";
  int agent_port = 0;
  int metrics_port = 0;
  int task_port = 0;
  int workers_here = 1;
  std::vector<std::string> volumes;
  std::string log_format = "text";
  std::string last_words;
  std::string tls_dir;
};

void addFlags(CLI::App& app, Flags& flags) {
  const auto port = wholeNumber(0, 65535);
  app.add_option("--role", flags.role, "Role of the task")
      ->required()
      ->check(CLI::IsMember({"ps", "worker"}));
  app.add_option("--index", flags.index, "Index within the role")->required();
  app.add_option("--created", flags.created, "The operator's part of the incarnation")->required();
  app.add_option("--processes", flags.processes, "Processes of the program, each with its own rank")
      ->check(wholeNumber(1, kMaxProcesses))
      ->capture_default_str();
  app.add_option("--job-dir", flags.job_dir, "Job directory")->required();
  app.add_option("--task-dir", flags.task_dir, "Directory of this task")->required();
  app.add_option("--job", flags.job_file, "Resolved job (JSON)")->required();
  app.add_option("--membership", flags.membership_file, "Membership file")->required();
  app.add_option("--token", flags.token_file, "File with the job's token")->required();
  CLI::Option_group* program = app.add_option_group("Program", "What to run");
  program->add_option("--runtime", flags.runtime,
                      "trainyard-runtime; a task that needs LibTorch runs the -torch beside it");
  program->add_option("--command", flags.command_file, "File that names another program");
  // Or the program and its arguments after "--".
  program->require_option(0, 1);
  app.add_option("--program-volume", flags.program_volumes,
                 "NAME=DIR, told to the program after --");
  app.add_flag("--no-restart", flags.no_restart, "Every exit of the program is final");
  app.add_option("--on-membership-change", flags.on_change,
                 "What a running program of --command gets when tasks come or go: a new start, "
                 "SIGHUP, or nothing")
      ->check(CLI::IsMember({"Restart", "Signal", "Ignore"}))
      ->capture_default_str();
  app.add_flag("--gpu-by-rank", flags.gpu_by_rank,
               "A worker of --command sees only the GPU of its local rank");
  app.add_option("--launcher-fd", flags.launcher_fd, "Pipe whose end of file stops this agent");
  app.add_option("--bind", flags.bind, "Address to listen at")->capture_default_str();
  app.add_option("--agent-port", flags.agent_port, "Port of the Agent service; 0: any")
      ->check(port);
  app.add_option("--metrics-port", flags.metrics_port, "Port of /metrics; 0: any")->check(port);
  app.add_option("--task-port", flags.task_port, "Port of the program; 0: a free one")->check(port);
  app.add_option("--workers-here", flags.workers_here,
                 "Workers of the job that share this machine's cores, this one included")
      ->check(wholeNumber(1, kMaxWorkersHere))
      ->capture_default_str();
  app.add_option("--volume", flags.volumes, "MOUNT=DIR, passed to the program");
  app.add_option("--tls", flags.tls_dir,
                 "Folder with ca.crt, tls.crt and tls.key: the Agent service speaks TLS");
  app.add_option("--last-words", flags.last_words,
                 "File that is to hold what the job's coordinator said last");
  app.add_option("--log-format", flags.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

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
  static StatusOr<int> run(const Flags& flags, const TaskIdentity& self, SignalWaiter& signals);

 private:
  // `store` and `wire` outlive this; null: bytes on the wire are not counted.
  Agent(const Flags& flags, const TaskIdentity& self, WakeUp pushed, MembershipStore& store,
        WireMeter* wire)
      : flags_(flags),
        self_(self),
        pushed_(std::move(pushed)),
        store_(store),
        wire_(wire),
        metrics_(std::make_shared<TaskMetrics>(
            self, [wire] { return wire != nullptr ? wire->read() : std::nullopt; })),
        hub_(self, store_, *metrics_, [this] { pushed_.wake(); }) {}

  Status startServers();
  TaskLoopParts loopParts(SignalWaiter& signals, MembershipSource& file, PortHolder& port);
  StatusOr<std::vector<NamedProcess>> prepareProgram(std::uint32_t start, int port) const;
  StatusOr<SpawnOptions> prepareForeign(const v1::Membership& membership, const std::string& file,
                                        std::uint32_t process) const;
  StatusOr<std::string> writeMembership(const v1::Membership& membership) const;
  StatusOr<std::string> tellForeign() const;
  StatusOr<SpawnOptions> prepareRuntime(std::uint32_t start, int port,
                                        const std::string& membership, std::uint32_t process) const;
  void publish(const ChildView& view, int port);

  const Flags& flags_;
  const TaskIdentity& self_;
  const WakeUp pushed_;
  MembershipStore& store_;
  WireMeter* const wire_;
  std::shared_ptr<TaskMetrics> metrics_;
  TaskHub hub_;
  MetricsPage page_;
  std::string socket_;
  std::unique_ptr<AgentServer> server_;
  std::unique_ptr<HttpServer> http_;
};

Status Agent::startServers() {
  TY_ASSIGN_OR_RETURN(const std::string token, readToken(flags_.token_file));
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

StatusOr<SpawnOptions> Agent::prepareForeign(const v1::Membership& membership,
                                             const std::string& file, std::uint32_t process) const {
  ForeignProgram program;
  if (flags_.command_file.empty()) {
    program = foreignProgram(flags_.program, volumesOf(flags_.program_volumes), environment());
  } else {
    TY_ASSIGN_OR_RETURN(program, readForeignProgram(flags_.command_file));
  }
  program.gpu_by_rank = flags_.gpu_by_rank;
  ForeignStart start =
      foreignStart(program, foreignVariables(membership, self_, file, program.volumes, process),
                   self_.id.role(), environment());
  SpawnOptions options;
  options.argv = std::move(start.argv);
  options.env = std::move(start.env);
  options.cwd = program.working_dir;
  if (self_.processes > 1) options.on_line = prefixedOutput(processName(self_, process));
  return options;
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
  return fingerprint(foreignVariables(*newest, self_, "", {}));
}

StatusOr<std::vector<NamedProcess>> Agent::prepareProgram(std::uint32_t start, int port) const {
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
  if (self_.foreign) parts.tell = [this] { return tellForeign(); };
  return parts;
}

SupervisorOptions::OnChange onChangeOf(const Flags& flags) {
  using OnChange = SupervisorOptions::OnChange;
  if (flags.on_change == "Restart") return OnChange::kRestart;
  return flags.on_change == "Signal" ? OnChange::kSignal : OnChange::kNone;
}

StatusOr<int> Agent::run(const Flags& flags, const TaskIdentity& self, SignalWaiter& signals) {
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
  TY_ASSIGN_OR_RETURN(PortHolder port, PortHolder::hold(flags.bind, flags.task_port, rng));
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
  Flags flags;
  addFlags(app, flags);
  flags.program = takeProgram(argc, argv);
  try {
    app.parse(argc, argv);
    const bool named = !flags.runtime.empty() || !flags.command_file.empty();
    if (named != flags.program.empty()) {
      throw CLI::RequiredError("Exactly one of --runtime, --command and -- PROGRAM");
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
