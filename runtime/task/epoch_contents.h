// What a server's shard holds in an epoch, and how it gets there: from a checkpoint, from the seed,
// or from other servers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/core/status.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/chunk_fetch.h"
#include "runtime/ps/shard.h"
#include "runtime/task/job_tables.h"
#include "runtime/task/options.h"
#include "runtime/train/model_layout.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// One thread's, but for copy().
class EpochContents {
 public:
  // `number`: the server's, or kWorkerKeeper. All but `access` must outlive it.
  EpochContents(const TaskOptions& options, int number, const ModelLayout& layout,
                const Placement& placement, const Optimizer& optimizer, const JobTables& tables,
                ps::DataAccess access, ps::Shard& shard);

  // Which chunks and replicas are to be here.
  void assign(const v1::EpochInfo& epoch);
  // Gets those that are not. CANCELLED: the epoch is `over`; asked from several threads.
  Status fill(const v1::EpochInfo& epoch, const std::function<bool()>& over);
  // Once the epoch has begun: gets the parts that are to be copied here, or what came behind those
  // that are here already. Errors as of fill(); whoever repeats it, until the epoch is over, stays
  // close behind. On a thread of its own.
  Status copy(const v1::EpochInfo& epoch, const std::function<bool()>& over);
  // With the chunks where the epoch that was assigned last has them.
  std::shared_ptr<const Placement> placement() const { return epoch_placement_; }

 private:
  Status follow(const v1::EpochInfo& epoch, const std::vector<std::uint32_t>& numbers,
                const std::vector<int>& servers, const std::function<bool()>& over);
  Status load(const v1::EpochInfo& epoch);
  Status fetch(const v1::EpochInfo& epoch, const std::function<bool()>& over);
  ps::FetchedChunk wanted(const v1::EpochInfo& epoch, std::uint32_t chunk, int from,
                          bool replica) const;
  ps::FetchOptions fetching(const std::function<bool()>& over, const ps::FetchLimits& limits) const;
  Status fetch(const v1::EpochInfo& epoch, const std::vector<ps::FetchedChunk>& chunks,
               const char* failpoint, const std::function<bool()>& over);

  const TaskOptions& options_;
  const int number_;
  const ModelLayout& layout_;
  const Placement& placement_;
  const Optimizer& optimizer_;
  const JobTables& tables_;
  const ps::DataAccess access_;
  ps::Shard& shard_;
  const std::vector<int> start_map_;  // by chunk, the server that the job begins with
  std::shared_ptr<const Placement> epoch_placement_;
};

}  // namespace trainyard::runtime
