// The command and the environment of the task's program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/supervisor/compute_threads.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::agent {

// What the flags of trainyard-runtime say; paths as given to the agent.
struct ChildCommand {
  std::string runtime;
  v1::TaskId id;
  std::uint32_t created = 0;
  std::string job_file;
  std::string job_dir;
  std::string checkpoints = {};  // where they are, if not in job_dir: "s3://..."
  std::string task_dir;
  std::string token_file;
  std::string membership_file;
  std::string agent_socket;  // path, or "@name" for an abstract one
  std::string bind;
  int port = 0;
  ComputeThreads threads;
  std::string program;               // file with the command of a program that brings the model
  std::string log_format = "text";   // or "json"
  std::vector<std::string> volumes;  // MOUNT=DIR
};

// argv of the start-th life.
std::vector<std::string> childArguments(const ChildCommand& command, std::uint32_t start);

// `environment` ("NAME=value") without what is meant for the agent alone: LD_* and TRAINYARD_*, but
// TRAINYARD_FAILPOINTS and TRAINYARD_LIBRARY stay.
std::vector<std::string> childEnvironment(const std::vector<std::string>& environment);

// That of trainyard-runtime: threads that wait for their part of a layer sleep, unless the
// environment says otherwise. OpenMP's spin, on cores that a parameter server, the network's
// threads or another program need; where those come between, the layers wait for a thread that is
// not running.
std::vector<std::string> runtimeEnvironment(const std::vector<std::string>& environment);

}  // namespace trainyard::agent
