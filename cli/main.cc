// The command line: what the environment and the terminal say is read here and nowhere else.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/app.h"
#include "runtime/storage/storage.h"

namespace {

int terminalColumns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string valueOf(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

bool isSet(const char* variable) {
  return !valueOf(variable).empty();
}

std::string withoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string programFolder() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

}  // namespace

int main(int argc, char** argv) {
  trainyard::cli::Console console{std::cout, std::cerr};
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  console.out_is_terminal = ::isatty(STDOUT_FILENO) == 1 && !dumb;
  console.colour = console.out_is_terminal && !isSet("NO_COLOR");
  console.columns = terminalColumns();
  console.program_dir = programFolder();
  if (isSet("TRAINYARD_RUNS")) console.runs_dir = withoutSlashes(valueOf("TRAINYARD_RUNS"));
  console.kube = {valueOf("KUBECONFIG"), valueOf("HOME"), valueOf("KUBERNETES_SERVICE_HOST"),
                  valueOf("KUBERNETES_SERVICE_PORT")};
  if (const char* gpus = std::getenv("CUDA_VISIBLE_DEVICES")) console.visible_gpus = gpus;
  if (::isatty(STDIN_FILENO) == 1) console.in = &std::cin;
  trainyard::runtime::useObjectStores(valueOf);
  return trainyard::cli::runApp(std::vector<std::string>(argv + 1, argv + argc), console);
}
