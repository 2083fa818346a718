// A shard in its process: requests from the network, epochs that are prepared, snapshots that are
// written. A parameter server's whole work, and that of the worker that keeps an only server's
// replicas.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "base/core/status.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/ps_machine.h"
#include "runtime/ps/replica_link.h"
#include "runtime/ps/service.h"
#include "runtime/ps/table_service.h"
#include "runtime/task/epoch_contents.h"
#include "runtime/task/job_tables.h"
#include "runtime/task/options.h"
#include "runtime/task/part_copier.h"
#include "runtime/task/snapshot_writer.h"
#include "runtime/train/model_layout.h"

namespace trainyard::runtime {

// Thread-safe, but for work(), which is one thread's.
class ShardHost {
 public:
  // `number`: the server's, or kWorkerKeeper. `layout` and `placement` (the grid, and where the
  // job's chunks begin) must outlive the host. `poke`: the coordinator should hear of this process
  // at once; called from any thread, not before service() has got requests or a view came.
  static StatusOr<std::unique_ptr<ShardHost>> make(const TaskOptions& options, int number,
                                                   const ModelLayout& layout,
                                                   const Placement& placement,
                                                   const std::function<void()>& poke);
  // service() and tables() must have no server then.
  ~ShardHost();

  // To be registered with the process's server: data, and what needs known clients.
  ps::PsService& service() { return *service_; }
  ps::TableService& tables() { return *tables_; }
  const ps::Shard& shard() const { return *shard_; }
  const Optimizer& optimizer() const { return *optimizer_; }

  void onView(const v1::View& view);
  // `f` is given the machine, with the lock held.
  template <typename F>
  auto withMachine(F f) const {
    std::lock_guard lock(mutex_);
    return f(static_cast<const ps::PsMachine&>(*machine_));
  }
  // As end(), and gives up what is sent to replicas. Waits for a file that is being written.
  // Nothing is poked any more.
  void close();

  // Until there is something to do, or a fifth of a second. False: end() was called.
  bool await();
  // What is due now: an epoch to prepare, a snapshot to take, calls that wait too long.
  void work();
  void wake();
  void end();

 private:
  ShardHost(const TaskOptions& options, int number, const ModelLayout& layout,
            const Placement& placement, std::function<void()> poke);
  Status build();
  // The parts of work().
  void prepareEpoch();
  void copyParts();
  void takeSnapshots();
  void tellTrouble();
  void endLongWaits();

  bool othersWait() const;
  void onWritten(const v1::ShardFile& file);
  void onCopied(const v1::EpochInfo& epoch);

  const TaskOptions options_;
  const int number_;
  const ModelLayout& layout_;
  const Placement& placement_;
  const std::function<void()> poke_;
  std::unique_ptr<Optimizer> optimizer_;
  JobTables job_tables_;
  std::unique_ptr<ps::Shard> shard_;
  std::unique_ptr<EpochContents> contents_;  // work()'s
  std::unique_ptr<ps::PsService> service_;
  std::unique_ptr<ps::TableService> tables_;
  std::unique_ptr<ps::ReplicaLink> replicas_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool wanted_ = false;
  bool end_ = false;
  std::unique_ptr<ps::PsMachine> machine_;
  std::unique_ptr<SnapshotWriter> snapshots_;
  std::unique_ptr<PartCopier> copier_;  // last: its thread uses the rest
};

}  // namespace trainyard::runtime
