// trainyard-runtime ps|worker|evaluate: the training process of one task, a child of its agent.
// trainyard-runtime variables|version: what it knows, for the command line.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/commit.h"
#include "base/core/exit_code.h"
#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/log_context.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "base/process/files.h"
#include "base/process/freed_memory.h"
#include "base/process/signals.h"
#include "base/programs/job_file.h"
#include "base/rpc/grpc_process.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "runtime/by_hand_flags.h"
#include "runtime/coordinator/member_processes.h"
#include "runtime/coordinator/names.h"
#include "runtime/model/model.h"
#include "runtime/program/declaration_only.h"
#include "runtime/program/declared_model.h"
#include "runtime/storage/storage.h"
#include "runtime/task/by_hand.h"
#include "runtime/task/evaluate_task.h"
#include "runtime/task/hand_watch.h"
#include "runtime/task/program_task.h"
#include "runtime/task/ps_task.h"
#include "runtime/task/worker_task.h"

namespace trainyard::runtime {
namespace {

constexpr int kMaxThreads = 1024;
// Of a program that may have a data set to read before it declares its model.
constexpr std::chrono::minutes kDeclareLimit{10};

struct Flags {
  std::string job, job_dir, checkpoints, task_dir, agent_socket, token, membership, manifest,
      program;
  std::string bind = "127.0.0.1";
  std::string log_format = "text";
  std::uint32_t index = 0;
  std::uint32_t created = 0;
  std::uint32_t start = 0;
  std::uint16_t port = 0;
  int threads = 1;
  std::string threads_reason = "--threads";
};

int exitCode(const Status& status) {
  if (status.ok()) return kExitOk;
  TY_ERROR("{}", fromAbsl(status.message()));
  if (status.code() == absl::StatusCode::kFailedPrecondition) return kExitDiverged;
  if (status.code() == absl::StatusCode::kOutOfRange) return kExitTableFull;
  return failureClass(status) == FailureClass::kRetry ? kExitFailure : kExitBadInput;
}

StatusOr<v1::Membership> readMembership(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, 16 << 20));
  v1::Membership membership;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &membership);
  if (!status.ok()) return invalidInput(path, splitFirst(status.message().ToString(), '\n').first);
  return membership;
}

Status checkMember(const std::string& path, const TaskOptions& options) {
  const v1::Membership& membership = options.membership;
  if (membership.uid() != options.job.metadata().uid()) {
    return invalidInput(path, fmt::format("is of job {}, not of {}", membership.uid(),
                                          options.job.metadata().uid()));
  }
  for (const v1::MemberTask& task : membership.tasks()) {
    if (task.id().role() == options.id.role() && task.id().index() == options.id.index())
      return absl::OkStatus();
  }
  return invalidInput(path, fmt::format("revision {} does not hold {}", membership.revision(),
                                        taskName(options.id.role(), options.id.index())));
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

StatusOr<TaskOptions> taskOptions(const Flags& flags, v1::Role role, const v1::TrainingJob& job) {
  TaskOptions options;
  options.job = job;
  TY_ASSIGN_OR_RETURN(const std::string token, readToken(flags.token));
  options.setToken(token);
  TY_ASSIGN_OR_RETURN(const v1::Membership membership, readMembership(flags.membership));
  options.membership = memberProcesses(membership, processesPerPod(options.job));
  options.id.set_role(role);
  options.id.set_index(flags.index);
  options.self.set_created(flags.created);
  options.self.set_start(flags.start);
  TY_RETURN_IF_ERROR(checkMember(flags.membership, options));
  options.job_dir = flags.job_dir;
  options.checkpoints = flags.checkpoints;
  useObjectStores(variable, flags.checkpoints.empty() ? "" : flags.task_dir);
  options.task_dir = flags.task_dir;
  options.program = flags.program;
  options.bind = flags.bind;
  options.port = flags.port;
  options.threads = flags.threads;
  options.threads_reason = flags.threads_reason;
  options.clock = &systemClock();
  useJobsDisk(options);
  options.end_at_once = [](const Status& why) { std::quick_exit(exitCode(why)); };
  if (!flags.agent_socket.empty()) {
    const bool abstract = flags.agent_socket.front() == '@';
    options.agent_target =
        abstract ? "unix-abstract:" + flags.agent_socket.substr(1) : "unix:" + flags.agent_socket;
  }
  return options;
}

template <typename Task>
Status runTask(const TaskOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::unique_ptr<Task> task, Task::start(options));
  return task->run();
}

// A signal that has ended the program is told as shells do, so that whoever looks at the task sees
// what the kernel did to it.
int runProgram(const TaskOptions& options) {
  constexpr int kSignalled = 128;
  const StatusOr<std::unique_ptr<ProgramTask>> task = ProgramTask::start(options);
  if (!task.ok()) return exitCode(task.status());
  const int code = exitCode((*task)->run());
  const std::optional<ExitState>& program = (*task)->programEnd();
  const bool killed = code == kExitFailure && program && program->signal != 0;
  return killed ? kSignalled + program->signal : code;
}

Status readFailpoints(const std::string& task, const std::string& life) {
  const char* failpoints = std::getenv("TRAINYARD_FAILPOINTS");
  return failpoints == nullptr ? absl::OkStatus() : configureFailpoints(failpoints, task, life);
}

int runRole(const Flags& flags, v1::Role role) {
  LogOptions log;
  log.format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  const StatusOr<v1::TrainingJob> job = readJobFile(flags.job);
  const int processes = job.ok() && role == v1::ROLE_WORKER ? processesPerPod(*job) : 1;
  log.task = memberName(role, flags.index, processes);
  configureLog(log);
  const std::string life = fmt::format("{}.{}", flags.created, flags.start);
  if (Status status = readFailpoints(log.task, life); !status.ok()) return exitCode(status);
  if (!job.ok()) return exitCode(job.status());
  const StatusOr<TaskOptions> options = taskOptions(flags, role, *job);
  if (!options.ok()) return exitCode(options.status());
  setLogIdentity({job->metadata().name(), role == v1::ROLE_PS ? "ps" : "worker",
                  flags.index / static_cast<std::uint32_t>(processes)});
  if (role == v1::ROLE_PS) return exitCode(runTask<PsTask>(*options));
  return flags.program.empty() ? exitCode(runTask<WorkerTask>(*options)) : runProgram(*options);
}

int runEvaluate(const Flags& flags) {
  const StatusOr<v1::TrainingJob> job = readJobFile(flags.job_dir + "/job.json");
  if (!job.ok()) return exitCode(job.status());
  const auto result =
      evaluateCheckpoint(*job, flags.job_dir + "/checkpoints", flags.manifest, flags.threads);
  if (!result.ok()) return exitCode(result.status());
  std::string clicks;
  if (result->auc) clicks += fmt::format(" auc={:.4f}", *result->auc);
  if (result->calibration) clicks += fmt::format(" calibration={:.4f}", *result->calibration);
  std::cout << fmt::format("step={} accuracy={:.4f} loss={:.4f}{} samples={}\n", result->step,
                           result->accuracy, result->loss, clicks, result->samples);
  return kExitOk;
}

// What `trainyard plan` cannot read by itself. Errors as plain text, for it to show.
int printVariables(const std::string& path) {
  v1::ModelSpec spec;
  spec.set_name("torchscript");
  spec.set_path(path);
  const StatusOr<ModelLayout> layout = modelLayout(spec, {}, 0);
  if (!layout.ok()) {
    std::cerr << fromAbsl(layout.status().message()) << "\n";
    return kExitBadInput;
  }
  auto variables = nlohmann::ordered_json::array();
  for (const Variable& variable : layout->variables) {
    if (variable.trainable)
      variables.push_back({{"name", variable.name}, {"shape", variable.shape}});
  }
  std::cout << nlohmann::ordered_json{{"variables", variables}}.dump() << "\n";
  return kExitOk;
}

// The same of a record that a run keeps.
int printDeclared(const std::string& path) {
  const StatusOr<DeclaredModel> model = readDeclaredModel(path);
  if (!model.ok()) {
    std::cerr << fromAbsl(model.status().message()) << "\n";
    return kExitBadInput;
  }
  std::cout << declarationJson(model->declaration) << "\n";
  return kExitOk;
}

// What `trainyard plan --program` asks for. The program's output is ours.
Status writeDeclaration(const std::string& job_file, const std::string& program,
                        const std::string& output) {
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob job, readJobFile(job_file));
  TY_ASSIGN_OR_RETURN(ProgramCommand command, readProgramCommand(program));
  const std::string folder = std::filesystem::path(output).parent_path().string();
  TY_ASSIGN_OR_RETURN(const auto process, ProgramProcess::start(std::move(command), folder));
  TY_ASSIGN_OR_RETURN(const session::Declaration declaration,
                      declarationOf(*process, welcomeOf(job, 0), kDeclareLimit));
  return writeFileAtomically(output, declarationJson(declaration) + "\n");
}

int declare(const Flags& flags, const std::string& output) {
  const Status written = writeDeclaration(flags.job, flags.program, output);
  if (written.ok()) return kExitOk;
  std::cerr << fromAbsl(written.message()) << "\n";
  return kExitBadInput;
}

void addTaskFlags(CLI::App& app, Flags& flags) {
  app.add_option("--job", flags.job, "the job, as JSON")->required();
  app.add_option("--job-dir", flags.job_dir, "checkpoints, metrics and events")->required();
  app.add_option("--checkpoints", flags.checkpoints,
                 "s3://BUCKET/PREFIX, where they go; else into the job directory");
  app.add_option("--task-dir", flags.task_dir, "what only this task writes")->required();
  app.add_option("--index", flags.index, "index of the task in its role");
  app.add_option("--created", flags.created, "how often the task was created");
  app.add_option("--start", flags.start, "how often its agent started it");
  app.add_option("--port", flags.port, "port to listen on; 0: any")->check(wholeNumber(0, 65535));
  app.add_option("--bind", flags.bind, "address to listen on");
  app.add_option("--agent-socket", flags.agent_socket,
                 "Unix socket of the agent; @name is abstract");
  app.add_option("--token", flags.token, "file with the job's token")->required();
  app.add_option("--membership", flags.membership, "file with the membership")->required();
  app.add_option("--threads", flags.threads, "threads to compute with")
      ->check(wholeNumber(1, kMaxThreads));
  app.add_option("--threads-reason", flags.threads_reason, "why so many, for the log");
  app.add_option("--log-format", flags.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
}

StatusOr<TaskOptions> byHandOptions(const HandFlags& flags) {
  TY_ASSIGN_OR_RETURN(TaskOptions options, handOptions(flags, systemClock().unixMillis()));
  std::string token = derivedToken(flags);
  if (!flags.token_file.empty()) {
    TY_ASSIGN_OR_RETURN(token, readToken(flags.token_file));
  }
  options.setToken(token);
  options.bind = flags.bind;
  if (options.bind.empty() && options.id.role() == v1::ROLE_PS) {
    const v1::MemberTask& own = options.membership.tasks(static_cast<int>(flags.task_index));
    TY_ASSIGN_OR_RETURN(options.bind, resolveHost(own.host()));
  }
  TY_RETURN_IF_ERROR(makeDirectories(options.task_dir));
  options.clock = &systemClock();
  return options;
}

int runTaskByHand(const HandFlags& flags) {
  LogOptions log;
  log.task = flags.job_name + "-" + std::to_string(flags.task_index);
  configureLog(log);
  if (Status status = readFailpoints(log.task, ""); !status.ok()) return exitCode(status);
  // Before any thread exists.
  StatusOr<SignalWaiter> signals = SignalWaiter::create({SIGINT, SIGTERM});
  if (!signals.ok()) return exitCode(signals.status());
  StatusOr<TaskOptions> options = byHandOptions(flags);
  if (!options.ok()) {
    TY_ERROR("{}", fromAbsl(options.status().message()));
    return absl::IsInvalidArgument(options.status()) ? kExitUsage : kExitFailure;
  }
  HandWatch watch(*options, *signals, systemClock());
  options->local_agent = [&watch](const v1::RuntimeReport& report) {
    v1::RuntimeDirective directive = watch.onReport(report);
    if (watch.leaves()) std::quick_exit(kExitInterrupted);
    return directive;
  };
  const int code = exitCode(options->id.role() == v1::ROLE_PS ? runTask<PsTask>(*options)
                                                              : runTask<WorkerTask>(*options));
  if (code == kExitOk) TY_INFO("{}", watch.interrupted() ? "stopped" : "the job is over");
  return code == kExitOk && watch.interrupted() ? kExitInterrupted : code;
}

int runByHand(std::vector<std::string> arguments) {
  HandFlags flags;
  if (!arguments.front().starts_with('-')) {
    flags.job_name = arguments.front();
    arguments.erase(arguments.begin());
  }
  CLI::App app("A task that is started by hand, without operator, agent and job file.",
               "trainyard-runtime");
  addHandFlags(app, flags);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return answerParseError(app, error, std::cout, std::cerr);
  }
  return runTaskByHand(flags);
}

int run(int argc, char** argv) {
  keepFreedMemory();
  prepareGrpc();
  if (std::vector<std::string> words(argv + 1, argv + argc); isByHand(words)) {
    return runByHand(std::move(words));
  }
  CLI::App app(
      "The training process of one task. Started by trainyard-agent; or by hand, with the flags "
      "that "
      "trainyard-runtime --job_name=ps --help names.",
      "trainyard-runtime");
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       fmt::format("trainyard-runtime {} {}", TRAINYARD_VERSION, builtCommit()));
  Flags flags;
  CLI::App* ps = app.add_subcommand("ps", "a parameter server");
  CLI::App* worker = app.add_subcommand("worker", "a worker");
  CLI::App* evaluate = app.add_subcommand("evaluate", "accuracy of a checkpoint");
  CLI::App* variables = app.add_subcommand("variables", "names and shapes of a model, as JSON");
  CLI::App* version = app.add_subcommand("version", "what this program computes with");
  addTaskFlags(*ps, flags);
  addTaskFlags(*worker, flags);
  worker->add_option("--program", flags.program,
                     "file with the command of a program that brings the model");
  evaluate->add_option("--job-dir", flags.job_dir, "directory of the run")->required();
  evaluate->add_option("--manifest", flags.manifest,
                       "file name of the checkpoint; default: the newest");
  evaluate->add_option("--threads", flags.threads, "threads to compute with")
      ->check(wholeNumber(1, kMaxThreads));
  std::string model, declared, output;
  variables->add_option("--model", model, "file of a TorchScript module");
  variables->add_option("--declared", declared, "what the program of a run has declared")
      ->excludes("--model");
  variables->require_option(1);
  CLI::App* declare_only =
      app.add_subcommand("declare", "the variables that a program declares, as JSON; it ends then");
  declare_only->add_option("--program", flags.program, "file with its command")->required();
  declare_only->add_option("--output", output, "file to write")->required();
  declare_only->add_option("--job", flags.job, "the job, as JSON")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return answerParseError(app, error, std::cout, std::cerr);
  }
  if (*ps) return runRole(flags, v1::ROLE_PS);
  if (*worker) return runRole(flags, v1::ROLE_WORKER);
  if (*variables) return declared.empty() ? printVariables(model) : printDeclared(declared);
  if (*declare_only) return declare(flags, output);
  if (*evaluate) return runEvaluate(flags);
  if (*version) std::cout << mathLibraries() << "\n";
  return kExitOk;
}

}  // namespace
}  // namespace trainyard::runtime

int main(int argc, char** argv) {
  const int code = trainyard::runtime::run(argc, argv);
  // Without static destructors: gRPC's threads may still be starting in a process that ends early.
  std::cout.flush();
  std::quick_exit(code);
}
