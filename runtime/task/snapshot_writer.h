// Snapshots on their way from a shard to the disk.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "base/core/work_thread.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/shard.h"
#include "runtime/task/options.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Writes in a thread of its own: a disk that does not answer holds up nothing but checkpoints.
class SnapshotWriter {
 public:
  // All must outlive it. `written` is called from its thread, also with a file that could not be
  // written (v1::ShardFile.error).
  SnapshotWriter(const TaskOptions& options, const Optimizer& optimizer,
                 std::vector<ManifestTable> tables, ps::Shard& shard,
                 std::function<void(const v1::ShardFile&)> written);

  // Copies chunk by chunk what snapshots lack, until `others_wait`; those that are complete are to
  // be written, with the placement of their epoch. True: there was one. One thread's.
  bool take(const std::shared_ptr<const Placement>& placement,
            const std::function<bool()>& others_wait);
  // Waits for the file under way; nothing else is written any more.
  void stop() { thread_.stop(); }

 private:
  struct ToWrite {
    Snapshot snapshot;
    std::shared_ptr<const Placement> placement;
  };
  void writeNext();

  const TaskOptions& options_;
  const Optimizer& optimizer_;
  const std::vector<ManifestTable> tables_;
  ps::Shard& shard_;
  const std::function<void(const v1::ShardFile&)> written_;
  std::mutex mutex_;
  std::deque<ToWrite> to_write_;  // of one epoch
  WorkThread thread_;
};

}  // namespace trainyard::runtime
