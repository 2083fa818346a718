// The fault-injecting proxy as a program: stands before the apiserver of a kubeconfig, writes a
// kubeconfig of its own, and takes one command a line, as JSON, from standard input; each is
// answered by one line.
//
//   fault_proxy KUBECONFIG OUT
//   {"do": "inject", "kind": "answer", "method": "POST", "target": "/pods", "times": 1, "status":
//   503,
//    "headers": "Retry-After: 1\r\n", "body": "{}", "afterMs": 100}
//   {"do": "heal"}   {"do": "release"}   {"do": "drop"}
//   {"do": "requests", "from": 0}     -> {"requests": [{"method", "target", "body"}...]}
//   {"do": "kill", "pid": 1, "after": 3}    SIGKILL after the third write from now, before its
//   answer
//   {"do": "killed"}                  -> {"killed": true or false}
#include "tests/operator/kube/fault_proxy.h"

#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <string>

#include "nlohmann/json.hpp"
#include "operator/kube/connection.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

const std::map<std::string, Fault::Kind> kKinds = {
    {"answer", Fault::Kind::kAnswer},       {"dropRequest", Fault::Kind::kDropRequest},
    {"loseReply", Fault::Kind::kLoseReply}, {"dropStream", Fault::Kind::kDropStream},
    {"silence", Fault::Kind::kSilence},     {"hold", Fault::Kind::kHold}};

// Ends a process at a chosen write.
class Killer {
 public:
  void arm(pid_t pid, int after) {
    const std::lock_guard lock(mutex_);
    pid_ = pid;
    left_ = after;
    killed_ = false;
  }
  void onWrite() {
    const std::lock_guard lock(mutex_);
    if (pid_ <= 0 || --left_ > 0) return;
    killed_ = ::kill(pid_, SIGKILL) == 0;
    pid_ = 0;
  }
  bool killed() {
    const std::lock_guard lock(mutex_);
    return killed_;
  }

 private:
  std::mutex mutex_;
  pid_t pid_ = 0;
  int left_ = 0;
  bool killed_ = false;
};

Fault faultOf(const Json& command) {
  Fault fault;
  fault.kind = kKinds.at(command.value("kind", "answer"));
  fault.method = command.value("method", fault.method);
  fault.target_part = command.value("target", fault.target_part);
  fault.times = command.value("times", fault.times);
  fault.status = command.value("status", fault.status);
  fault.headers = command.value("headers", fault.headers);
  fault.body = command.value("body", fault.body);
  fault.after = std::chrono::milliseconds(command.value("afterMs", 100));
  return fault;
}

Json requestsOf(const FaultProxy& proxy, std::size_t from) {
  Json all = Json::array();
  const std::vector<ProxiedRequest> seen = proxy.requests();
  for (std::size_t i = from; i < seen.size(); ++i) {
    all.push_back({{"method", seen[i].method}, {"target", seen[i].target}, {"body", seen[i].body}});
  }
  return all;
}

Json obey(FaultProxy& proxy, Killer& killer, const Json& command) {
  const std::string what = command.value("do", "");
  if (what == "inject" && !kKinds.contains(command.value("kind", "answer"))) {
    return {{"error", "no such kind of fault"}};
  }
  if (what == "inject") {
    proxy.inject(faultOf(command));
  } else if (what == "heal") {
    proxy.heal();
  } else if (what == "release") {
    proxy.release();
  } else if (what == "drop") {
    proxy.dropAll();
  } else if (what == "kill") {
    killer.arm(command.at("pid").get<pid_t>(), command.at("after").get<int>());
  } else if (what == "killed") {
    return {{"killed", killer.killed()}};
  } else if (what == "requests") {
    return {{"requests", requestsOf(proxy, command.value("from", std::size_t{0}))}};
  } else {
    return {{"error", "no such command: " + what}};
  }
  return Json::object();
}

Json kubeconfigOf(const KubeConfig& config, const std::string& ca) {
  return {{"apiVersion", "v1"},
          {"kind", "Config"},
          {"current-context", "test"},
          {"clusters",
           {{{"name", "test"},
             {"cluster", {{"server", config.server}, {"certificate-authority", ca}}}}}},
          {"users", {{{"name", "test"}, {"user", Json::object()}}}},
          {"contexts", {{{"name", "test"}, {"context", {{"cluster", "test"}, {"user", "test"}}}}}}};
}

int runProxy(const std::string& kubeconfig, const std::filesystem::path& out) {
  const StatusOr<KubeConfig> config = loadKubeconfig(kubeconfig, "");
  if (!config.ok()) {
    std::cerr << config.status().ToString() << "\n";
    return 1;
  }
  StatusOr<std::unique_ptr<HttpTransport>> upstream = connectTo(*config, systemClock());
  if (!upstream.ok()) {
    std::cerr << upstream.status().ToString() << "\n";
    return 1;
  }
  Killer killer;
  FaultProxy proxy(*std::move(upstream));
  proxy.onWrite([&](int, const ProxiedRequest&) { killer.onWrite(); });
  const KubeConfig own = proxy.config();
  const std::string ca = std::filesystem::absolute(out).string() + ".ca";
  std::ofstream(ca) << own.ca.value;
  std::ofstream(out) << kubeconfigOf(own, ca).dump(1) << "\n";
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const Json command = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!command.is_object()) return 1;
    std::cout << obey(proxy, killer, command).dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  }
  proxy.dropAll();
  return 0;
}

}  // namespace
}  // namespace trainyard::control

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: fault_proxy KUBECONFIG OUT\n";
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  return trainyard::control::runProxy(argv[1], argv[2]);
}
