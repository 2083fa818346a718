// A worker whose model is a program of the user's own: starts the program, and carries out what it
// asks for in its session as a member of the job. One incarnation: where one of the two ends before
// the job is over, the other does.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/program/program_host.h"
#include "runtime/program/program_process.h"
#include "runtime/task/agent_link.h"
#include "runtime/task/options.h"
#include "runtime/task/worker_member.h"

namespace trainyard::runtime {

class ProgramTask final : ProgramJob, TrainObserver {
 public:
  // Opens the socket and starts the program. Errors: bad input names its file; NOT_FOUND etc. where
  // the program cannot be started.
  static StatusOr<std::unique_ptr<ProgramTask>> start(const TaskOptions& options);
  ~ProgramTask() override;

  // Until the program has ended. OK: the job is over, or it has left it; FAILED_PRECONDITION: the
  // job failed; UNAVAILABLE: the program ended before that.
  Status run();
  // How the program has ended by then; nothing where it runs on.
  const std::optional<ExitState>& programEnd() const { return program_->exitState(); }

 private:
  explicit ProgramTask(const TaskOptions& options) : options_(options) {}
  Status serveProgram();
  Status settle(const Status& served);

  StatusOr<Member> make(const DeclaredModel& model, std::vector<std::span<float>> weights,
                        Hosted hosted) override;
  void join() override;
  std::vector<std::int64_t> keepDue(std::int64_t version, std::int64_t kept,
                                    const std::function<bool(std::int64_t)>& has) override;
  std::vector<std::int64_t> keepMissed(std::int64_t end, std::int64_t kept,
                                       const std::function<bool(std::int64_t)>& has) override;
  Status leave(const Status& end) override;
  Status onStep(const StepRecord& record) override { return member_->onStep(record); }
  void onSpan(std::string_view name, std::int64_t step, TimePoint start, TimePoint end) override {
    member_->onSpan(name, step, start, end);
  }

  const TaskOptions options_;
  std::unique_ptr<ProgramProcess> program_;
  std::unique_ptr<AgentLink> declaring_;  // until it has joined
  bool joined_ = false;
  std::unique_ptr<ProgramHost> host_;  // of the arrays that the member writes
  std::unique_ptr<WorkerMember> member_;
};

}  // namespace trainyard::runtime
