// trainyard-agent: process 1 of a task. Starts, restarts and stops the task's program, tells it the
// membership, and shows the task's state, metrics and health to others.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "agent/agent.h"
#include "agent/agent_flags.h"
#include "agent/install.h"
#include "agent/membership/identity.h"
#include "base/core/commit.h"
#include "base/core/exit_code.h"
#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/log_context.h"
#include "base/core/strings.h"
#include "base/flags/usage.h"
#include "base/process/signals.h"
#include "base/rpc/grpc_process.h"
#include "fmt/format.h"

namespace trainyard::agent {
namespace {

std::vector<std::string> environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

int fail(const Status& status, int code) {
  TY_ERROR("agent: {}", fromAbsl(status.message()));
  return code;
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

TaskIdentity identityOf(const AgentFlags& flags) {
  TaskIdentity self;
  self.id.set_role(flags.role == "ps" ? v1::ROLE_PS : v1::ROLE_WORKER);
  self.id.set_index(flags.index);
  self.created = flags.created;
  self.processes = self.id.role() == v1::ROLE_WORKER ? flags.processes : 1;
  self.foreign = flags.runtime.empty();
  return self;
}

// What the parser cannot say.
void requireProgram(const AgentFlags& flags) {
  const bool named = !flags.command_file.empty();
  const bool given = !flags.program.empty();
  if ((named && given) || (!named && !given && flags.runtime.empty())) {
    throw CLI::RequiredError("--runtime, --command or -- PROGRAM, or --runtime beside one of them");
  }
}

int runMain(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "install") == 0) {
    const Status installed = install(argv[2], argv[3]);
    return installed.ok() ? kExitOk : fail(installed, kExitFailure);
  }
  CLI::App app("Process 1 of a training task: runs and watches the task's program.",
               "trainyard-agent");
  AgentFlags flags;
  addFlags(app, flags);
  app.set_version_flag("--version",
                       fmt::format("trainyard-agent {} {}", TRAINYARD_VERSION, builtCommit()));
  flags.program = takeProgram(argc, argv);
  try {
    app.parse(argc, argv);
    requireProgram(flags);
  } catch (const CLI::ParseError& error) {
    return answerParseError(app, error, std::cout, std::cerr);
  }
  TaskIdentity self = identityOf(flags);
  configureLog({.format = flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
                .level = LogLevel::kInfo,
                .task = taskName(self.id)});
  if (const char* failpoints = std::getenv("TRAINYARD_FAILPOINTS")) {
    const std::string life = fmt::format("{}.0", self.created);
    const Status read = configureFailpoints(failpoints, taskName(self.id), life);
    if (!read.ok()) return fail(read, kExitUsage);
  }
  // Before any thread exists.
  StatusOr<SignalWaiter> signals = SignalWaiter::create({SIGTERM, SIGINT, SIGCHLD});
  if (!signals.ok()) return fail(signals.status(), kExitAgentFailure);
  ::signal(SIGPIPE, SIG_IGN);
  prepareGrpc();
  StatusOr<JobIdentity> job = readJobIdentity(flags.job_file);
  if (!job.ok()) return fail(job.status(), kExitUsage);
  self.job = std::move(*job);
  setLogIdentity({self.job.name, roleName(self.id.role()), self.id.index()});
  const StatusOr<int> code = runAgent(flags, self, environment(), *signals);
  if (code.ok()) return *code;
  const bool permanent = failureClass(code.status()) == FailureClass::kPermanent;
  return fail(code.status(), permanent ? kExitUsage : kExitAgentFailure);
}

}  // namespace
}  // namespace trainyard::agent

int main(int argc, char** argv) {
  return trainyard::agent::runMain(argc, argv);
}
