// A job's objects in a cluster, as the apiserver is given them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "base/security/job_keys.h"
#include "nlohmann/json.hpp"
#include "operator/cluster/cluster.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control {

// Who else may reach the tasks of a job than one another: lists of NetworkPolicyPeers.
struct PolicyOptions {
  nlohmann::ordered_json agent_from;    // their agents: the operator
  nlohmann::ordered_json metrics_from;  // their metrics; empty: nobody
};
// INVALID_ARGUMENT unless the text is a JSON object with these two lists, "agentFrom" and
// "metricsFrom".
StatusOr<PolicyOptions> parsePolicyOptions(const std::string& text);

// Who places the pods of a job together or not at all: a scheduler with the plugin coscheduling of
// sigs.k8s.io/scheduler-plugins, or Volcano. Each reads a PodGroup of its own kind.
enum class GangScheduler { kCoscheduling, kVolcano };
struct GangOptions {
  GangScheduler kind = GangScheduler::kCoscheduling;
  std::string scheduler_name;  // of pods whose template names none
};

struct RenderOptions {
  // For jobs whose status pins no images yet.
  std::string agent_image;
  std::string runtime_image;
  std::string runtime_torch_image = {};  // of tasks that need LibTorch; "": they are refused
  // Secrets of each job's namespace with which its images are pulled, beside those of its template.
  std::vector<std::string> image_pull_secrets = {};
  // Extra flags of the agents.
  std::string log_format = "json";
  // Each job gets a NetworkPolicy.
  std::optional<PolicyOptions> policy = std::nullopt;
  // For jobs with runPolicy.schedulingPolicy; without it they are refused.
  std::optional<GangOptions> gang = std::nullopt;
};

// The pod of one task: the role's template with what is missing filled in.
//
// The task's container is the one named "task", else the first, else a new one. Its command becomes
// the agent, which starts the runtime or, without `training`, the template's command. Where the
// template says nothing: image, ports, readiness, security context (that of the restricted
// profile), group of the volumes. Always ours: name, restartPolicy, hostname, our labels,
// finalizer, owner. Everything else stays as written. An image that is not the runtime's own gets
// the agent from an init container.
//
// INVALID_ARGUMENT naming the field: the template has another shape than Kubernetes gives it, sets
// a variable that Trainyard sets itself, names no command without `training`, or one with it.
StatusOr<nlohmann::ordered_json> renderPod(const v1::TrainingJob& job, const TaskKey& task,
                                           std::uint32_t created, const RenderOptions& options);

// The PersistentVolumeClaims that a task has by the templates of its role. Labels say whose they
// are; the job owns those that are to go with it.
std::vector<nlohmann::ordered_json> renderClaims(const v1::TrainingJob& job, const TaskKey& task);

// The first problem that renderPod would have with the templates of the job, for any of its tasks.
Status checkTemplates(const v1::TrainingJob& job);

// INVALID_ARGUMENT: a task of the job needs the runtime with LibTorch and names no image of its
// own, and there is none for it.
Status checkImages(const v1::TrainingJob& job, const RenderOptions& options);

// What each pod has for itself in place of a job directory, as reason and message, when the job
// trains; nothing where `spec.storage.volume` names a volume that outlives pods.
std::optional<TaskWait> passingStorage(const v1::TrainingJob& job);

// Headless: one name for each pod, also before it is ready. Without a selector: its endpoints are
// those below.
nlohmann::ordered_json renderService(const v1::TrainingJob& job);
// The addresses of the members under the names of their pods (podHost()), in as many EndpointSlices
// as that takes. A member without an address, or with one that reaches nobody else, has no name.
std::vector<nlohmann::ordered_json> renderEndpointSlices(const v1::TrainingJob& job,
                                                         const v1::Membership& membership);
// The ports of both.
nlohmann::ordered_json servicePorts(const v1::TrainingJob& job);

// Ingress of the job's tasks: from one another at any port, and as `options` says. Leaves alone
// what they reach themselves.
nlohmann::ordered_json renderNetworkPolicy(const v1::TrainingJob& job,
                                           const PolicyOptions& options);

// How many tasks of a job with runPolicy.schedulingPolicy are placed together: minAvailable, else
// all without which it does not train; never more than it has now.
int gangMembers(const v1::TrainingJob& job);
// What the scheduler reads of such a job.
nlohmann::ordered_json renderPodGroup(const v1::TrainingJob& job, GangScheduler kind);

// What every task of the job reads: the job, and who belongs to it once that is known.
// `root_id` says which root secret the job's keys come from.
nlohmann::ordered_json renderMembership(const v1::TrainingJob& job,
                                        const std::optional<v1::Membership>& membership,
                                        const std::string& root_id);
// The job as the tasks read it, a member of the object above: without status, and without what
// changes while it runs without concerning them.
std::string jobText(const v1::TrainingJob& job);
std::string membershipText(const v1::Membership& membership);
// INVALID_ARGUMENT when `text` is no membership; unknown fields are skipped.
StatusOr<v1::Membership> parseMembershipText(const std::string& text);

// What tasks prove themselves by: the token and the task's certificate, never more.
nlohmann::ordered_json renderSecret(const v1::TrainingJob& job, const JobKeys& keys);

// An object of the job without content: API version v1, labels, owner.
nlohmann::ordered_json renderObject(const char* kind, const v1::TrainingJob& job,
                                    const std::string& name);
// Reference to the job as the owner of its objects.
nlohmann::ordered_json ownerReference(const v1::TrainingJob& job);

}  // namespace trainyard::control
