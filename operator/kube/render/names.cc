#include "operator/kube/render/names.h"

#include "fmt/format.h"

namespace trainyard::control {

std::string_view roleName(v1::Role role) {
  return role == v1::ROLE_PS ? "ps" : "worker";
}

std::string podName(const v1::TrainingJob& job, const TaskKey& key) {
  return fmt::format("{}-{}", job.metadata().name(), toString(key));
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

std::string policyName(const v1::TrainingJob& job) {
  return job.metadata().name();
}

std::string secretName(const v1::TrainingJob& job) {
  return fmt::format("{}-{}-tls", job.metadata().name(), job.metadata().uid().substr(0, 8));
}

}  // namespace trainyard::control
