#include "operator/kube/render/names.h"

#include "fmt/format.h"

namespace trainyard::control {

std::string podName(const v1::TrainingJob& job, const TaskKey& key) {
  return fmt::format("{}-{}", job.metadata().name(), toString(key));
}

std::string claimName(const std::string& name, const v1::TrainingJob& job, const TaskKey& key) {
  return fmt::format("{}-{}", name, podName(job, key));
}

std::string podHost(const v1::TrainingJob& job, const TaskKey& key) {
  return fmt::format("{}.{}.{}.svc", podName(job, key), serviceName(job),
                     job.metadata().namespace_());
}

std::string serviceName(const v1::TrainingJob& job) {
  return job.metadata().name();
}

std::string membershipName(const v1::TrainingJob& job) {
  return membershipName(job.metadata().name());
}

std::string membershipName(const std::string& job) {
  return job + "-membership";
}

std::string podGroupName(const v1::TrainingJob& job) {
  return job.metadata().name();
}

std::string policyName(const v1::TrainingJob& job) {
  return job.metadata().name();
}

std::string secretName(const v1::TrainingJob& job) {
  return fmt::format("{}-{}-tls", job.metadata().name(), job.metadata().uid().substr(0, 8));
}

std::array<std::pair<std::string_view, int>, 3> portsOf(const v1::Network& network) {
  return {{{"task", network.task_port()},
           {"agent", network.agent_port()},
           {"metrics", network.metrics_port()}}};
}

}  // namespace trainyard::control
