#include "agent/agent_flags.h"

#include "CLI/CLI.hpp"
#include "base/core/exit_code_set.h"
#include "base/flags/usage.h"

namespace trainyard::agent {
namespace {

constexpr int kMaxProcesses = 64;
constexpr int kMaxWorkersHere = 10000;
// Years: pods may have any number, and one that is not given up soon is given up never.
constexpr double kMaxStopGrace = 1e9;

}  // namespace

void addFlags(CLI::App& app, AgentFlags& flags) {
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
  app.add_option("--checkpoints", flags.checkpoints,
                 "s3://BUCKET/PREFIX, where they go; else into the job directory");
  app.add_option("--task-dir", flags.task_dir, "Directory of this task")->required();
  app.add_option("--job", flags.job_file, "Resolved job (JSON)")->required();
  app.add_option("--membership", flags.membership_file, "Membership file")->required();
  app.add_option("--token", flags.token_file, "File with the job's token")->required();
  CLI::Option_group* program = app.add_option_group("Program", "What to run");
  program->add_option("--runtime", flags.runtime,
                      "trainyard-runtime; a task that needs LibTorch runs the -torch beside it");
  program->add_option("--command", flags.command_file, "File that names another program");
  // Or the program and its arguments after "--"; beside --runtime: of one that brings the model.
  program->require_option(0, 2);
  app.add_option("--program-volume", flags.program_volumes,
                 "NAME=DIR, told to the program after --");
  app.add_flag("--no-restart", flags.no_restart, "Every exit of the program is final");
  app.add_option("--final-exits", flags.final_exits,
                 "Exit codes (1-3,137) after which the program is not started again; 128 + the "
                 "signal that killed it")
      ->check([](const std::string& text) {
        return ExitCodeSet::parse(text) ? std::string() : "not a list of exit codes: " + text;
      });
  app.add_option("--on-membership-change", flags.on_change,
                 "What a running program of --command gets when tasks come or go: a new start, "
                 "SIGHUP, or nothing")
      ->check(CLI::IsMember({"Restart", "Signal", "Ignore"}))
      ->capture_default_str();
  app.add_flag("--gpu-by-rank", flags.gpu_by_rank,
               "A worker of --command sees only the GPU of its local rank");
  app.add_option(
         "--stop-grace", flags.stop_grace,
         "Seconds that the program has to end by itself when it is asked to, before SIGKILL")
      ->check(CLI::Range(0.0, kMaxStopGrace))
      ->capture_default_str();
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

}  // namespace trainyard::agent
