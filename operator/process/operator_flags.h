// What the operator is started with.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace trainyard::control {

struct OperatorFlags {
  std::string kubeconfig;
  std::string context;
  std::vector<std::string> namespaces;
  std::string agent_image;
  std::string runtime_image;
  std::string runtime_torch_image;
  std::vector<std::string> image_pull_secrets;
  std::string job_network_policy;
  std::string gang_scheduler;
  std::string gang_scheduler_name;
  bool kueue = false;
  std::string http_library = "beast";
  std::vector<std::string> root_secrets;
  std::string root_secret_name;
  bool leader_elect = false;
  std::string lease_namespace;
  std::string lease_name = "trainyard-operator";
  double lease_duration = 15;
  double renew_deadline = 10;
  double retry_period = 2;
  std::string identity;
  std::string metrics_address = "0.0.0.0";
  int metrics_port = 8080;
  double progress_interval = 1;
  double unreachable_after = 30;
  double shared_objects_interval = 600;
  int threads = 24;
  std::string log_format = "json";
  std::string log_level = "info";
};

// The flags of `app`, which fill `flags`: those that say which cluster, and all of them.
void addClusterFlags(CLI::App& app, OperatorFlags& flags);
void addFlags(CLI::App& app, OperatorFlags& flags);

}  // namespace trainyard::control
