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
#include "runtime/program/declared_model.h"
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
  virtual StatusOr<Synchronizer*> make(const DeclaredModel& model,
                                       std::vector<std::span<float>> weights) = 0;
  // From here on the others see it.
  virtual void join() = 0;
  // How this worker's part ended, when there is nothing more to do; returns the job's end.
  virtual Status leave(const Status& end) = 0;
};

// Its calls come from the session's thread, but for totals().
class ProgramHost final : public session::SessionHost {
 public:
  struct Options {
    bool chief = false;      // worker-0: its program's model is the job's
    std::string model_path;  // declaredModelPath()
    std::uint64_t seed = 0;  // of the order of samples
    session::Cancelled cancelled = {};
  };
  // All must outlive it; `observer` hears of steps.
  ProgramHost(Options options, ProgramJob& job, TrainObserver& observer, const Clock& clock);

  StatusOr<session::MemoryPlace> declare(const session::Declaration& declaration) override;
  StatusOr<session::TurnMessage> next() override;
  void push(std::uint32_t variable) override;
  StatusOr<session::Outcome> finish(const session::Finish& finish) override;
  void evaluated(const session::Score& score) override;
  void abort(std::string_view why) override;

  // To be called now and then while the program computes: tells it where the turn under way is
  // void.
  void tellInterrupted();
  // How the job ended for this worker; nothing before that.
  const std::optional<Status>& end() const { return end_; }
  // Any thread.
  TrainTotals totals() const;

 private:
  Status begin();
  StatusOr<DeclaredModel> agreeOnModel() const;
  Status checkSame(const DeclaredModel& model) const;
  void awaitFailure();
  Status over(const Status& end);

  const Options options_;
  ProgramJob& job_;
  TrainObserver& observer_;
  const Clock& clock_;
  session::Declaration declaration_;
  std::optional<session::SessionMemory> memory_;
  std::vector<int> trained_;  // by variable: its number among those that are trained, or -1
  Synchronizer* synchronizer_ = nullptr;
  std::shared_ptr<std::pmr::memory_resource> gradient_memory_;
  Turn turn_;
  Status pushed_;  // of the turn; the first failure
  std::optional<Status> end_;
  mutable std::mutex mutex_;  // of session_'s being there
  std::unique_ptr<TrainingSession> session_;
};

}  // namespace trainyard::runtime
