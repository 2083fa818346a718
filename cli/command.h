// How a verb of `trainyard` joins the program: it adds its CLI11 subcommand and sets `chosen` when
// the user picked it; main runs it and exits with what it returns (base/core/exit_code.h).
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "base/core/clock.h"

namespace CLI {
class App;
}

namespace trainyard::cli {

// Where a cluster may be found, as kubectl looks for it; "": nothing is said.
struct KubeEnvironment {
  std::string kubeconfig;    // $KUBECONFIG: a list of files
  std::string home;          // $HOME: .kube/config below it
  std::string service_host;  // of the apiserver, where this runs in a pod
  std::string service_port;
};

// What main reads from the environment and the terminal, handed to the verbs.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool colour = false;  // a terminal, and NO_COLOR is not set
  int columns = 80;
  std::string program_dir{};  // folder of this executable: the other programs are beside it
  // Folder of the runs: that of TRAINYARD_RUNS where it is set.
  std::string runs_dir = "runs";
  std::istream* in = nullptr;  // a terminal that may be asked; null where there is none
  KubeEnvironment kube{};
  std::optional<std::string> visible_gpus{};  // CUDA_VISIBLE_DEVICES, where it is set
  const Clock* clock = &systemClock();
};

using ChosenCommand = std::function<int(const Console&)>;

void registerRun(CLI::App& app, ChosenCommand& chosen);      // run, and the hidden launch
void registerGet(CLI::App& app, ChosenCommand& chosen);      // get, describe
void registerLogs(CLI::App& app, ChosenCommand& chosen);     // logs
void registerControl(CLI::App& app, ChosenCommand& chosen);  // scale, suspend, resume, delete
void registerSubmit(CLI::App& app, ChosenCommand& chosen);
void registerPlan(CLI::App& app, ChosenCommand& chosen);
void registerReport(CLI::App& app, ChosenCommand& chosen);
void registerValidate(CLI::App& app, ChosenCommand& chosen);
void registerCheckpoint(CLI::App& app, ChosenCommand& chosen);
void registerTop(CLI::App& app, ChosenCommand& chosen);
void registerCompletion(CLI::App& app, ChosenCommand& chosen);
void registerDoctor(CLI::App& app, ChosenCommand& chosen);
void registerVersion(CLI::App& app, ChosenCommand& chosen);

}  // namespace trainyard::cli
