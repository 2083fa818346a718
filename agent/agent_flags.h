// What an agent is started with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trainyard::agent {

struct AgentFlags {
  std::string role;
  std::uint32_t index = 0;
  std::uint32_t created = 0;
  std::uint32_t processes = 1;
  std::string job_dir;
  std::string checkpoints;
  std::string task_dir;
  std::string job_file;
  std::string membership_file;
  std::string token_file;
  std::string runtime;
  std::string command_file;
  std::vector<std::string> program;  // what follows "--"
  std::vector<std::string> program_volumes;
  bool no_restart = false;
  std::string final_exits;
  std::string on_change = "Restart";
  bool gpu_by_rank = false;
  double stop_grace = 10;  // seconds
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

// The flags of `app`, which fill `flags`; `program` is left to the caller.
void addFlags(CLI::App& app, AgentFlags& flags);

}  // namespace trainyard::agent
