#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/programs/runtime_program.h"
#include "fmt/format.h"
#include "operator/cluster/failure_policy.h"
#include "operator/cluster/task_keys.h"
#include "operator/job/template.h"
#include "operator/kube/render/internal/claims.h"
#include "operator/kube/render/internal/object_store.h"
#include "operator/kube/render/internal/overlay.h"
#include "operator/kube/render/internal/places.h"
#include "operator/kube/render/names.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using internal::addUnlessThere;
using internal::fill;
using internal::has;
using internal::itemWith;
using internal::Json;
using internal::kGraceField;
using internal::listIn;
using internal::objectIn;

// Volumes of ours. A user's volume keeps its own name.
constexpr const char* kJobVolume = "trainyard-membership";
constexpr const char* kSecretVolume = "trainyard-secret";
constexpr const char* kTaskVolume = "trainyard-task";
constexpr const char* kStorageVolume = "trainyard-storage";
constexpr const char* kAgentVolume = "trainyard-agent";
constexpr const char* kSharedMemoryVolume = "trainyard-shm";

constexpr const char* kSharedMemoryFolder = "/dev/shm";

constexpr const char* kPodIp = "TRAINYARD_POD_IP";

// Kubernetes' own, of pods that say nothing.
constexpr std::int64_t kPodGraceSeconds = 30;
// So much earlier than the kubelet the agent kills the program, to say how it ended.
constexpr std::int64_t kLastWordsSeconds = 2;
// Years, which the agent takes as a number of seconds; a pod may say more.
constexpr std::int64_t kMostGraceSeconds = 1'000'000'000;

// What one pod is made from.
struct Parts {
  const v1::TrainingJob& job;
  TaskKey task;
  std::uint32_t created;
  const RenderOptions& options;
  std::string agent_image;
  std::string runtime_image;
  std::string torch_image;      // the same with LibTorch; may be empty
  std::string last_words = {};  // the container's termination message
  double stop_grace = 0;        // seconds that the program has to end by itself
  bool injected = false;        // the image of the task's container need not hold the agent
};

std::string text(std::string_view value) {
  return std::string(value);
}

std::string inFolder(std::string_view folder, std::string_view file) {
  return fmt::format("{}/{}", folder, file);
}

// As the kubelet's expansion of $(NAME) leaves it alone.
std::string escaped(const std::string& word) {
  std::string result;
  for (const char c : word) result.append(c == '$' ? "$$" : std::string(1, c));
  return result;
}

// The kubelet makes $$(NAME) to $(NAME), which the agent would take for a name to be replaced. What
// stays as it is are names that only the agent knows.
std::string userWord(const std::string& word) {
  std::string result;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t end = word.find(')', at);
    const bool doubled = word.compare(at, 3, "$$(") == 0 && end != std::string::npos;
    if (doubled && isSetByUs(std::string_view(word).substr(at + 3, end - at - 3))) {
      result += "$$$$(";
      at += 3;
    } else {
      result += word[at++];
    }
  }
  return result;
}

const std::string& restartPolicy(const v1::TrainingJob& job, v1::Role role) {
  return role == v1::ROLE_PS ? job.spec().ps().restart_policy()
                             : job.spec().worker().restart_policy();
}

StatusOr<Json> readTemplate(const v1::TrainingJob& job, v1::Role role) {
  const std::string& given = templateText(job, role);
  if (given.empty()) return Json::object();
  Json pod = Json::parse(given, nullptr, /*allow_exceptions=*/false);
  TY_RETURN_IF_ERROR(internal::checkShape(pod, templatePath(role)));
  return pod;
}

Status checkVariables(const Json& container, const std::string& path) {
  if (!has(container, "env")) return absl::OkStatus();
  for (std::size_t i = 0; i < container["env"].size(); ++i) {
    const std::string name = container["env"][i]["name"].get<std::string>();
    if (!isSetByUs(name)) continue;
    return invalidInput(fmt::format("{}.env[{}].name", path, i),
                        fmt::format("{} is set by Trainyard", name));
  }
  return absl::OkStatus();
}

Status checkTemplate(const v1::TrainingJob& job, v1::Role role) {
  TY_ASSIGN_OR_RETURN(const Json pod, readTemplate(job, role));
  TY_RETURN_IF_ERROR(internal::checkClaims(job, role, pod));
  if (isForeign(job)) return taskCommand(job, role).status();
  if (namesProgram(job, role)) TY_RETURN_IF_ERROR(taskCommand(job, role).status());
  const auto task = taskContainer(pod);
  if (!task) return absl::OkStatus();
  const std::string path = fmt::format("{}.spec.containers[{}]", templatePath(role), *task);
  const Json& container = pod["spec"]["containers"][*task];
  for (const char* field : {"command", "args"}) {
    if (has(container, field) && !namesProgram(job, role)) {
      return invalidInput(path + "." + field, "only without spec.training, which runs ours");
    }
  }
  return checkVariables(container, path);
}

const std::string& torchImage(const v1::TrainingJob& job, const RenderOptions& options) {
  const v1::Images& pinned = job.status().images();
  return pinned.has_runtime_torch() ? pinned.runtime_torch() : options.runtime_torch_image;
}

Status checkImage(const v1::TrainingJob& job, v1::Role role, const RenderOptions& options) {
  if (isForeign(job) || !job.spec().image().empty() || !torchImage(job, options).empty() ||
      libTorchNeed(job.spec().training(), role) != LibTorchNeed::kAlways) {
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(const Json pod, readTemplate(job, role));
  const auto task = taskContainer(pod);
  if (task && has(pod["spec"]["containers"][*task], "image")) return absl::OkStatus();
  return libTorchMissing(job.spec().training(), "this operator has no image with it");
}

Json metadata(const Parts& parts, const Json& given, const std::string& container) {
  const v1::TrainingJob& job = parts.job;
  const std::string& name = job.metadata().name();
  Json meta = given;
  meta["name"] = podName(job, parts.task);
  meta["namespace"] = job.metadata().namespace_();
  meta.erase("generateName");
  Json& labels = objectIn(meta, "labels");
  fill(labels, "app.kubernetes.io/name", "trainyard-task");
  fill(labels, "app.kubernetes.io/instance", name);
  fill(labels, "app.kubernetes.io/part-of", "trainyard");
  fill(labels, "app.kubernetes.io/managed-by", "trainyard-operator");
  labels[text(kJobNameLabel)] = name;
  labels[text(kRoleLabel)] = roleName(parts.task.role);
  labels[text(kIndexLabel)] = std::to_string(parts.task.index);
  labels[text(kCreatedLabel)] = std::to_string(parts.created);
  objectIn(meta, "annotations")[text(kTaskContainerAnnotation)] = container;
  internal::joinGang(job, parts.options, meta);
  Json& finalizers = listIn(meta, "finalizers");
  finalizers.push_back(text(kResultFinalizer));
  meta["ownerReferences"] = Json::array({ownerReference(job)});
  return meta;
}

std::vector<std::string> agentWords(const Parts& parts) {
  const v1::JobSpec& spec = parts.job.spec();
  const v1::Network& network = spec.network();
  std::vector<std::string> words = {text(parts.injected ? kBundledAgent : kImageAgent),
                                    "--role=" + text(roleName(parts.task.role)),
                                    fmt::format("--index={}", parts.task.index),
                                    fmt::format("--created={}", parts.created),
                                    "--job-dir=" + escaped(spec.storage().mount_path()),
                                    "--task-dir=" + text(kTaskFolder),
                                    "--job=" + inFolder(kJobFolder, kJobFile),
                                    "--membership=" + inFolder(kJobFolder, kMembershipFile),
                                    "--token=" + inFolder(kSecretFolder, kTokenFile),
                                    "--tls=" + text(kSecretFolder),
                                    fmt::format("--bind=$({})", kPodIp),
                                    fmt::format("--task-port={}", network.task_port()),
                                    fmt::format("--agent-port={}", network.agent_port()),
                                    fmt::format("--metrics-port={}", network.metrics_port()),
                                    fmt::format("--stop-grace={}", parts.stop_grace),
                                    "--log-format=" + parts.options.log_format,
                                    "--last-words=" + escaped(parts.last_words)};
  if (restartPolicy(parts.job, parts.task.role) == "Never") words.push_back("--no-restart");
  if (const ExitCodeSet codes = codesOfTheJob(spec.run_policy()); !codes.empty())
    words.push_back("--final-exits=" + codes.toString());
  if (const std::string place = internal::checkpointPlace(parts.job); !place.empty())
    words.push_back("--checkpoints=" + escaped(place));
  if (parts.task.role == v1::ROLE_WORKER && spec.worker().processes_per_pod() > 1) {
    words.push_back(fmt::format("--processes={}", spec.worker().processes_per_pod()));
  }
  if (isForeign(parts.job)) {
    words.push_back("--on-membership-change=" + onMembershipChange(parts.job));
  } else {
    words.push_back("--runtime=" + text(parts.injected ? kBundledRuntime : kImageRuntime));
  }
  if (!namesProgram(parts.job, parts.task.role)) return words;
  for (const v1::Volume& volume : spec.volumes()) {
    words.push_back("--program-volume=" + volume.name() + "=" + escaped(volume.mount_path()));
  }
  words.push_back("--");
  return words;
}

// What the pod gives its processes between SIGTERM and SIGKILL, less what the agent needs; of very
// little half.
double stopGrace(const Json& spec) {
  const std::int64_t pod =
      has(spec, kGraceField) ? spec[kGraceField].get<std::int64_t>() : kPodGraceSeconds;
  const auto seconds = static_cast<double>(std::clamp<std::int64_t>(pod, 0, kMostGraceSeconds));
  return std::max(seconds - kLastWordsSeconds, seconds / 2);
}

void setCommand(const Parts& parts, Json& container) {
  Json program = Json::array();
  for (const char* field : {"command", "args"}) {
    if (!has(container, field)) continue;
    for (const Json& word : container[field]) program.push_back(userWord(word.get<std::string>()));
  }
  container["command"] = agentWords(parts);
  container.erase("args");
  if (!program.empty()) container["args"] = std::move(program);
}

// One of NVIDIA's, or a part of one (nvidia.com/mig-1g.5gb).
bool asksForGpu(const Json& container) {
  const Json::json_pointer limits("/resources/limits"), requests("/resources/requests");
  for (const Json::json_pointer& place : {limits, requests}) {
    if (!container.contains(place) || !container.at(place).is_object()) continue;
    for (const auto& [name, amount] : container.at(place).items()) {
      if (name.starts_with("nvidia.com/") && amount != "0" && amount != 0) return true;
    }
  }
  return false;
}

// The image of a container that names none. With device Auto a worker has LibTorch where its
// template asks for a GPU; whether it takes it its agent decides.
const std::string& defaultImage(const Parts& parts, const Json& container) {
  const v1::JobSpec& spec = parts.job.spec();
  if (!spec.image().empty()) return spec.image();
  const TorchPlace place{.has_program = !parts.torch_image.empty(),
                         .has_gpu = asksForGpu(container)};
  const bool torch =
      !isForeign(parts.job) && takesLibTorch(libTorchNeed(spec.training(), parts.task.role), place);
  return torch ? parts.torch_image : parts.runtime_image;
}

// Images of CUDA's ask for all GPUs of a node, which the container runtime then gives them.
void hideGpus(Json& env) {
  addUnlessThere(env, "name", {{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}});
  addUnlessThere(env, "name", {{"name", "CUDA_VISIBLE_DEVICES"}, {"value", ""}});
}

void setEnvironment(const Parts& parts, Json& container) {
  // Before the user's, which may refer to it.
  Json env = Json::array();
  env.push_back({{"name", kPodIp}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}});
  if (has(container, "env")) {
    for (const Json& entry : container["env"]) env.push_back(entry);
  }
  if (parts.task.role == v1::ROLE_PS && !asksForGpu(container)) hideGpus(env);
  container["env"] = std::move(env);
}

void setPorts(const v1::Network& network, Json& container) {
  Json& ports = listIn(container, "ports");
  for (const auto& [name, port] : portsOf(network)) {
    if (itemWith(ports, "containerPort", port) != nullptr) continue;
    Json entry = {{"containerPort", port}, {"protocol", "TCP"}};
    if (itemWith(ports, "name", name) == nullptr) entry["name"] = name;
    ports.push_back(std::move(entry));
  }
}

// A probe of the agent, which answers once the task is ready.
Json probe(const v1::Network& network, int period_seconds, int failures) {
  return {{"httpGet", {{"path", "/readyz?wait"}, {"port", network.metrics_port()}}},
          {"periodSeconds", period_seconds},
          {"timeoutSeconds", 10},
          {"failureThreshold", failures}};
}

// How long a task starts is not to be foreseen, so that the probe of its start never gives up and
// asks again at once. The other comes rarely: one after the task's end fails before the kubelet
// knows of that, and is told as Unhealthy. Who brings a probe for readiness waits for none of ours.
void setProbes(const v1::Network& network, Json& container) {
  if (!has(container, "readinessProbe")) {
    Json start = probe(network, 1, std::numeric_limits<std::int32_t>::max());
    start["initialDelaySeconds"] = 1;  // until the agent listens
    fill(container, "startupProbe", start);
  }
  fill(container, "readinessProbe", probe(network, 10, 1));
}

// The least that a program needs, where the template does not say.
void restrict(Json& container) {
  Json& security = objectIn(container, "securityContext");
  fill(security, "allowPrivilegeEscalation", false);
  Json& capabilities = objectIn(security, "capabilities");
  fill(capabilities, "drop", Json::array({"ALL"}));
}

void addVolume(Json& spec, const std::string& name, const std::string& source,
               const Json& fallback) {
  Json volume = source.empty() ? Json() : Json::parse(source, nullptr, /*exceptions=*/false);
  if (!volume.is_object() || volume.empty()) volume = fallback;
  Json entry = Json::object({{"name", name}});
  entry.update(volume);
  entry["name"] = name;
  addUnlessThere(listIn(spec, "volumes"), "name", std::move(entry));
}

void setVolumes(const Parts& parts, Json& spec, Json& container) {
  const Json scratch = Json::object({{"emptyDir", Json::object()}});
  Json& mounts = listIn(container, "volumeMounts");
  const auto mount = [&](const std::string& name, const std::string& path, bool read_only) {
    Json entry = {{"name", name}, {"mountPath", path}};
    if (read_only) entry["readOnly"] = true;
    addUnlessThere(mounts, "mountPath", std::move(entry));
  };
  for (const v1::Volume& volume : parts.job.spec().volumes()) {
    addVolume(spec, volume.name(), volume.volume(), scratch);
    mount(volume.name(), volume.mount_path(), false);
  }
  const v1::Storage& storage = parts.job.spec().storage();
  // The others reach its files by the network.
  const bool mounted =
      storage.access() != "Coordinator" || parts.task == coordinatorOf(parts.job.spec());
  addVolume(spec, kStorageVolume, mounted ? storage.volume() : "", scratch);
  mount(kStorageVolume, storage.mount_path(), false);
  const Json job = {{"configMap", {{"name", membershipName(parts.job)}}}};
  addVolume(spec, kJobVolume, "", job);
  mount(kJobVolume, text(kJobFolder), true);
  const Json secret = {{"secret", {{"secretName", secretName(parts.job)}}}};
  addVolume(spec, kSecretVolume, "", secret);
  mount(kSecretVolume, text(kSecretFolder), true);
  addVolume(spec, kTaskVolume, "", scratch);
  mount(kTaskVolume, text(kTaskFolder), false);
}

// Of 64 MiB otherwise, which is too little for what NCCL and others of its kind put there. It
// counts towards the container's memory, and its limit is that of the pod.
void setSharedMemory(const Parts& parts, Json& spec, Json& container) {
  const v1::JobSpec& job = parts.job.spec();
  const bool shares = job.strategy() == "AllReduce" || job.worker().processes_per_pod() > 1;
  if (parts.task.role != v1::ROLE_WORKER || !(shares || asksForGpu(container))) return;
  Json& mounts = listIn(container, "volumeMounts");
  if (itemWith(mounts, "mountPath", kSharedMemoryFolder) != nullptr) return;
  const Json memory = Json::object({{"medium", "Memory"}});
  addVolume(spec, kSharedMemoryVolume, "", Json::object({{"emptyDir", memory}}));
  mounts.push_back(
      Json::object({{"name", kSharedMemoryVolume}, {"mountPath", kSharedMemoryFolder}}));
}

// The amounts of a container that is Guaranteed by itself: limits of processor and memory, and
// requests that are the same, as those are that are not given. Empty for others.
Json guaranteedAmounts(const Json& container) {
  const Json limits = container.value(Json::json_pointer("/resources/limits"), Json::object());
  const Json requests = container.value(Json::json_pointer("/resources/requests"), Json::object());
  Json amounts = Json::object();
  for (const char* name : {"cpu", "memory"}) {
    if (!has(limits, name) || requests.value(name, limits[name]) != limits[name])
      return Json::object();
    amounts[name] = limits[name];
  }
  return Json::object({{"requests", amounts}, {"limits", amounts}});
}

// A pod is Guaranteed when all its containers are. One that runs before the others adds nothing to
// what the pod asks for, up to their amounts.
Json copyAmounts(const Json& container) {
  Json amounts = guaranteedAmounts(container);
  if (!amounts.empty()) return amounts;
  return {{"requests", {{"cpu", "10m"}, {"memory", "64Mi"}}},
          {"limits", {{"cpu", "1"}, {"memory", "128Mi"}}}};
}

// The agent that other images lack.
void inject(const Parts& parts, Json& spec, Json& container) {
  addVolume(spec, kAgentVolume, "", Json::object({{"emptyDir", Json::object()}}));
  addUnlessThere(listIn(container, "volumeMounts"), "mountPath",
                 {{"name", kAgentVolume}, {"mountPath", text(kAgentBundle)}, {"readOnly", true}});
  Json copy = {{"name", kAgentVolume},
               {"image", parts.agent_image},
               {"command", Json::array({text(kBundledAgent), "install", text(kAgentBundle),
                                        text(kInstallFolder)})},
               {"resources", copyAmounts(container)},
               {"volumeMounts", Json::array()},
               {"securityContext", {{"readOnlyRootFilesystem", true}}}};
  copy["volumeMounts"].push_back(
      Json::object({{"name", kAgentVolume}, {"mountPath", text(kInstallFolder)}}));
  restrict(copy);
  // First: those of the user may want the agent already.
  Json all = Json::array({std::move(copy)});
  for (Json& other : listIn(spec, "initContainers")) all.push_back(std::move(other));
  spec["initContainers"] = std::move(all);
}

// Our runtime asks an apiserver for nothing. Without a token for one there is nothing to be stolen,
// and the kubelet has none to fetch before the task starts. A template that names an account means
// it.
void leaveOutToken(const Parts& parts, Json& spec) {
  if (namesProgram(parts.job, parts.task.role) || spec.at("containers").size() > 1) return;
  for (const char* key : {"initContainers", "serviceAccountName", "serviceAccount"}) {
    if (has(spec, key)) return;
  }
  fill(spec, "automountServiceAccountToken", false);
}

void fillPod(const Parts& parts, Json& spec) {
  spec["restartPolicy"] = "Never";
  spec["hostname"] = podName(parts.job, parts.task);
  if (isForeign(parts.job)) spec["subdomain"] = serviceName(parts.job);
  fill(spec, "enableServiceLinks", false);
  internal::placePod(parts.job, parts.task, parts.options, spec);
  for (const std::string& name : parts.options.image_pull_secrets)
    addUnlessThere(listIn(spec, "imagePullSecrets"), "name", {{"name", name}});
  Json& security = objectIn(spec, "securityContext");
  if (!parts.job.spec().run_policy().run_as_image_user()) fill(security, "runAsNonRoot", true);
  fill(security, "seccompProfile", Json::object({{"type", "RuntimeDefault"}}));
  fill(security, "fsGroup", kImageGroup);
  fill(security, "fsGroupChangePolicy", "OnRootMismatch");
}

}  // namespace

Status checkTemplates(const v1::TrainingJob& job) {
  if (job.spec().has_ps()) TY_RETURN_IF_ERROR(checkTemplate(job, v1::ROLE_PS));
  return checkTemplate(job, v1::ROLE_WORKER);
}

Status checkImages(const v1::TrainingJob& job, const RenderOptions& options) {
  if (job.spec().has_ps()) TY_RETURN_IF_ERROR(checkImage(job, v1::ROLE_PS, options));
  return checkImage(job, v1::ROLE_WORKER, options);
}

StatusOr<Json> renderPod(const v1::TrainingJob& job, const TaskKey& task, std::uint32_t created,
                         const RenderOptions& options) {
  TY_RETURN_IF_ERROR(checkTemplate(job, task.role));
  TY_RETURN_IF_ERROR(checkImage(job, task.role, options));
  TY_ASSIGN_OR_RETURN(Json given, readTemplate(job, task.role));
  const v1::Images& pinned = job.status().images();
  Parts parts{.job = job,
              .task = task,
              .created = created,
              .options = options,
              .agent_image = pinned.has_agent() ? pinned.agent() : options.agent_image,
              .runtime_image = pinned.has_runtime() ? pinned.runtime() : options.runtime_image,
              .torch_image = torchImage(job, options)};

  Json& spec = objectIn(given, "spec");
  if (!taskContainer(given)) {
    listIn(spec, "containers").push_back(Json::object({{"name", text(kTaskContainer)}}));
  }
  const std::size_t place = taskContainer(given).value_or(0);
  Json container = spec["containers"][place];
  fill(container, "image", defaultImage(parts, container));
  parts.injected =
      container["image"] != parts.runtime_image && container["image"] != parts.torch_image;

  fill(container, "terminationMessagePath", "/dev/termination-log");
  parts.last_words = container["terminationMessagePath"].get<std::string>();
  parts.stop_grace = stopGrace(spec);
  setCommand(parts, container);
  setEnvironment(parts, container);
  setPorts(job.spec().network(), container);
  setProbes(job.spec().network(), container);
  fill(container, "terminationMessagePolicy", "FallbackToLogsOnError");
  restrict(container);
  internal::addClaimVolumes(job, task, spec);
  setVolumes(parts, spec, container);
  internal::reachObjectStore(job, spec, container);
  setSharedMemory(parts, spec, container);
  const std::string name = container["name"].get<std::string>();
  leaveOutToken(parts, spec);
  if (parts.injected) inject(parts, spec, container);
  spec["containers"][place] = std::move(container);
  fillPod(parts, spec);

  Json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}};
  pod["metadata"] = metadata(parts, given.value("metadata", Json::object()), name);
  pod["spec"] = std::move(spec);
  return pod;
}

}  // namespace trainyard::control
