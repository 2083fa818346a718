// One worker as a member of the job: what it says of itself and hears, to and from coordinator and
// agent, the Synchronizer that puts its gradients together with those of others, the replicas that
// index 0 keeps for an only server, and what it leaves behind. With strategy AllReduce index 0 is
// also the coordinator and writes checkpoints. Knows no model and no data beyond WorkerModel:
// whoever computes asks synchronizer(), in this process on one thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "base/rpc/task_server.h"
#include "runtime/collective/group_device.h"
#include "runtime/coordinator/member_link.h"
#include "runtime/coordinator/service.h"
#include "runtime/events/kept_records.h"
#include "runtime/events/timeline.h"
#include "runtime/files/file_service.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/placement/placement.h"
#include "runtime/rows/row_worker.h"
#include "runtime/task/agent_link.h"
#include "runtime/task/options.h"
#include "runtime/task/replica_keeper.h"
#include "runtime/task/run_log.h"
#include "runtime/train/member_synchronizer.h"
#include "runtime/train/model_layout.h"
#include "runtime/train/program_state.h"
#include "runtime/train/step_record.h"
#include "runtime/train/training_session.h"

namespace trainyard::runtime {

// What a member has to know of what is computed.
struct WorkerModel {
  ModelLayout layout;
  // Of the variables that are trained, in their order; the member writes there what next()
  // promises.
  std::vector<std::span<float>> weights;
  // With parameter servers: the job's tables, and the rows that samples need; none.
  std::vector<rows::WorkerTable> tables;
  RowIdsAt row_ids;
  // AllReduce: variables whose gradients come by rows, and what can be summed on the GPU.
  std::vector<int> by_rows;
  collective::GroupDevice device;
  // AllReduce: whoever computes makes the update himself, in two halves (StepCommit). The job's
  // optimizer is none then, and has no slots.
  bool own_update = false;
  // What only whoever computes understands and what goes beside checkpoints; they must outlive the
  // member. AllReduce, where a step without samples for this worker is told then, too.
  ProgramState* state = nullptr;
  KeepBeside beside = {};  // index 0
  // Data: the same in all workers, or the coordinator refuses.
  std::int64_t samples = 0;
  std::int64_t evaluation_samples = 0;
  std::string data_sha256;
};

// make(), join(), then the computing asks the synchronizer until it is over, then leave().
class WorkerMember final : public TrainObserver {
 public:
  // The weights in `model` must outlive the member. Errors: bad input names its field or file; with
  // strategy AllReduce UNAVAILABLE when the port is taken.
  static StatusOr<std::unique_ptr<WorkerMember>> make(const TaskOptions& options,
                                                      WorkerModel model);
  ~WorkerMember() override;

  Synchronizer& synchronizer() { return *synchronizer_; }
  // Its other side, with strategy AllReduce; else null.
  StepCommit* commit() { return commit_; }
  // Begins to talk to agent and coordinator. `totals` is asked from any thread until the member is
  // gone.
  void join(std::function<TrainTotals()> totals);
  // Says how computing has ended, and waits until that is heard; with the coordinator in this
  // process until all have heard how the job ended. OK: done, stopped or left;
  // FAILED_PRECONDITION: the job failed.
  Status leave(const Status& end);

  // What the coordinator said last of the job's versions; -1: of none. Any thread.
  struct Versions {
    std::int64_t checkpoint_at = -1;
    std::int64_t last_checkpoint = -1;
    std::int64_t steps = 0;
  };
  Versions versions() const;
  // The chief's, when it holds `version`: of which steps, in ascending order, it has to keep what
  // goes beside a checkpoint and is in no server. `kept`: the newest that this process has kept;
  // `has`: whether there are files of a step. Any thread.
  std::vector<std::int64_t> keepDue(std::int64_t version, std::int64_t kept,
                                    const std::function<bool(std::int64_t)>& has) const;
  // The same when the job is over, at step `end`: of which steps before. Others may have made them
  // since the chief's last step.
  std::vector<std::int64_t> keepMissed(std::int64_t end, std::int64_t kept,
                                       const std::function<bool(std::int64_t)>& has) const;

  // Of each completed step, and what the computing thread does: logs, events, timeline.
  Status onStep(const StepRecord& record) override { return log_->onStep(record); }
  void onSpan(std::string_view name, std::int64_t step, TimePoint start, TimePoint end) override;

 private:
  WorkerMember(const TaskOptions& options, WorkerModel model);
  Status build();
  // Whether others make versions that the chief never holds.
  bool mayMissVersions() const;
  std::set<std::int64_t> missed(std::set<std::int64_t> steps, std::int64_t kept, std::int64_t last,
                                const std::function<bool(std::int64_t)>& has) const;
  // worker_member_build.cc: which synchronizer the job's strategy means.
  Status place();
  Status synchronizeOverServers();
  void startKeeper();
  Status synchronizeInRing();
  Status hostCoordinator();
  void poke();
  void openTimeline();
  void awaitOthers(const Status& end);
  v1::MemberReport report();
  v1::RuntimeReport runtimeReport();
  v1::Measurements measurements() const;
  void onView(const v1::View& view);
  void onDirective(const v1::RuntimeDirective& directive);

  const TaskOptions options_;
  const WorkerModel model_;
  std::string digest_;
  Placement placement_;
  std::unique_ptr<Optimizer> optimizer_;  // AllReduce
  std::unique_ptr<RunLog> log_;
  std::unique_ptr<KeptRecords> kept_;   // the chief's, where its folder may go with its pod
  std::unique_ptr<Timeline> timeline_;  // null: not asked for
  std::unique_ptr<MemberSynchronizer> synchronizer_;
  StepCommit* commit_ = nullptr;
  std::function<TrainTotals()> totals_;

  std::atomic<bool> leaves_ = false;  // computing has ended, with all that it had to write
  // The job was over before this process started.
  std::optional<v1::Evaluation> finished_;

  mutable std::mutex mutex_;
  v1::Membership membership_;
  v1::View view_;

  std::unique_ptr<CoordinatorService> coordinator_;  // AllReduce, index 0
  std::unique_ptr<FileService> files_;               // likewise, where others have no disk
  std::unique_ptr<TaskServer> server_;

  std::unique_ptr<ReplicaKeeper> keeper_;  // with parameter servers, index 0

  std::unique_ptr<AgentLink> agent_;
  std::unique_ptr<MemberLink> link_;
};

}  // namespace trainyard::runtime
