#include "runtime/program/program_process.h"

#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/core/log.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

constexpr const char* kSocketName = "session.sock";
// Between its request to end and SIGKILL.
constexpr Duration kGrace = std::chrono::seconds(5);

bool fits(const std::string& path) {
  return path.size() < sizeof(sockaddr_un::sun_path);
}

}  // namespace

StatusOr<std::unique_ptr<ProgramProcess>> ProgramProcess::start(ProgramCommand command,
                                                                const std::string& folder) {
  std::unique_ptr<ProgramProcess> process(new ProgramProcess);
  TY_RETURN_IF_ERROR(process->open(folder));
  TY_RETURN_IF_ERROR(process->spawn(std::move(command)));
  return process;
}

ProgramProcess::~ProgramProcess() {
  stop();
  listener_.reset();
  if (!own_folder_.empty()) ::rmdir(own_folder_.c_str());
}

Status ProgramProcess::open(const std::string& folder) {
  std::string path = folder + "/" + kSocketName;
  if (!fits(path)) {
    own_folder_ = "/tmp/trainyard-XXXXXX";
    if (::mkdtemp(own_folder_.data()) == nullptr) return errnoStatus(errno, own_folder_);
    path = own_folder_ + "/" + kSocketName;
  }
  TY_ASSIGN_OR_RETURN(session::ChannelListener listener, session::ChannelListener::open(path));
  listener_.emplace(std::move(listener));
  return absl::OkStatus();
}

Status ProgramProcess::spawn(ProgramCommand command) {
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

StatusOr<session::Channel> ProgramProcess::accept(const std::function<bool()>& given_up) {
  StatusOr<session::Channel> channel =
      listener_->accept([&] { return ended() || (given_up && given_up()); });
  if (!absl::IsCancelled(channel.status()) || !ended()) return channel;
  return absl::UnavailableError(
      fmt::format("the program ended before it opened a session: {}", howItEnded()));
}

bool ProgramProcess::ended() {
  if (exit_) return true;
  const auto ended = program_->poll();
  if (ended.ok() && ended->has_value()) exit_ = **ended;
  return exit_.has_value();
}

bool ProgramProcess::awaitEnd(Duration limit) {
  if (exit_) return true;
  const auto ended = program_->wait(systemClock().now() + limit);
  if (ended.ok()) exit_ = *ended;
  return !absl::IsDeadlineExceeded(ended.status());
}

void ProgramProcess::stop() {
  if (!program_ || exit_) return;
  if (const auto ended = program_->stop(kGrace); ended.ok()) exit_ = *ended;
}

std::string ProgramProcess::howItEnded() const {
  return exit_ ? toString(*exit_) : "it runs on";
}

}  // namespace trainyard::runtime
