#include "runtime/task/program_task.h"

#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/checkpoint/step_files.h"
#include "runtime/program/program_command.h"
#include "runtime/session/serve.h"
#include "runtime/task/declaring.h"
#include "runtime/task/memory_check.h"

namespace trainyard::runtime {
namespace {

// Between two looks whether the program has ended.
constexpr Duration kLook = std::chrono::seconds(1);

}  // namespace

StatusOr<std::unique_ptr<ProgramTask>> ProgramTask::start(const TaskOptions& options) {
  std::unique_ptr<ProgramTask> task(new ProgramTask(options));
  TY_RETURN_IF_ERROR(makeStoredFolder(options.checkpointDir()));
  ProgramJob& job = *task;
  TrainObserver& observer = *task;
  task->host_ = std::make_unique<ProgramHost>(
      ProgramHost::Options{.chief = options.id.index() == 0,
                           .workers_update = isRing(options.job),
                           .checkpoint_dir = options.checkpointDir(),
                           .kept = keptFiles(options.job.spec().training().checkpoint().keep()),
                           .seed = static_cast<std::uint64_t>(options.job.spec().training().seed()),
                           .init_from = options.job.spec().training().init_from(),
                           .tables = sessionTables(options.job.spec().training()),
                           .cancelled = [task = task.get()] { return task->program_->ended(); }},
      job, observer, *options.clock);
  TY_ASSIGN_OR_RETURN(ProgramCommand command, readProgramCommand(options.program));
  TY_ASSIGN_OR_RETURN(task->program_, ProgramProcess::start(std::move(command), options.task_dir));
  return task;
}

ProgramTask::~ProgramTask() {
  if (program_ != nullptr) program_->stop();
  member_.reset();
}

Status ProgramTask::serveProgram() {
  TY_ASSIGN_OR_RETURN(session::Channel channel, program_->accept());
  const session::Welcome welcome = welcomeOf(options_.job, options_.id.index());
  const Status served = session::serve(channel, welcome, *host_, [this] {
    host_->tellInterrupted();
    return false;  // a program that is gone has hung up
  });
  if (!absl::IsUnavailable(served) || host_->end()) return served;
  // It has hung up; how it ends is known in a moment.
  program_->awaitEnd(kLook);
  return absl::UnavailableError(fmt::format(
      "the program ended its session before the job was over: {}", program_->howItEnded()));
}

// The program goes on for as long as it likes once it knows that the job is over.
Status ProgramTask::settle(const Status& served) {
  if (!host_->end() && joined_) return leave(served);
  if (!host_->end()) return served;
  while (!program_->awaitEnd(kLook)) {
  }
  if (program_->exitState() && *program_->exitState() != ExitState{})
    TY_WARN("the program, behind the end of the job: {}", program_->howItEnded());
  return *host_->end();
}

Status ProgramTask::run() {
  declaring_ = reportDeclaring(options_);
  return settle(serveProgram());
}

StatusOr<ProgramJob::Member> ProgramTask::make(const DeclaredModel& model,
                                               std::vector<std::span<float>> weights,
                                               Hosted hosted) {
  TY_RETURN_IF_ERROR(checkDeclaredMemory(options_.job, options_.id.index(), model.layout.variables,
                                         model.declaration.own_update));
  WorkerModel parts;
  parts.layout = model.layout;
  parts.weights = std::move(weights);
  parts.own_update = model.declaration.own_update;
  parts.state = hosted.state;
  parts.beside = std::move(hosted.beside);
  for (const v1::TableSpec& table : options_.job.spec().training().tables())
    parts.tables.push_back({table.name(), static_cast<std::size_t>(table.dim())});
  parts.row_ids = std::move(hosted.row_ids);
  parts.samples = model.declaration.samples;
  parts.evaluation_samples = model.declaration.eval_samples;
  parts.data_sha256 = session::digestOf(model.declaration);
  TY_ASSIGN_OR_RETURN(member_, WorkerMember::make(options_, std::move(parts)));
  return Member{.synchronizer = &member_->synchronizer(), .commit = member_->commit()};
}

void ProgramTask::join() {
  declaring_.reset();
  joined_ = true;
  member_->join([this] { return host_->totals(); });
}

std::vector<std::int64_t> ProgramTask::keepDue(std::int64_t version, std::int64_t kept,
                                               const std::function<bool(std::int64_t)>& has) {
  return member_->keepDue(version, kept, has);
}

std::vector<std::int64_t> ProgramTask::keepMissed(std::int64_t end, std::int64_t kept,
                                                  const std::function<bool(std::int64_t)>& has) {
  return member_->keepMissed(end, kept, has);
}

Status ProgramTask::leave(const Status& end) {
  joined_ = false;
  return member_->leave(end);
}

}  // namespace trainyard::runtime
