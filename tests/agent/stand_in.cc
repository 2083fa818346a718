// Stands in for trainyard-runtime in the test of the agent: reports like it, trains nothing.
//
// Writes child.json (its arguments and environment) into the task's folder, reports until it is
// told to stop, and ends as the file "ending" in that folder says: "exit N". It listens on its
// port, so that a test sees that the agent let go of it.
#include <unistd.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "base/core/strings.h"
#include "base/http/http_server.h"
#include "base/process/files.h"
#include "base/process/signals.h"
#include "base/rpc/channel.h"
#include "base/rpc/token.h"
#include "nlohmann/json.hpp"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;

std::map<std::string, std::string> readFlags(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  flags["role"] = argc > 1 ? argv[1] : "";
  for (int i = 2; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  return flags;
}

void writeChildFile(const std::map<std::string, std::string>& flags) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  const nlohmann::json file = {{"flags", flags}, {"environment", environment}, {"pid", ::getpid()}};
  (void)writeFileAtomically(flags.at("--task-dir") + "/child.json", file.dump());
}

v1::RuntimeReport makeReport(const std::map<std::string, std::string>& flags, int count) {
  const auto number = [&](const char* flag) { return std::stoul(flags.at(flag)); };
  const auto job = nlohmann::json::parse(readFile(flags.at("--job"), kMaxBytes).value());
  v1::RuntimeReport report;
  report.set_job_uid(job.at("metadata").at("uid").get<std::string>());
  report.mutable_id()->set_role(flags.at("role") == "ps" ? v1::ROLE_PS : v1::ROLE_WORKER);
  report.mutable_id()->set_index(static_cast<std::uint32_t>(number("--index")));
  report.mutable_incarnation()->set_created(static_cast<std::uint32_t>(number("--created")));
  report.mutable_incarnation()->set_start(static_cast<std::uint32_t>(number("--start")));
  report.set_ready(true);
  report.set_phase("Training");
  report.set_examples(100 + static_cast<std::uint64_t>(count));
  return report;
}

// "exit N" of the file, where there is one.
std::optional<int> readEnding(const std::string& task_dir) {
  const StatusOr<std::string> text = readFile(task_dir + "/ending", 100);
  if (!text.ok()) return std::nullopt;
  return parseNumber<int>(trim(splitFirst(trim(*text), ' ').second));
}

int run(int argc, char** argv) {
  StatusOr<SignalWaiter> signals = SignalWaiter::create({SIGTERM, SIGINT});
  const auto flags = readFlags(argc, argv);
  const auto port = HttpServer::start(flags.at("--bind"), std::stoi(flags.at("--port")), {});
  if (!signals.ok() || !port.ok()) return 1;
  writeChildFile(flags);
  const std::string token = readToken(flags.at("--token")).value();
  const auto stub = v1::TaskReport::NewStub(openChannel(unixTarget(flags.at("--agent-socket"))));
  for (int count = 0;; ++count) {
    grpc::ClientContext context;
    setDeadline(context, std::chrono::seconds(5));
    addToken(context, token);
    v1::RuntimeDirective directive;
    const grpc::Status sent = stub->Report(&context, makeReport(flags, count), &directive);
    if (sent.ok() && directive.stop_job()) return 0;
    if (const auto ending = readEnding(flags.at("--task-dir"))) return *ending;
    if (signals->wait(systemClock().now() + std::chrono::milliseconds(20))) return 0;
  }
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::run(argc, argv);
}
