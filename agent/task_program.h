// What the processes of a task are started with: our runtime, a program of the user's own, or our
// runtime beside a program that brings the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/agent_flags.h"
#include "agent/membership/identity.h"
#include "agent/membership/membership_store.h"
#include "agent/supervisor/foreign_program.h"
#include "agent/supervisor/process_set.h"
#include "agent/telling/tell_sockets.h"
#include "base/core/status.h"
#include "base/process/child_process.h"
#include "trainyard/v1/agent.pb.h"

namespace trainyard::agent {

// Where programs reach their agent.
struct ProgramSockets {
  std::string report;           // of our runtime
  TellSockets* tell = nullptr;  // of a program of the user's own; null: there is none
  std::string secret;           // what its processes know each other by
};

// One thread, that of the task's loop. All references outlive it.
class TaskProgram {
 public:
  // `environment`: of this process, from which that of the program is made.
  TaskProgram(const AgentFlags& flags, const TaskIdentity& self, MembershipStore& store,
              ProgramSockets sockets, std::vector<std::string> environment)
      : flags_(flags),
        self_(self),
        store_(store),
        sockets_(std::move(sockets)),
        environment_(std::move(environment)) {}

  // For its start number `start`, with `port` as the task's. The store holds a membership that is
  // complete; it is written where the program reads it. INVALID_ARGUMENT: what it is to run is
  // wrong, which a further start will not mend.
  // `former`: the last word of the start before. Of a coordinator that tells how far the job had
  // come, which is later than what the membership says of it.
  StatusOr<std::vector<NamedProcess>> prepare(std::uint32_t start, int port,
                                              const v1::RuntimeReport& former);
  // Writes the newest membership for a program of the user's own that runs. Returns what one that
  // starts now is told of the others: what stands in its environment cannot follow.
  StatusOr<std::string> tell() const;

 private:
  ForeignPlace placeOf(std::uint32_t process) const;
  StatusOr<ForeignProgram> readProgram() const;
  StatusOr<SpawnOptions> prepareForeign(const v1::Membership& membership, const std::string& file,
                                        std::uint32_t process) const;
  StatusOr<SpawnOptions> prepareRuntime(std::uint32_t start, int port,
                                        const std::string& membership, std::uint32_t process) const;
  StatusOr<std::string> writeProgram(const std::string& task_dir, const std::string& file,
                                     std::uint32_t process) const;
  StatusOr<std::string> writeMembership(const v1::Membership& membership) const;

  const AgentFlags& flags_;
  const TaskIdentity& self_;
  MembershipStore& store_;
  const ProgramSockets sockets_;
  const std::vector<std::string> environment_;
};

}  // namespace trainyard::agent
