// What a coordinator is started with, which stays as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "runtime/coordinator/push_tickets.h"
#include "runtime/placement/moves.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

inline constexpr std::uint32_t kProtocol = 8;

struct CoordinatorConfig {
  std::string job_uid;
  std::string job_digest;
  v1::Incarnation self;
  bool ring = false;          // strategy AllReduce
  int processes_per_pod = 1;  // of a worker, each a member
  // The grid of chunks, then parts of tables, and where the placement puts them; empty: the servers
  // are always the same.
  std::vector<ChunkLoad> chunks;
  int grid_ps = 0;                     // servers of that placement
  bool replicate = true;               // in modes with common steps
  bool replicate_pushes = false;       // in the others
  std::int64_t steps = 0;              // of the job, until a membership says otherwise; or
  std::int64_t passes = 0;             // over the data, whose size the workers tell
  int batch_size = 0;                  // samples of each worker in a step; or
  int global_batch_size = 0;           // of all workers
  int backup_workers = 0;              // mode Sync: gradients that a step does without
  std::optional<TicketRules> tickets;  // modes Async and BoundedDelay
  std::string init_manifest;  // a fresh start takes this checkpoint's weights; "": the seed's
  std::int64_t evaluate_every = 0;
  Duration checkpoint_every = std::chrono::seconds(50);
  // So long after a whole one checkpoints are deltas, of tables' rows; nothing: all are whole.
  std::optional<Duration> full_every;
  std::int64_t used_epoch = 0;  // checkpoints of epochs up to this one are there, usable or not
  Duration heartbeat = std::chrono::seconds(1);    // a reply is held back at most this long
  Duration dead_after = std::chrono::seconds(5);   // without a report
  Duration stop_limit = std::chrono::seconds(60);  // then stop without a new checkpoint
  Duration leave_limit = std::chrono::seconds(30);
  // So long a server that is to leave and is silent is waited for: without it the job goes back to
  // a checkpoint.
  Duration leaver_patience = std::chrono::seconds(10);
  // The job was over before this process started (see FinishAction): members that come late are
  // told so.
  std::optional<v1::Evaluation> finished;
};

}  // namespace trainyard::runtime
