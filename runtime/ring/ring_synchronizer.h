// Synchronizer of strategy AllReduce: every rank sums the gradients of all with the others, and
// takes the step itself on a state of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/work_thread.h"
#include "runtime/ring/exchange.h"
#include "runtime/ring/replica.h"
#include "runtime/ring/ring_worker.h"
#include "runtime/ring/state_relay.h"
#include "runtime/train/member_synchronizer.h"
#include "runtime/train/program_state.h"
#include "runtime/train/step_commit.h"

namespace trainyard::runtime::ring {

struct RingSynchronizerOptions {
  RingWorkerConfig worker;  // without `port` and `parameter_bytes`
  ExchangeOptions exchange;
  double clip_norm = 0;
  std::vector<int> by_rows = {};  // what Model::deliverRows() gave
  int processes_per_pod = 1;      // of a worker, each a member: how they are called
  // Reads what an epoch starts from, when it is a checkpoint, another run's weights or the seed.
  std::function<Status(const v1::EpochInfo&, const LoadChunk&)> load;
  // Writes a checkpoint's file; called from a thread of its own.
  std::function<v1::ShardFile(const Snapshot&)> write;
  // Of whoever computes, where there is any: goes with the weights to ranks that receive them.
  ProgramState* state = nullptr;
  // Goes beside a checkpoint's file, and is written before; may be empty. Versions are copied
  // between turns only then, when it may be asked for.
  KeepBeside beside = {};
  // How long next() may wait without anything to do before it fails.
  Duration patience = std::chrono::hours(1);
};

// next/push/finish/sum/commit/evaluated/abort: the trainer's thread. The rest: any thread.
class RingSynchronizer final : public MemberSynchronizer, public StepCommit {
 public:
  // `weights` are the model's spans in the order of its variables. All must outlive this. `urgent`
  // asks the link to report at once.
  RingSynchronizer(RingSynchronizerOptions options, const Placement& placement,
                   std::vector<std::span<float>> weights, const Optimizer& optimizer,
                   LearningRate learning_rate, const Clock& clock, std::function<void()> urgent);
  ~RingSynchronizer() override;
  // Before anything else. Errors: no port is to be had.
  Status open();

  StatusOr<Turn> next() override;
  bool wantsGradientsOnDevice() const override;
  bool copiesGradients() const override { return true; }  // into the memory that is reduced
  bool push(Gradient gradient) override;
  // sum(), the optimizer's update, commit().
  StatusOr<StepOutcome> finish(const BatchLoss& loss) override;
  // With an optimizer of the caller's own; `worker.tells_standing` must be set, for each step must
  // be taken by it.
  StatusOr<std::optional<SummedStep>> sum(const BatchLoss& loss, Arrays means = {}) override;
  StepOutcome commit() override;
  void evaluated(const BatchScore& score) override;
  void abort(std::int64_t step, std::string_view variable, std::string_view reason) override;
  bool interrupted() const override;

  void onView(const v1::View& view) override;
  void fillReport(v1::MemberReport& report) const override;
  // Ranks find each other by what the coordinator says.
  void setMembership(const v1::Membership&) override {}
  void fillTraffic(v1::RuntimeReport&) const override {}
  void measure(v1::Measurements& measured) const override;

 private:
  bool cancelled(std::int64_t epoch) const;
  void changed();
  Status prepare(const v1::EpochInfo& epoch);
  Status load(const v1::EpochInfo& epoch);
  Status receive(const v1::EpochInfo& epoch, int rank);
  void failed(const v1::EpochInfo& epoch, const Status& status);
  std::optional<SummedStep> gather(const StepTotals& own, Arrays means = {});
  StepOutcome update(const SummedStep& summed);
  void leaveStep();
  void copyInStep();
  Status copyIfDue();
  void write(Snapshot snapshot, const std::function<Status()>& beside);

  const RingSynchronizerOptions options_;
  const Placement& placement_;
  const Clock& clock_;
  const std::function<void()> urgent_;
  Replica replica_;
  std::vector<std::string> names_;  // of the model's variables
  std::unique_ptr<Exchange> exchange_;
  std::optional<StateRelay> relay_;
  // The trainer's: the epoch that exchange_ has joined, and what commit() will have taken.
  v1::EpochInfo group_;
  StepOutcome committing_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<RingWorker> worker_;
  bool closing_ = false;
  bool writing_ = false;  // or about to: a copy for a checkpoint is there
  WorkThread writer_;
};

}  // namespace trainyard::runtime::ring
