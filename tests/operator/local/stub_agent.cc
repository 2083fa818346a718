// Stands in for trainyard-agent: takes its flags, publishes agent.json, and then does what the file
// stub.command in its task folder says: "ready", "exit CODE", "deaf" (SIGTERM is ignored from then
// on). Ends by itself when the launcher's pipe closes.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace {

namespace fs = std::filesystem;

void publish(const std::map<std::string, std::string>& flags, bool ready) {
  const fs::path path = fs::path(flags.at("task-dir")) / "agent.json";
  const fs::path temporary = path.string() + ".tmp";
  const int base_port =
      20000 + 100 * static_cast<int>(flags.at("role") == "ps") + 10 * std::stoi(flags.at("index"));
  std::ofstream(temporary) << "{\"pid\": " << ::getpid() << ", \"agentPort\": " << base_port + 1
                           << ", \"metricsPort\": " << base_port + 2
                           << ", \"taskPort\": " << base_port + 3
                           << ", \"ip\": \"127.0.0.1\", \"created\": " << flags.at("created")
                           << ", \"start\": 1, \"childPid\": 0, \"child\": \""
                           << (ready ? "Running" : "Waiting")
                           << "\", \"lastExitCode\": 0, \"lastSignal\": 0}\n";
  fs::rename(temporary, path);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[std::string(argv[i]).substr(2)] = argv[i + 1];
  for (const char* required : {"role", "index", "created", "job-dir", "task-dir", "job",
                               "membership", "token", "runtime", "launcher-fd"}) {
    if (!flags.contains(required)) return 2;
  }
  const fs::path command_file = fs::path(flags["task-dir"]) / "stub.command";
  publish(flags, false);
  std::string done;
  for (;;) {
    pollfd launcher{std::stoi(flags["launcher-fd"]), POLLIN, 0};
    if (::poll(&launcher, 1, 10) > 0) return 1;
    std::string command;
    std::getline(std::ifstream(command_file), command);
    if (command.empty() || command == done) continue;
    if (command == "ready") publish(flags, true);
    if (command == "deaf") {
      std::signal(SIGTERM, SIG_IGN);
      publish(flags, true);
    }
    if (command.starts_with("exit ")) return std::stoi(command.substr(5));
    done = command;
  }
}
