#include <algorithm>
#include <array>
#include <string_view>

#include "base/core/exit_code.h"
#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "base/json/members.h"
#include "base/process/child_process.h"
#include "fmt/format.h"
#include "google/protobuf/util/json_util.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"
#include "operator/record/last_words.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

// Why a kubelet ends a pod or does not take it, none of which is the program's fault.
constexpr std::array<std::string_view, 11> kFromOutside = {"Evicted",
                                                           "NodeLost",
                                                           "NodeShutdown",
                                                           "Shutdown",
                                                           "Terminated",
                                                           "Preempting",
                                                           "Preempted",
                                                           "NodeAffinity",
                                                           "UnexpectedAdmissionError",
                                                           "NodeUnreachable",
                                                           "TopologyAffinityError"};
// A container whose end nobody saw.
constexpr std::string_view kEndUnknown = "ContainerStatusUnknown";

const Json& named(const Json& list, std::string_view key, std::string_view value) {
  static const Json none;
  if (!list.is_array()) return none;
  for (const Json& item : list) {
    if (textAt(item, key) == value) return item;
  }
  return none;
}

const Json& taskStatus(const Json& pod) {
  const Json& statuses = member(member(pod, "status"), "containerStatuses");
  const std::string name =
      textAt(member(member(pod, "metadata"), "annotations"), kTaskContainerAnnotation);
  if (!name.empty() || !statuses.is_array() || statuses.empty()) {
    return named(statuses, "name", name);
  }
  return statuses.front();
}

// A container other than the task's runs. Those that are to end with the pod's other containers
// (init containers with restartPolicy Always) are ended by the kubelet.
bool othersRun(const Json& pod) {
  const Json& statuses = member(member(pod, "status"), "containerStatuses");
  const Json& task = taskStatus(pod);
  return statuses.is_array() && std::any_of(statuses.begin(), statuses.end(), [&](const Json& one) {
           return &one != &task && member(member(one, "state"), "running").is_object();
         });
}

bool isFromOutside(const Json& status, const Json& terminated) {
  const std::string reason = textAt(status, "reason");
  const bool node =
      std::find(kFromOutside.begin(), kFromOutside.end(), reason) != kFromOutside.end() ||
      reason.starts_with("OutOf");
  const Json& target = named(member(status, "conditions"), "type", "DisruptionTarget");
  return node || textAt(target, "status") == "True" || textAt(terminated, "reason") == kEndUnknown;
}

// See agent/supervisor/agent_file.h.
std::optional<v1::JobProgress> lastWord(const Json& terminated) {
  const std::string text = textAt(terminated, "message");
  if (!text.starts_with("{\"jobProgress\":")) return std::nullopt;
  const Json words = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!words.is_object()) return std::nullopt;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::JobProgress progress;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      member(words, "jobProgress").dump(), &progress, options);
  if (!parsed.ok()) return std::nullopt;
  return progress;
}

// "killed by signal 9 (Killed): OOMKilled: what it said last".
TaskExit exitOf(const Json& terminated) {
  TaskExit exit;
  exit.code = numberAt(terminated, "exitCode");
  exit.at = parseRfc3339(textAt(terminated, "finishedAt"));
  if (exit.code > 128 && exit.code <= 128 + 64) {
    exit.signal = exit.code - 128;
    exit.code = 0;
  }
  if (exit.code == 0 && exit.signal == 0) return exit;
  exit.cause = toString(ExitState{exit.code, exit.signal});
  const std::string reason = textAt(terminated, "reason");
  if (!reason.empty() && reason != "Error") exit.cause += ": " + reason;
  const std::string message = textAt(terminated, "message");
  const auto word = lastWord(terminated);
  std::string words = word ? word->failure() : lastErrorIn(message);
  if (words.empty() && !word) words = lastOutputIn(message);
  if (!words.empty()) exit.cause += ": " + words;
  return exit;
}

// The pod has failed without a word from the task's container: whatever it was, not its program.
TaskExit exitWithout(const Json& status) {
  TaskExit exit;
  exit.code = kExitAgentFailure;
  const Json& inits = member(status, "initContainerStatuses");
  for (std::size_t i = 0; inits.is_array() && i < inits.size(); ++i) {
    const Json& terminated = member(member(inits[i], "state"), "terminated");
    if (!terminated.is_object() || numberAt(terminated, "exitCode") == 0) continue;
    exit.cause =
        fmt::format("init container {}: {}", textAt(inits[i], "name"), exitOf(terminated).cause);
    return exit;
  }
  const std::string reason = textAt(status, "reason");
  const std::string message = textAt(status, "message");
  exit.cause = reason.empty() ? "the pod failed" : reason;
  if (!message.empty()) exit.cause += ": " + message;
  return exit;
}

std::vector<PodCondition> conditionsOf(const Json& status) {
  std::vector<PodCondition> conditions;
  const Json& all = member(status, "conditions");
  for (std::size_t i = 0; all.is_array() && i < all.size(); ++i) {
    conditions.push_back({textAt(all[i], "type"), textAt(all[i], "status")});
  }
  return conditions;
}

std::optional<TaskWait> waitIn(const Json& statuses) {
  if (!statuses.is_array()) return std::nullopt;
  for (const Json& container : statuses) {
    const Json& waiting = member(member(container, "state"), "waiting");
    const std::string reason = textAt(waiting, "reason");
    if (reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing") continue;
    // Two words for one trouble, which take turns, with a message each.
    if (reason == "ErrImagePull" || reason == "ImagePullBackOff") {
      return TaskWait{"ImagePullBackOff",
                      fmt::format("cannot pull image {}", textAt(container, "image"))};
    }
    return TaskWait{reason, textAt(waiting, "message")};
  }
  return std::nullopt;
}

std::optional<TaskWait> waitOf(const Json& status) {
  const Json& scheduled = named(member(status, "conditions"), "type", "PodScheduled");
  if (textAt(scheduled, "status") == "False") {
    return TaskWait{textAt(scheduled, "reason"), textAt(scheduled, "message")};
  }
  if (auto wait = waitIn(member(status, "initContainerStatuses"))) return wait;
  return waitIn(member(status, "containerStatuses"));
}

std::optional<TaskObservation> identify(const Json& pod) {
  const Json& labels = member(member(pod, "metadata"), "labels");
  const auto key = parseTaskKey(textAt(labels, kRoleLabel) + "-" + textAt(labels, kIndexLabel));
  const auto created = parseNumber<std::uint32_t>(textAt(labels, kCreatedLabel));
  if (!key || !created) return std::nullopt;
  TaskObservation seen;
  seen.key = *key;
  seen.created = *created;
  return seen;
}

}  // namespace

std::string controllerUid(const Json& object) {
  const Json& owners = member(member(object, "metadata"), "ownerReferences");
  if (!owners.is_array()) return "";
  for (const Json& owner : owners) {
    if (member(owner, "controller") == Json(true)) return textAt(owner, "uid");
  }
  return "";
}

std::string labelOf(const Json& object, std::string_view label) {
  return textAt(member(member(object, "metadata"), "labels"), label);
}

std::string annotationOf(const Json& object, std::string_view annotation) {
  return textAt(member(member(object, "metadata"), "annotations"), annotation);
}

bool isTerminating(const Json& object) {
  return !textAt(member(object, "metadata"), "deletionTimestamp").empty();
}

bool hasFinalizer(const Json& object, std::string_view finalizer) {
  const Json& all = member(member(object, "metadata"), "finalizers");
  return all.is_array() && std::find(all.begin(), all.end(), Json(finalizer)) != all.end();
}

std::optional<TaskObservation> observePod(const Json& pod) {
  auto seen = identify(pod);
  if (!seen) return std::nullopt;
  const Json& status = member(pod, "status");
  const Json& state = member(taskStatus(pod), "state");
  const Json& terminated = member(state, "terminated");
  const std::string phase = textAt(status, "phase");
  seen->terminating = isTerminating(pod);
  // Kubernetes sets it to when the pod's grace period is over.
  seen->end_due = parseRfc3339(textAt(member(pod, "metadata"), "deletionTimestamp"));
  seen->held = hasFinalizer(pod, kResultFinalizer);
  seen->ip = textAt(status, "podIP");
  if (terminated.is_object()) {
    seen->exit = exitOf(terminated);
    seen->last_word = lastWord(terminated);
    seen->lingers = othersRun(pod);
    const bool well = seen->exit->code == 0 && seen->exit->signal == 0;
    seen->phase = well ? TaskPhase::kSucceeded : TaskPhase::kFailed;
  } else if (phase == "Failed") {
    seen->phase = TaskPhase::kFailed;
    seen->exit = exitWithout(status);
  } else if (phase == "Succeeded") {
    seen->phase = TaskPhase::kSucceeded;
    seen->exit = TaskExit{};
  } else if (member(state, "running").is_object()) {
    seen->phase = TaskPhase::kRunning;
  } else {
    seen->waiting = waitOf(status);
  }
  if (seen->terminating) {
    // Its index is free when it is gone. One on a node that nobody hears of stays, and may still
    // run: only somebody who knows that node can say that it does not.
    const std::string node = textAt(member(pod, "spec"), "nodeName");
    seen->waiting = TaskWait{"Terminating", node.empty() ? "" : "on node " + node};
  }
  seen->ready = seen->phase == TaskPhase::kRunning && !seen->terminating &&
                member(taskStatus(pod), "ready") == Json(true);
  seen->disrupted = seen->phase == TaskPhase::kFailed && isFromOutside(status, terminated);
  if (seen->phase == TaskPhase::kFailed || seen->terminating)
    seen->conditions = conditionsOf(status);
  // What is no number counts as none, as for Kubernetes' own controllers.
  seen->deletion_cost =
      parseNumber<std::int32_t>(annotationOf(pod, kDeletionCostAnnotation)).value_or(0);
  return seen;
}

}  // namespace trainyard::control
