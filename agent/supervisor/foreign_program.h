// A program of the user's own as the task's program: what it is told of the job, in the forms that
// TensorFlow, Horovod and PyTorch programs read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/membership/identity.h"
#include "base/core/status.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::agent {

using Variables = std::vector<std::pair<std::string, std::string>>;

struct ForeignProgram {
  std::vector<std::string> argv;  // $(NAME) not yet replaced
  Variables env;
  std::string working_dir;                     // "": that of the agent
  std::map<std::string, std::string> volumes;  // name -> folder
  bool gpu_by_rank = false;                    // a worker sees only the GPU of its local rank
};

// From command.json; see operator/local/command_file.h. INVALID_ARGUMENT names the file.
StatusOr<ForeignProgram> readForeignProgram(const std::filesystem::path& path);

// From the agent's own arguments, in a container of its own: `environment` is the container's, so
// that what it says of the loader (LD_*) is meant for the program.
ForeignProgram foreignProgram(std::vector<std::string> argv,
                              std::map<std::string, std::string> volumes,
                              const std::vector<std::string>& environment);

// TRAINYARD_VOLUME_<NAME>, by which a program finds the folder of the volume `name`.
std::string volumeVariable(std::string name);

// Of one process of the task.
struct ForeignPlace {
  std::uint32_t process = 0;
  std::string report = "";      // path of its socket; "": it has none
  std::vector<int> taken = {};  // ports that every task's agent has itself
};

// What `self` is told, where the membership is complete:
//   TRAINYARD_JOB, _NAMESPACE, _ROLE, _INDEX, _REVISION, _MEMBERSHIP_FILE, _VOLUME_<NAME>
//   PS_HOSTS, WORKER_HOSTS    host:port,host:port by index (TensorFlow's flags)
//   TF_CONFIG                 {"cluster": {"ps": [...], "worker": [...]}, "task": {...}}
//   WORLD_SIZE, MASTER_ADDR, MASTER_PORT   how many workers; where the first one is to be found
//   TRAINYARD_RENDEZVOUS      host:port of the first one, for what else its program serves: the
//                             port after MASTER_PORT
//   RANK, LOCAL_RANK, LOCAL_WORLD_SIZE     workers only: place among all, and among those of its
//                                          machine; dense, by index
//   TRAINYARD_REPORT          where it tells how it gets on: see agent/telling
// Where a worker has several processes each has a place of its own; hosts and TF_CONFIG name each
// worker once.
Variables foreignVariables(const v1::Membership& membership, const TaskIdentity& self,
                           const std::string& membership_file,
                           const std::map<std::string, std::string>& volumes,
                           const ForeignPlace& place = {});

// Equal for variables that tell the same of the other tasks: the revision alone tells nothing.
std::string fingerprint(const Variables& variables);

// `text` with $(NAME) replaced for exactly these names. $$(NAME) of such a name becomes $(NAME), as
// in Kubernetes; everything else stays, so that shell commands keep their $(...) and $$.
std::string expandVariables(const std::string& text, const Variables& variables);

struct ForeignStart {
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "NAME=value"
};
// `environment` is the agent's. Its LD_* and TRAINYARD_* do not reach the program; `program.env`
// stands above the rest of it, `variables` above all. A ps sees no GPU unless program.env says so.
// `secret` becomes TRAINYARD_SECRET, which is replaced in no argument: everybody on the machine can
// read those.
ForeignStart foreignStart(const ForeignProgram& program, const Variables& variables, v1::Role role,
                          const std::vector<std::string>& environment,
                          const std::string& secret = "");

}  // namespace trainyard::agent
