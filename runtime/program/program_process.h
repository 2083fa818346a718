// A program of the user's own beside us, with the socket of its session.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/child_process.h"
#include "runtime/program/program_command.h"
#include "runtime/session/channel.h"

namespace trainyard::runtime {

// Of one thread, the one that has started it: the program ends with it.
class ProgramProcess {
 public:
  // `folder`: where the socket is to be; another one is made where its path is too long for that.
  // Errors: NOT_FOUND etc. where the program cannot be started, as of ChildProcess::spawn().
  static StatusOr<std::unique_ptr<ProgramProcess>> start(ProgramCommand command,
                                                         const std::string& folder);
  // Asks it to end, and kills it if it does not.
  ~ProgramProcess();
  ProgramProcess(const ProgramProcess&) = delete;
  ProgramProcess& operator=(const ProgramProcess&) = delete;

  // Waits until it opens its session. UNAVAILABLE: it ended before; CANCELLED: `given_up`, which is
  // asked now and then.
  StatusOr<session::Channel> accept(const std::function<bool()>& given_up = {});
  bool ended();
  // Waits `limit` at most. False: it runs on.
  bool awaitEnd(Duration limit);
  void stop();
  // Nothing while it runs, or where it cannot be known.
  const std::optional<ExitState>& exitState() const { return exit_; }
  // "exit code 3", or that it runs on.
  std::string howItEnded() const;

 private:
  ProgramProcess() = default;
  Status open(const std::string& folder);
  Status spawn(ProgramCommand command);

  std::string own_folder_;
  std::optional<session::ChannelListener> listener_;
  std::optional<ChildProcess> program_;
  std::optional<ExitState> exit_;
};

}  // namespace trainyard::runtime
