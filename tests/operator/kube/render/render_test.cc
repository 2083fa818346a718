#include "operator/kube/render/render.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Pointer = OrderedJson::json_pointer;

constexpr const char* kTraining = R"(
  training:
    model: {name: mnist_cnn}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 100}
    batchSize: 10
    steps: 10
    optimizer: {name: SGD, learningRate: 0.1}
)";

// `spec` is what follows "spec:", indented by two.
v1::TrainingJob jobOf(const std::string& spec) {
  const std::string text =
      "apiVersion: trainyard.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: fashion, namespace: "
      "team}\nspec:\n" +
      spec;
  std::vector<JobProblem> problems;
  const auto job = parseJob(text, "job.yaml", {}, &problems);
  EXPECT_TRUE(job.ok()) << job.status();
  if (!job.ok()) return {};
  v1::TrainingJob result = *job;
  result.mutable_metadata()->set_uid("0123456789abcdef");
  return result;
}

v1::TrainingJob plainJob() {
  return jobOf(std::string("  ps: {replicas: 2}\n  worker: {replicas: 2}\n") + kTraining);
}

// A job of programs of the user's own; `container` is the worker's, in flow style.
v1::TrainingJob foreignJob(const std::string& container, const std::string& more = "") {
  return jobOf("  ps: {template: {spec: {containers: [{name: a, image: b, command: [x]}]}}}\n" +
               std::string("  worker: {template: {spec: {containers: [") + container + "]" + more +
               "}}}\n");
}

RenderOptions options() {
  return {.agent_image = "agent:1", .runtime_image = "runtime:1"};
}

OrderedJson podOf(const v1::TrainingJob& job, const TaskKey& key = {v1::ROLE_WORKER, 1}) {
  const auto pod = renderPod(job, key, 3, options());
  EXPECT_TRUE(pod.ok()) << pod.status();
  return pod.ok() ? *pod : OrderedJson();
}

OrderedJson at(const OrderedJson& json, const std::string& pointer) {
  const Pointer p(pointer);
  return json.contains(p) ? json.at(p) : OrderedJson();
}

const OrderedJson* named(const OrderedJson& list, const std::string& name) {
  for (const OrderedJson& item : list) {
    if (item.value("name", "") == name) return &item;
  }
  return nullptr;
}

std::vector<std::string> words(const OrderedJson& list) {
  return list.is_array() ? list.get<std::vector<std::string>>() : std::vector<std::string>();
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

TEST(RenderPod, IsNamedLabelledAndOwned) {
  const OrderedJson pod = podOf(plainJob());
  EXPECT_EQ(at(pod, "/kind"), "Pod");
  const OrderedJson meta = at(pod, "/metadata");
  EXPECT_EQ(meta["name"], "fashion-worker-1");
  EXPECT_EQ(meta["namespace"], "team");
  EXPECT_EQ(meta["labels"]["trainyard.dev/job-name"], "fashion");
  EXPECT_EQ(meta["labels"]["trainyard.dev/role"], "worker");
  EXPECT_EQ(meta["labels"]["trainyard.dev/index"], "1");
  EXPECT_EQ(meta["labels"]["trainyard.dev/created"], "3");
  EXPECT_EQ(meta["annotations"]["trainyard.dev/task-container"], "task");
  EXPECT_EQ(meta["finalizers"], OrderedJson::array({"trainyard.dev/result"}));
  const OrderedJson owner = meta["ownerReferences"][0];
  EXPECT_EQ(owner["uid"], "0123456789abcdef");
  EXPECT_EQ(owner["kind"], "TrainingJob");
  EXPECT_EQ(owner["controller"], true);
  EXPECT_EQ(owner["blockOwnerDeletion"], true);
}

TEST(RenderPod, RunsTheRuntimeUnderTheAgent) {
  const OrderedJson pod = podOf(plainJob());
  ASSERT_EQ(at(pod, "/spec/containers").size(), 1u);
  const OrderedJson task = at(pod, "/spec/containers/0");
  EXPECT_EQ(task["name"], "task");
  EXPECT_EQ(task["image"], "runtime:1");
  const auto command = words(task["command"]);
  EXPECT_EQ(command.front(), "/usr/bin/trainyard-agent");
  for (const char* word :
       {"--role=worker", "--index=1", "--created=3", "--job-dir=/job",
        "--task-dir=/run/trainyard/task", "--job=/run/trainyard/job/job.json",
        "--membership=/run/trainyard/job/membership.json", "--token=/run/trainyard/secret/token",
        "--bind=$(TRAINYARD_POD_IP)", "--tls=/run/trainyard/secret", "--task-port=2222",
        "--agent-port=2230", "--metrics-port=2231", "--log-format=json",
        "--last-words=/dev/termination-log", "--runtime=/usr/bin/trainyard-runtime"}) {
    EXPECT_TRUE(contains(command, word)) << word;
  }
  EXPECT_FALSE(task.contains("args"));
  EXPECT_EQ(at(task, "/env/0/name"), "TRAINYARD_POD_IP");
  EXPECT_EQ(at(task, "/env/0/valueFrom/fieldRef/fieldPath"), "status.podIP");
  EXPECT_FALSE(at(pod, "/spec").contains("initContainers"));
}

TEST(RenderPod, IsFound) {
  const OrderedJson pod = podOf(plainJob());
  EXPECT_EQ(at(pod, "/spec/hostname"), "fashion-worker-1");
  EXPECT_FALSE(at(pod, "/spec").contains("subdomain")) << "its peers go by addresses";
  EXPECT_EQ(at(pod, "/spec/restartPolicy"), "Never");
  EXPECT_EQ(at(pod, "/spec/enableServiceLinks"), false);
  const OrderedJson task = at(pod, "/spec/containers/0");
  EXPECT_EQ(task["ports"].size(), 3u);
  EXPECT_EQ(at(*named(task["ports"], "agent"), "/containerPort"), 2230);
}

TEST(RenderPod, HasNoTokenWhereOnlyOurRuntimeRuns) {
  const auto mounts = [](const v1::TrainingJob& job) {
    return at(podOf(job), "/spec/automountServiceAccountToken");
  };
  const auto with = [&](const std::string& pod) {
    return mounts(
        jobOf("  ps: {replicas: 1}\n  worker: {template: {spec: {" + pod + "}}}\n" + kTraining));
  };
  EXPECT_EQ(mounts(plainJob()), false);
  EXPECT_EQ(with("containers: [{name: task, resources: {limits: {cpu: 1}}}]"), false);
  // Whoever else is in the pod may ask an apiserver, and who names an account means it.
  EXPECT_EQ(mounts(foreignJob("{name: a, image: b, command: [x]}")), OrderedJson());
  EXPECT_EQ(with("serviceAccountName: reader"), OrderedJson());
  EXPECT_EQ(with("containers: [{name: task}, {name: side, image: b}]"), OrderedJson());
  EXPECT_EQ(with("initContainers: [{name: before, image: b}]"), OrderedJson());
  EXPECT_EQ(with("automountServiceAccountToken: true"), true);
}

TEST(RenderPod, KeepsToTheRestrictedProfile) {
  const OrderedJson pod = podOf(plainJob());
  EXPECT_EQ(at(pod, "/spec/securityContext/runAsNonRoot"), true);
  EXPECT_EQ(at(pod, "/spec/securityContext/seccompProfile/type"), "RuntimeDefault");
  EXPECT_EQ(at(pod, "/spec/securityContext/fsGroup"), kImageGroup);
  const OrderedJson security = at(pod, "/spec/containers/0/securityContext");
  EXPECT_EQ(security["allowPrivilegeEscalation"], false);
  EXPECT_EQ(at(security, "/capabilities/drop"), OrderedJson::array({"ALL"}));
}

TEST(RenderPod, MountsVolumes) {
  const v1::TrainingJob job = jobOf(std::string(R"(
  storage: {mountPath: /out, volume: {persistentVolumeClaim: {claimName: pvc}}}
  volumes: [{name: data, mountPath: /data, volume: {configMap: {name: c}}}, {name: free, mountPath: /free}]
  worker: {replicas: 2}
  ps: {replicas: 1}
)") + kTraining);
  const OrderedJson pod = podOf(job);
  const OrderedJson volumes = at(pod, "/spec/volumes");
  EXPECT_EQ(at(*named(volumes, "trainyard-storage"), "/persistentVolumeClaim/claimName"), "pvc");
  EXPECT_EQ(at(*named(volumes, "data"), "/configMap/name"), "c");
  EXPECT_TRUE(named(volumes, "free")->contains("emptyDir"));
  EXPECT_EQ(at(*named(volumes, "trainyard-membership"), "/configMap/name"), "fashion-membership");
  EXPECT_EQ(at(*named(volumes, "trainyard-secret"), "/secret/secretName"), "fashion-01234567-tls");
  const OrderedJson mounts = at(pod, "/spec/containers/0/volumeMounts");
  EXPECT_EQ(at(*named(mounts, "trainyard-storage"), "/mountPath"), "/out");
  EXPECT_EQ(at(*named(mounts, "data"), "/mountPath"), "/data");
  EXPECT_EQ(at(*named(mounts, "trainyard-membership"), "/readOnly"), true);
  EXPECT_TRUE(contains(words(at(pod, "/spec/containers/0/command")), "--job-dir=/out"));
}

// A job of ours with a GPU for each worker; `worker` and `spec` are more of them.
v1::TrainingJob gpuJob(const std::string& worker = "", const std::string& spec = "") {
  return jobOf(spec + "  worker:\n    replicas: 2\n" + worker + R"(
    template:
      spec:
        containers:
          - name: task
            resources:
              limits: {nvidia.com/gpu: 2, memory: 8Gi}
              requests: {cpu: 500m}
)" + kTraining);
}

TEST(RenderPod, KeepsAWorkersGpusAsGiven) {
  const OrderedJson task = at(podOf(gpuJob("", "  ps: {replicas: 1}\n")), "/spec/containers/0");
  EXPECT_EQ(task["resources"],
            OrderedJson::parse(R"({"limits": {"nvidia.com/gpu": 2, "memory": "8Gi"},
                            "requests": {"cpu": "500m"}})"));
  EXPECT_EQ(named(task["env"], "CUDA_VISIBLE_DEVICES"), nullptr);
}

// The volume at /dev/shm; null: none.
OrderedJson sharedMemoryOf(const OrderedJson& pod) {
  const OrderedJson volumes = at(pod, "/spec/volumes");
  for (const OrderedJson& mount : at(pod, "/spec/containers/0/volumeMounts")) {
    if (mount["mountPath"] != "/dev/shm") continue;
    const OrderedJson* volume = named(volumes, mount["name"]);
    return volume == nullptr ? OrderedJson("no such volume") : *volume;
  }
  return {};
}

TEST(RenderPod, WorkersWhoseProcessesShareMemoryGetEnoughOfIt) {
  const OrderedJson shm =
      OrderedJson::parse(R"({"name": "trainyard-shm", "emptyDir": {"medium": "Memory"}})");
  const std::string servers = "  ps: {replicas: 1}\n", ring = "  strategy: AllReduce\n";
  EXPECT_EQ(sharedMemoryOf(podOf(gpuJob("", servers))), shm);
  EXPECT_EQ(sharedMemoryOf(podOf(jobOf(ring + "  worker: {replicas: 2}\n" + kTraining))), shm);
  EXPECT_EQ(sharedMemoryOf(
                podOf(jobOf(ring + "  worker: {replicas: 2, processesPerPod: 2}\n" + kTraining))),
            shm);
  const std::string own = R"({name: a, image: b, command: [x]})";
  v1::TrainingJob foreign = foreignJob(own);
  EXPECT_EQ(sharedMemoryOf(podOf(foreign)), OrderedJson());
  foreign.mutable_spec()->mutable_worker()->set_processes_per_pod(2);
  EXPECT_EQ(sharedMemoryOf(podOf(foreign)), shm);
  // A parameter server and a worker alone in its pod have nobody to share with.
  EXPECT_EQ(sharedMemoryOf(podOf(gpuJob("", servers), {v1::ROLE_PS, 0})), OrderedJson());
  EXPECT_EQ(sharedMemoryOf(podOf(plainJob())), OrderedJson());
}

TEST(RenderPod, ATemplatesOwnSharedMemoryStays) {
  const OrderedJson pod = podOf(
      foreignJob("{name: a, image: b, command: [x], resources: {limits: {nvidia.com/gpu: 1}}, "
                 "volumeMounts: [{name: mine, mountPath: /dev/shm}]}",
                 ", volumes: [{name: mine, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]"));
  EXPECT_EQ(sharedMemoryOf(pod)["emptyDir"]["sizeLimit"], "1Gi");
  EXPECT_EQ(named(at(pod, "/spec/volumes"), "trainyard-shm"), nullptr);
}

TEST(RenderPod, ParameterServersGetNoGpu) {
  const OrderedJson ps = podOf(plainJob(), {v1::ROLE_PS, 0});
  EXPECT_EQ(at(*named(at(ps, "/spec/containers/0/env"), "NVIDIA_VISIBLE_DEVICES"), "/value"),
            "void");
  EXPECT_EQ(at(*named(at(ps, "/spec/containers/0/env"), "CUDA_VISIBLE_DEVICES"), "/value"), "");
  const OrderedJson worker = podOf(plainJob());
  EXPECT_EQ(named(at(worker, "/spec/containers/0/env"), "NVIDIA_VISIBLE_DEVICES"), nullptr);
  const OrderedJson asked = podOf(jobOf(R"(  ps:
    template: {spec: {containers: [{name: task, resources: {limits: {nvidia.com/gpu: 1}}}]}}
  worker: {replicas: 1}
)" + std::string(kTraining)),
                                  {v1::ROLE_PS, 0});
  EXPECT_EQ(named(at(asked, "/spec/containers/0/env"), "NVIDIA_VISIBLE_DEVICES"), nullptr);
}

TEST(RenderPod, KeepsWhatTheTemplateSays) {
  const v1::TrainingJob job = jobOf(std::string(R"(
  ps: {replicas: 1}
  worker:
    template:
      metadata: {labels: {team: a, trainyard.dev/role: mine}, annotations: {note: b}}
      spec:
        nodeSelector: {gpu: "yes"}
        restartPolicy: Always
        securityContext: {runAsUser: 7, fsGroup: 8}
        initContainers: [{name: first, image: i}]
        volumes: [{name: mine, emptyDir: {}}]
        containers:
          - {name: sidecar, image: s}
          - name: task
            env: [{name: A, value: b}]
            resources: {limits: {cpu: "2"}}
            ports: [{name: metrics, containerPort: 9}, {containerPort: 2230}]
            volumeMounts: [{name: mine, mountPath: /mine}]
            securityContext: {allowPrivilegeEscalation: true, capabilities: {add: [X]}}
            readinessProbe: {exec: {command: [y]}}
)") + kTraining);
  const OrderedJson pod = podOf(job);
  EXPECT_EQ(at(pod, "/metadata/labels/team"), "a");
  EXPECT_EQ(at(pod, "/metadata/labels/trainyard.dev~1role"), "worker");
  EXPECT_EQ(at(pod, "/metadata/annotations/note"), "b");
  EXPECT_EQ(at(pod, "/spec/nodeSelector/gpu"), "yes");
  EXPECT_EQ(at(pod, "/spec/restartPolicy"), "Never");
  EXPECT_EQ(at(pod, "/spec/securityContext/runAsUser"), 7);
  EXPECT_EQ(at(pod, "/spec/securityContext/fsGroup"), 8);
  EXPECT_EQ(at(pod, "/spec/initContainers").size(), 1u);
  EXPECT_EQ(at(pod, "/spec/containers/0"), OrderedJson({{"name", "sidecar"}, {"image", "s"}}));
  const OrderedJson task = at(pod, "/spec/containers/1");
  EXPECT_EQ(at(*named(task["env"], "A"), "/value"), "b");
  EXPECT_EQ(at(task, "/resources/limits/cpu"), "2");
  EXPECT_EQ(task["ports"].size(), 4u);  // two of the user's, the task's and the metrics'
  EXPECT_EQ(at(*named(task["volumeMounts"], "mine"), "/mountPath"), "/mine");
  EXPECT_EQ(at(task, "/securityContext/allowPrivilegeEscalation"), true);
  EXPECT_EQ(
      at(task, "/securityContext/capabilities"),
      OrderedJson({{"add", OrderedJson::array({"X"})}, {"drop", OrderedJson::array({"ALL"})}}));
  EXPECT_TRUE(task["readinessProbe"].contains("exec"));
  EXPECT_EQ(at(pod, "/metadata/annotations/trainyard.dev~1task-container"), "task");
}

TEST(RenderPod, OtherImagesGetTheAgentFromAnInitContainer) {
  const OrderedJson pod =
      podOf(foreignJob("{name: main, image: busybox, command: [sh, -c], args: [run]}",
                       ", initContainers: [{name: mine, image: i}]"));
  const OrderedJson inits = at(pod, "/spec/initContainers");
  ASSERT_EQ(inits.size(), 2u);
  const OrderedJson copy = inits[0];
  EXPECT_EQ(copy["image"], "agent:1");
  EXPECT_EQ(words(copy["command"]),
            (std::vector<std::string>{"/opt/trainyard/agent/trainyard-agent", "install",
                                      "/opt/trainyard/agent", "/opt/trainyard/install"}));
  EXPECT_EQ(at(copy, "/securityContext/allowPrivilegeEscalation"), false);
  EXPECT_EQ(at(copy, "/securityContext/capabilities/drop"), OrderedJson::array({"ALL"}));
  EXPECT_TRUE(at(copy, "/resources/requests").contains("cpu"));
  EXPECT_TRUE(at(copy, "/resources/limits").contains("memory"));
  EXPECT_EQ(inits[1]["name"], "mine");
  const OrderedJson task = at(pod, "/spec/containers/0");
  EXPECT_EQ(task["image"], "busybox");
  EXPECT_EQ(at(task, "/command/0"), "/opt/trainyard/agent/trainyard-agent");
  EXPECT_EQ(words(task["command"]).back(), "--");
  EXPECT_EQ(words(task["args"]), (std::vector<std::string>{"sh", "-c", "run"}));
  EXPECT_EQ(at(*named(task["volumeMounts"], "trainyard-agent"), "/mountPath"),
            "/opt/trainyard/agent");
  EXPECT_EQ(at(pod, "/metadata/annotations/trainyard.dev~1task-container"), "main");
}

TEST(RenderPod, EscapedNamesOfOursReachTheAgentEscaped) {
  const OrderedJson pod = podOf(foreignJob(
      "{name: a, image: b, command: [sh, $(PS_HOSTS), $$(PS_HOSTS), $$(MINE), 'x$$(RANK)', $$]}"));
  EXPECT_EQ(words(at(pod, "/spec/containers/0/args")),
            (std::vector<std::string>{"sh", "$(PS_HOSTS)", "$$$$(PS_HOSTS)", "$$(MINE)",
                                      "x$$$$(RANK)", "$$"}));
}

TEST(RenderPod, PinnedImagesWin) {
  v1::TrainingJob job = plainJob();
  job.mutable_status()->mutable_images()->set_agent("agent:0");
  job.mutable_status()->mutable_images()->set_runtime("runtime:0");
  const OrderedJson pod = podOf(job);
  EXPECT_EQ(at(pod, "/spec/containers/0/image"), "runtime:0");
  EXPECT_FALSE(at(pod, "/spec").contains("initContainers"));
}

// A job whose model the workers' program brings; `container` is theirs, in flow style.
v1::TrainingJob programJob(const std::string& container) {
  return jobOf("  ps: {}\n  volumes: [{name: data, mountPath: /data}]\n" +
               std::string("  worker: {template: {spec: {containers: [") + container + "]}}}\n" +
               "  training: {model: {name: program}, batchSize: 8, steps: 5,\n"
               "    optimizer: {name: SGD, learningRate: 0.1}}\n");
}

TEST(RenderPod, TheRuntimeStartsAProgramThatBringsTheModel) {
  const v1::TrainingJob job = programJob(
      "{name: a, image: torch:1, command: [python3, train.py], args: [$(TRAINYARD_RANK)]}");
  ASSERT_TRUE(checkTemplates(job).ok()) << checkTemplates(job);
  const OrderedJson worker = podOf(job, {v1::ROLE_WORKER, 0});
  const std::vector<std::string> command = words(at(worker, "/spec/containers/0/command"));
  EXPECT_EQ(command.front(), kBundledAgent);
  EXPECT_TRUE(contains(command, "--runtime=/opt/trainyard/agent/trainyard-runtime"));
  EXPECT_TRUE(contains(command, "--program-volume=data=/data"));
  EXPECT_EQ(command.back(), "--");
  EXPECT_EQ(words(at(worker, "/spec/containers/0/args")),
            (std::vector<std::string>{"python3", "train.py", "$(TRAINYARD_RANK)"}));
  EXPECT_EQ(at(worker, "/spec/initContainers/0/image"), "agent:1");

  const OrderedJson server = podOf(job, {v1::ROLE_PS, 0});
  EXPECT_EQ(at(server, "/spec/containers/0/image"), "runtime:1");
  const std::vector<std::string> serves = words(at(server, "/spec/containers/0/command"));
  EXPECT_EQ(serves.back(), "--runtime=/usr/bin/trainyard-runtime");
}

TEST(CheckTemplates, AProgramThatBringsTheModelIsNamed) {
  EXPECT_TRUE(std::string(checkTemplates(programJob("{name: a, image: b}")).message())
                  .starts_with("spec.worker.template.spec.containers[0].command: missing"));
}

TEST(CheckTemplates, NamesTheField) {
  const auto problem = [](const v1::TrainingJob& job) {
    return std::string(checkTemplates(job).message());
  };
  EXPECT_EQ(problem(plainJob()), "");
  EXPECT_NE(problem(foreignJob("{name: a, image: b}"))
                .find("spec.worker.template.spec.containers[0].command: missing"),
            std::string::npos);
  EXPECT_EQ(problem(foreignJob("{name: a, command: [x], env: [{name: RANK, value: '1'}]}")),
            "spec.worker.template.spec.containers[0].env[0].name: RANK is set by Trainyard");
  const auto withTemplate = [](const std::string& given) {
    return jobOf("  ps: {}\n  worker: {template: " + given + "}\n" + kTraining);
  };
  EXPECT_EQ(problem(withTemplate("{spec: {containers: [{name: a, command: [x]}]}}")),
            "spec.worker.template.spec.containers[0].command: only without spec.training, which "
            "runs ours");
  EXPECT_EQ(problem(withTemplate("{spec: {containers: [{image: a}]}}")),
            "spec.worker.template.spec.containers[0].name: missing");
  EXPECT_EQ(problem(withTemplate("{metadata: {labels: {a: 1}}}")),
            "spec.worker.template.metadata.labels[\"a\"]: expected a text (put it in quotes)");
  EXPECT_EQ(problem(withTemplate("{spec: {containers: [{name: a, securityContext: [x]}]}}")),
            "spec.worker.template.spec.containers[0].securityContext: expected an object");
}

TEST(RenderObjects, ServiceIsHeadless) {
  const OrderedJson service = renderService(plainJob());
  EXPECT_EQ(at(service, "/metadata/name"), "fashion");
  EXPECT_EQ(at(service, "/spec/clusterIP"), "None");
  EXPECT_EQ(at(service, "/spec/publishNotReadyAddresses"), true);
  EXPECT_FALSE(service["spec"].contains("selector")) << "its endpoints are ours";
  EXPECT_EQ(at(service, "/metadata/ownerReferences/0/uid"), "0123456789abcdef");
}

TEST(RenderObjects, PolicyLetsInThePeersAndWhoIsNamed) {
  const auto options = parsePolicyOptions(
      R"({"agentFrom": [{"podSelector": {}}], "metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]})");
  ASSERT_TRUE(options.ok()) << options.status();
  const OrderedJson policy = renderNetworkPolicy(plainJob(), *options);
  EXPECT_EQ(at(policy, "/apiVersion"), "networking.k8s.io/v1");
  EXPECT_EQ(at(policy, "/metadata/name"), "fashion");
  EXPECT_EQ(at(policy, "/metadata/ownerReferences/0/uid"), "0123456789abcdef");
  EXPECT_EQ(at(policy, "/spec/podSelector/matchLabels/trainyard.dev~1job-name"), "fashion");
  EXPECT_EQ(at(policy, "/spec/policyTypes"), OrderedJson::array({"Ingress"}));
  ASSERT_EQ(at(policy, "/spec/ingress").size(), 3u);
  EXPECT_EQ(at(policy, "/spec/ingress/0/from/0/podSelector"), at(policy, "/spec/podSelector"));
  EXPECT_FALSE(at(policy, "/spec/ingress/0").contains("ports")) << "from peers, to any port";
  EXPECT_EQ(at(policy, "/spec/ingress/1/ports/0/port"), 2230);
  EXPECT_EQ(at(policy, "/spec/ingress/2/ports/0/port"), 2231);
  EXPECT_EQ(at(policy, "/spec/ingress/2/from/0/ipBlock/cidr"), "10.0.0.0/8");
}

TEST(RenderObjects, APolicyRuleWithoutPeersWouldLetEverybodyIn) {
  const auto options = parsePolicyOptions(R"({"agentFrom": [], "metricsFrom": []})");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(at(renderNetworkPolicy(plainJob(), *options), "/spec/ingress").size(), 1u);
  for (const char* text :
       {"", "[]", "{}", R"({"agentFrom": []})", R"({"agentFrom": {}, "metricsFrom": []})"}) {
    EXPECT_FALSE(parsePolicyOptions(text).ok()) << text;
  }
}

TEST(RenderObjects, StorageThatPassesWithThePod) {
  const auto of = [](const std::string& storage, const std::string& more = "") {
    return passingStorage(jobOf("  ps: {replicas: 1}\n  worker: {replicas: 1" + more + "}\n" +
                                (storage.empty() ? "" : "  storage: " + storage + "\n") +
                                kTraining));
  };
  const auto none = of("");
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->reason, "NoStorageVolume");
  EXPECT_EQ(none->message,
            "spec.storage.volume is not set: /job is an empty folder of each pod and ends with it, "
            "and so do checkpoints");
  EXPECT_TRUE(of("{volume: {}}").has_value());
  EXPECT_TRUE(of("{volume: {emptyDir: {medium: Memory}}}").has_value());
  EXPECT_FALSE(of("{volume: {persistentVolumeClaim: {claimName: a}}}").has_value());
  EXPECT_FALSE(of("",
                  ", template: {spec: {containers: [{name: task, volumeMounts: [{name: own, "
                  "mountPath: /job}]}]}}")
                   .has_value());
  EXPECT_FALSE(passingStorage(foreignJob("{name: a, image: b, command: [x]}")).has_value());
}

TEST(RenderObjects, MembershipComesBack) {
  const v1::TrainingJob job = plainJob();
  EXPECT_FALSE(at(renderMembership(job, std::nullopt, "r1"), "/data").contains("membership.json"));
  v1::Membership membership;
  membership.set_uid("u");
  membership.set_revision(4);
  membership.add_tasks()->set_ip("10.0.0.1");
  const OrderedJson map = renderMembership(job, membership, "r1");
  EXPECT_EQ(at(map, "/metadata/name"), "fashion-membership");
  EXPECT_EQ(at(map, "/metadata/annotations/trainyard.dev~1root"), "r1");
  const auto read = parseMembershipText(at(map, "/data/membership.json").get<std::string>());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), membership.SerializeAsString());
  const OrderedJson told = OrderedJson::parse(at(map, "/data/job.json").get<std::string>());
  EXPECT_EQ(at(told, "/metadata/uid"), "0123456789abcdef");
  EXPECT_FALSE(told.contains("status"));
  EXPECT_FALSE(parseMembershipText("no").ok());
}

TEST(RenderObjects, SecretHoldsTheToken) {
  JobKeys keys = deriveJobKeys("root", "uid");
  const OrderedJson secret = renderSecret(plainJob(), keys);
  EXPECT_EQ(at(secret, "/metadata/name"), "fashion-01234567-tls");
  EXPECT_EQ(at(secret, "/stringData/token"), keys.token);
  EXPECT_EQ(at(secret, "/stringData/tls.key"), keys.task.key);
  EXPECT_EQ(secret.dump().find(keys.client.key.substr(30, 20)), std::string::npos);
}

TEST(Names, AreThoseOfTheDesign) {
  const v1::TrainingJob job = plainJob();
  EXPECT_EQ(podHost(job, {v1::ROLE_PS, 2}), "fashion-ps-2.fashion.team.svc");
}

}  // namespace
}  // namespace trainyard::control
