// One job as it is asked after, from round to round.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/core/clock.h"
#include "grpcpp/grpcpp.h"
#include "operator/progress/grpc_progress.h"

namespace trainyard::control {

struct GrpcProgress::Job {
  // Of a task that runs.
  struct Known {
    std::uint32_t created = 0;
    std::shared_ptr<AgentPeer> peer;
  };

  std::string uid;
  JobWish wish;
  JobReport report;
  std::map<std::string, std::shared_ptr<AgentPeer>> peers;  // by address
  std::map<TaskKey, Known> tasks;                           // whom `peers` are
  // Shared by all connections of the job, made of `own_key`.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string own_key;
  std::optional<TimePoint> due;  // its entry in due_
  std::uint64_t round = 0;       // number of the one under way; 0: none
  bool hurry = false;            // the next one follows at once
  // Nothing is to be told, everybody is heard of, and nothing but its progress has changed.
  bool calm = false;
  Duration pace{};          // between its last round and the next
  bool progressed = false;  // since `report.progress_due`

  std::int64_t revision() const { return wish.membership ? wish.membership->revision() : 0; }
};

}  // namespace trainyard::control
