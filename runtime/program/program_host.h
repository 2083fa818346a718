// What a program asks for in its session, carried out by this worker as a member of the job: the
// way from a declaration to a TrainingSession, and from each of the program's messages to a call of
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/program/declared_buffers.h"
#include "runtime/program/declared_model.h"
#include "runtime/program/program_rows.h"
#include "runtime/program/session_state.h"
#include "runtime/session/serve.h"
#include "runtime/session/session_memory.h"
#include "runtime/train/training_session.h"

namespace trainyard::runtime {

// The job, which this worker joins when its program's model is known. Called on the session's
// thread, in this order.
class ProgramJob {
 public:
  virtual ~ProgramJob() = default;
  // Makes this worker a member, once. `weights`, of the variables that are trained, outlive it: its
  // synchronizer, which it owns, puts there what next() promises.
  struct Member {
    Synchronizer* synchronizer = nullptr;
    StepCommit* commit = nullptr;  // where workers take the steps: the synchronizer's other side
  };
  // What this worker's program has beside the weights.
  struct Hosted {
    ProgramState* state = nullptr;  // null: the program has declared none
    KeepBeside beside = {};         // the chief's, empty where there is nothing
    RowIdsAt row_ids = {};          // of samples that it has said something of
  };
  virtual StatusOr<Member> make(const DeclaredModel& model, std::vector<std::span<float>> weights,
                                Hosted hosted) = 0;
  // From here on the others see it.
  virtual void join() = 0;
  // With parameter servers, to the chief that holds `version`: of which steps, in ascending order,
  // it has to keep what goes beside a checkpoint, where it has kept that of step `kept` last.
  virtual std::vector<std::int64_t> keepDue(std::int64_t version, std::int64_t kept,
                                            const std::function<bool(std::int64_t)>& has) = 0;
  // The same when the job is over, at step `end`: of which steps before.
  virtual std::vector<std::int64_t> keepMissed(std::int64_t end, std::int64_t kept,
                                               const std::function<bool(std::int64_t)>& has) = 0;
  // How this worker's part ended, when there is nothing more to do; returns the job's end.
  virtual Status leave(const Status& end) = 0;
};

// What the program of a worker is told first.
session::Welcome welcomeOf(const v1::TrainingJob& job, std::uint32_t index);

// Its calls come from the session's thread, but for totals().
class ProgramHost final : public session::SessionHost {
 public:
  struct Options {
    bool chief = false;  // worker-0: its program's model is the job's
    // With strategy AllReduce: a program may make the update itself.
    bool workers_update = false;
    std::string checkpoint_dir;
    int kept = 3;                // files of a step, see keptFiles()
    std::uint64_t seed = 0;      // of the order of samples
    std::string init_from = {};  // see initial_values.h
    std::vector<session::SessionTable> tables = {};
    session::Cancelled cancelled = {};
  };
  // All must outlive it; `observer` hears of steps.
  ProgramHost(Options options, ProgramJob& job, TrainObserver& observer, const Clock& clock);

  StatusOr<session::MemoryPlace> declare(const session::Declaration& declaration) override;
  StatusOr<session::TurnMessage> next(session::WaitingProgram& program) override;
  void push(std::uint32_t variable) override;
  StatusOr<session::Outcome> finish(const session::Finish& finish) override;
  StatusOr<session::Outcome> sum(const session::Finish& finish) override;
  StatusOr<session::Outcome> commit() override;
  void evaluated(const session::Score& score) override;
  void abort(std::string_view why) override;
  session::RowHost* rows() override { return rows_.none() ? nullptr : &rows_; }

  // To be called now and then while the program computes: tells it where the turn under way is
  // void.
  void tellInterrupted();
  // How the job ended for this worker; nothing before that.
  const std::optional<Status>& end() const { return end_; }
  // Any thread.
  TrainTotals totals() const;

 private:
  Status begin();
  StatusOr<session::TurnMessage> takeTurn();
  session::TurnMessage messageOf(const Turn& turn);
  // What goes beside a checkpoint.
  bool hasBeside() const { return declaration_.has_state || buffers_->any(); }
  StatusOr<std::function<Status()>> copyBeside(std::int64_t version);
  bool isKept(std::int64_t step) const;
  Status restore(const Turn& turn);
  Status keepIfDue(std::int64_t version);
  Status keepLast(const Turn& turn);
  Status keepEach(const std::vector<std::int64_t>& steps);
  Status keep(std::int64_t step);
  StatusOr<DeclaredModel> agreeOnModel() const;
  Status checkSame(const DeclaredModel& model) const;
  Gradient gradientOf(std::uint32_t variable) const;
  Status checkPass(const session::Finish& finish) const;
  StatusOr<session::Outcome> outcomeOf(const StatusOr<StepOutcome>& made);
  void awaitFailure();
  Status over(const Status& end);

  const Options options_;
  ProgramJob& job_;
  TrainObserver& observer_;
  const Clock& clock_;
  const std::string model_path_;
  session::Declaration declaration_;
  std::optional<session::SessionMemory> memory_;
  std::vector<int> trained_;  // by variable: its number among those that are trained, or -1
  Synchronizer* synchronizer_ = nullptr;
  std::shared_ptr<std::pmr::memory_resource> gradient_memory_;
  ProgramRows rows_;
  SessionState state_;
  std::optional<DeclaredBuffers> buffers_;  // since next() was asked for
  bool begun_ = false;                      // the program has had a turn of the job's
  std::int64_t made_ = -1;                  // the version that its last step has made
  std::int64_t kept_beside_ = -1;           // step of that kept last, with parameter servers
  bool trained_since_kept_ = false;
  Turn turn_;
  bool in_turn_ = false;
  Status pushed_;  // of the turn; the first failure
  std::optional<Status> end_;
  mutable std::mutex mutex_;  // of session_'s being there
  std::unique_ptr<TrainingSession> session_;
};

}  // namespace trainyard::runtime
