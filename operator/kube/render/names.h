// What the objects of a job in a cluster are called, and what the images hold.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "operator/cluster/cluster.h"

namespace trainyard::control {

// Labels of everything that belongs to a job, and of its pods.
inline constexpr std::string_view kJobNameLabel = "trainyard.dev/job-name";
inline constexpr std::string_view kRoleLabel = "trainyard.dev/role";
inline constexpr std::string_view kIndexLabel = "trainyard.dev/index";
inline constexpr std::string_view kCreatedLabel = "trainyard.dev/created";
// Annotations of a pod: which container is the task's; the newest revision of the membership.
inline constexpr std::string_view kTaskContainerAnnotation = "trainyard.dev/task-container";
inline constexpr std::string_view kRevisionAnnotation = "trainyard.dev/revision";
// Kubernetes' own: which pods of a set leave first.
inline constexpr std::string_view kDeletionCostAnnotation =
    "controller.kubernetes.io/pod-deletion-cost";
// Annotation of a job's ConfigMap: which of the operator's root secrets its keys come from.
inline constexpr std::string_view kRootAnnotation = "trainyard.dev/root";
// Which PodGroup a pod belongs to: coscheduling reads a label, Volcano an annotation.
inline constexpr std::string_view kPodGroupLabel = "scheduling.x-k8s.io/pod-group";
inline constexpr std::string_view kPodGroupAnnotation = "scheduling.k8s.io/group-name";
// Holds a pod that ended until its end is recorded in the job's status.
inline constexpr std::string_view kResultFinalizer = "trainyard.dev/result";

inline constexpr std::string_view kTaskContainer = "task";  // where the template names none

// --- Images. Runtime images: agent and runtime are in PATH's /usr/bin, in the one with LibTorch
// trainyard-runtime-torch beside them; the entry point is not used, and the user is numeric and not
// 0. Agent image: the folder kAgentBundle holds agent and runtime (for programs that bring the
// model) with their own loader and libraries; kBundledAgent and kBundledRuntime in it start
// wherever the folder's content is mounted at kAgentBundle, whatever else the image around them
// holds. `kBundledAgent install FROM TO` copies a folder.
inline constexpr std::string_view kImageAgent = "/usr/bin/trainyard-agent";
inline constexpr std::string_view kImageRuntime = "/usr/bin/trainyard-runtime";
inline constexpr std::string_view kAgentBundle = "/opt/trainyard/agent";
inline constexpr std::string_view kBundledAgent = "/opt/trainyard/agent/trainyard-agent";
inline constexpr std::string_view kBundledRuntime = "/opt/trainyard/agent/trainyard-runtime";
inline constexpr std::string_view kInstallFolder = "/opt/trainyard/install";
// The group that owns the volumes of tasks whose template names none; also that of our images.
inline constexpr int kImageGroup = 65532;

// --- Where a task finds what the operator tells it.
inline constexpr std::string_view kJobFolder = "/run/trainyard/job";        // ConfigMap
inline constexpr std::string_view kSecretFolder = "/run/trainyard/secret";  // Secret
inline constexpr std::string_view kTaskFolder = "/run/trainyard/task";      // emptyDir
inline constexpr std::string_view kJobFile = "job.json";
inline constexpr std::string_view kMembershipFile = "membership.json";
inline constexpr std::string_view kTokenFile = "token";

std::string podName(const v1::TrainingJob& job, const TaskKey& key);  // "<job>-worker-3"
// By which the pod's peers find it: "<pod>.<job>.<namespace>.svc".
std::string podHost(const v1::TrainingJob& job, const TaskKey& key);
// Of the PersistentVolumeClaim that a task has by a template of that name.
std::string claimName(const std::string& name, const v1::TrainingJob& job, const TaskKey& key);
std::string serviceName(const v1::TrainingJob& job);     // "<job>"
std::string membershipName(const v1::TrainingJob& job);  // "<job>-membership"
std::string membershipName(const std::string& job);
std::string podGroupName(const v1::TrainingJob& job);  // "<job>"
std::string policyName(const v1::TrainingJob& job);    // "<job>", of the NetworkPolicy
std::string secretName(const v1::TrainingJob& job);    // "<job>-<first 8 of its uid>-tls"
// The ports that a task listens at, and what its pod and the job's Service call them.
std::array<std::pair<std::string_view, int>, 3> portsOf(const v1::Network& network);

}  // namespace trainyard::control
