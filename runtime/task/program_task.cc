#include "runtime/task/program_task.h"

#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "runtime/checkpoint/step_files.h"
#include "runtime/program/program_command.h"
#include "runtime/session/serve.h"

namespace trainyard::runtime {
namespace {

constexpr const char* kSocketName = "session.sock";
// Between two looks whether the program has ended.
constexpr Duration kLook = std::chrono::seconds(1);
// Between its request to end and SIGKILL.
constexpr Duration kGrace = std::chrono::seconds(5);

bool fits(const std::string& path) {
  return path.size() < sizeof(sockaddr_un::sun_path);
}

}  // namespace

StatusOr<std::unique_ptr<ProgramTask>> ProgramTask::start(const TaskOptions& options) {
  std::unique_ptr<ProgramTask> task(new ProgramTask(options));
  TY_RETURN_IF_ERROR(makeSharedDirectories(options.checkpointDir()));
  ProgramJob& job = *task;
  TrainObserver& observer = *task;
  task->host_ = std::make_unique<ProgramHost>(
      ProgramHost::Options{.chief = options.id.index() == 0,
                           .workers_update = isRing(options.job),
                           .checkpoint_dir = options.checkpointDir(),
                           .kept = keptFiles(options.job.spec().training().checkpoint().keep()),
                           .seed = static_cast<std::uint64_t>(options.job.spec().training().seed()),
                           .cancelled = [task = task.get()] { return task->programEnded(); }},
      job, observer, *options.clock);
  TY_RETURN_IF_ERROR(task->open());
  TY_RETURN_IF_ERROR(task->spawn());
  return task;
}

ProgramTask::~ProgramTask() {
  if (program_) (void)program_->stop(kGrace);
  member_.reset();
  listener_.reset();
  if (!own_folder_.empty()) ::rmdir(own_folder_.c_str());
}

Status ProgramTask::open() {
  std::string path = options_.task_dir + "/" + kSocketName;
  if (!fits(path)) {
    own_folder_ = "/tmp/trainyard-XXXXXX";
    if (::mkdtemp(own_folder_.data()) == nullptr) return errnoStatus(errno, own_folder_);
    path = own_folder_ + "/" + kSocketName;
  }
  TY_ASSIGN_OR_RETURN(session::ChannelListener listener, session::ChannelListener::open(path));
  listener_.emplace(std::move(listener));
  return absl::OkStatus();
}

Status ProgramTask::spawn() {
  TY_ASSIGN_OR_RETURN(ProgramCommand command, readProgramCommand(options_.program));
  command.env.push_back("TRAINYARD_SESSION=" + listener_->path());
  SpawnOptions spawn;
  spawn.argv = std::move(command.argv);
  spawn.env = std::move(command.env);
  spawn.cwd = command.working_dir;
  spawn.die_with_spawning_thread = true;
  TY_ASSIGN_OR_RETURN(ChildProcess program, ChildProcess::spawn(spawn));
  TY_INFO("the program is process {}", program.pid());
  program_.emplace(std::move(program));
  return absl::OkStatus();
}

bool ProgramTask::programEnded() {
  if (exit_) return true;
  const auto ended = program_->poll();
  if (ended.ok() && ended->has_value()) exit_ = **ended;
  return exit_.has_value();
}

std::string ProgramTask::howItEnded() const {
  return exit_ ? toString(*exit_) : "it runs on";
}

StatusOr<session::Channel> ProgramTask::awaitProgram() {
  StatusOr<session::Channel> channel = listener_->accept([this] { return programEnded(); });
  if (!absl::IsCancelled(channel.status())) return channel;
  return absl::UnavailableError(
      fmt::format("the program ended before it opened a session: {}", howItEnded()));
}

Status ProgramTask::serveProgram() {
  TY_ASSIGN_OR_RETURN(session::Channel channel, awaitProgram());
  const session::Welcome welcome{
      .job = options_.job.metadata().name(),
      .index = static_cast<std::int32_t>(options_.id.index()),
      .seed = static_cast<std::uint64_t>(options_.job.spec().training().seed())};
  const Status served = session::serve(channel, welcome, *host_, [this] {
    host_->tellInterrupted();
    return false;  // a program that is gone has hung up
  });
  if (!absl::IsUnavailable(served) || host_->end()) return served;
  // It has hung up; how it ends is known in a moment.
  if (const auto ended = program_->wait(systemClock().now() + kLook); ended.ok()) exit_ = *ended;
  return absl::UnavailableError(
      fmt::format("the program ended its session before the job was over: {}", howItEnded()));
}

// The program goes on for as long as it likes once it knows that the job is over.
Status ProgramTask::settle(const Status& served) {
  if (!host_->end() && joined_) return leave(served);
  if (!host_->end()) return served;
  while (!exit_) {
    const auto ended = program_->wait(systemClock().now() + kLook);
    if (ended.ok()) exit_ = *ended;
    if (!ended.ok() && !absl::IsDeadlineExceeded(ended.status())) break;
  }
  if (exit_ && *exit_ != ExitState{})
    TY_WARN("the program, behind the end of the job: {}", howItEnded());
  return *host_->end();
}

Status ProgramTask::run() {
  return settle(serveProgram());
}

StatusOr<ProgramJob::Member> ProgramTask::make(const DeclaredModel& model,
                                               std::vector<std::span<float>> weights,
                                               Hosted hosted) {
  WorkerModel parts;
  parts.layout = model.layout;
  parts.weights = std::move(weights);
  parts.own_update = model.declaration.own_update;
  parts.state = hosted.state;
  parts.beside = std::move(hosted.beside);
  parts.samples = model.declaration.samples;
  parts.evaluation_samples = model.declaration.eval_samples;
  parts.data_sha256 = session::digestOf(model.declaration);
  TY_ASSIGN_OR_RETURN(member_, WorkerMember::make(options_, std::move(parts)));
  return Member{.synchronizer = &member_->synchronizer(), .commit = member_->commit()};
}

void ProgramTask::join() {
  joined_ = true;
  member_->join([this] { return host_->totals(); });
}

std::optional<std::int64_t> ProgramTask::keepDue(std::int64_t version, std::int64_t kept,
                                                 const std::function<bool(std::int64_t)>& has) {
  return member_->keepDue(version, kept, has);
}

Status ProgramTask::leave(const Status& end) {
  joined_ = false;
  return member_->leave(end);
}

}  // namespace trainyard::runtime
