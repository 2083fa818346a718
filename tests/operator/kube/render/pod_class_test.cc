// What a pod is to the kubelet: its quality of service, who may run in it, and with what its images
// are pulled.
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/job/job.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson podOf(const std::string& pod, const std::string& container,
                  const std::vector<std::string>& pull_secrets = {},
                  const std::string& policy = "") {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: own, namespace: team}}
spec:
  strategy: AllReduce
  runPolicy: {{{}}}
  worker: {{template: {{spec: {{{} containers: [{{name: task, image: a, command: [b], {}}}]}}}}}}
)",
                                       policy, pod, container);
  const auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  RenderOptions options{.agent_image = "agent:1", .runtime_image = "runtime:1"};
  options.image_pull_secrets = pull_secrets;
  const auto rendered = renderPod(*job, {v1::ROLE_WORKER, 0}, 1, options);
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return (*rendered)["spec"];
}

OrderedJson copyOf(const std::string& resources) {
  const OrderedJson spec = podOf("", "resources: {" + resources + "}");
  return spec["initContainers"][0]["resources"];
}

TEST(PodClassTest, TheCopyOfTheAgentLeavesAGuaranteedPodGuaranteed) {
  const OrderedJson amounts = {{"cpu", "4"}, {"memory", "8Gi"}};
  const OrderedJson same = {{"requests", amounts}, {"limits", amounts}};
  EXPECT_EQ(copyOf("limits: {cpu: '4', memory: 8Gi}"), same);
  EXPECT_EQ(copyOf("limits: {cpu: '4', memory: 8Gi, nvidia.com/gpu: 1}, "
                   "requests: {cpu: '4', memory: 8Gi}"),
            same)
      << "it takes no GPU";
  const OrderedJson little = {{"requests", {{"cpu", "10m"}, {"memory", "64Mi"}}},
                              {"limits", {{"cpu", "1"}, {"memory", "128Mi"}}}};
  EXPECT_EQ(copyOf(""), little);
  EXPECT_EQ(copyOf("limits: {memory: 8Gi}"), little);
  EXPECT_EQ(copyOf("limits: {cpu: '4', memory: 8Gi}, requests: {cpu: '2', memory: 8Gi}"), little);
}

TEST(PodClassTest, ImagesMayRunAsRootWhereTheJobSaysSo) {
  EXPECT_EQ(podOf("", "")["securityContext"]["runAsNonRoot"], true);
  EXPECT_FALSE(
      podOf("", "", {}, "runAsImageUser: true")["securityContext"].contains("runAsNonRoot"));
  EXPECT_EQ(podOf("securityContext: {runAsNonRoot: false},", "")["securityContext"]["runAsNonRoot"],
            false);
}

TEST(PodClassTest, ImagesArePulledWithTheSecretsOfTheTemplateAndOfTheOperator) {
  EXPECT_FALSE(podOf("", "").contains("imagePullSecrets"));
  EXPECT_EQ(podOf("imagePullSecrets: [{name: own}, {name: both}],", "",
                  {"both", "all"})["imagePullSecrets"],
            OrderedJson::parse(R"([{"name": "own"}, {"name": "both"}, {"name": "all"}])"));
}

OrderedJson serverOf(const std::string& spec, int servers) {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: own, namespace: team}}
spec:
  ps: {{replicas: {}, template: {{spec: {{{} containers: [{{name: task, image: a, command: [b]}}]}}}}}}
  worker: {{replicas: 3, template: {{spec: {{containers: [{{name: task, image: a, command: [b]}}]}}}}}}
)",
                                       servers, spec);
  const auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  const RenderOptions options{.agent_image = "agent:1", .runtime_image = "runtime:1"};
  const auto worker = renderPod(*job, {v1::ROLE_WORKER, 0}, 1, options);
  EXPECT_FALSE((*worker)["spec"].contains("topologySpreadConstraints"));
  const auto server = renderPod(*job, {v1::ROLE_PS, 1}, 1, options);
  EXPECT_TRUE(server.ok()) << server.status();
  return (*server)["spec"];
}

TEST(PodClassTest, ServersPreferNodesOfTheirOwn) {
  EXPECT_EQ(serverOf("", 2)["topologySpreadConstraints"], OrderedJson::parse(R"([{
      "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
      "labelSelector": {"matchLabels": {"trainyard.dev/job-name": "own", "trainyard.dev/role": "ps"}}}])"));
  EXPECT_FALSE(serverOf("", 1).contains("topologySpreadConstraints"));
  EXPECT_FALSE(serverOf("affinity: {},", 2).contains("topologySpreadConstraints"));
  EXPECT_EQ(serverOf("topologySpreadConstraints: [],", 2)["topologySpreadConstraints"],
            OrderedJson::array());
}

// `job`: more of its spec; `pod`: of the workers' pods.
OrderedJson workerOf(const std::string& job, const std::string& pod = "", int workers = 2) {
  const std::string text = fmt::format(
      R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: own, namespace: team}}
spec:
{}
  worker: {{replicas: {}, template: {{spec: {{{} containers: [{{name: task, image: a{}}}]}}}}}}
)",
      job, workers, pod, job.find("training") == std::string::npos ? ", command: [b]" : "");
  const auto parsed = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return OrderedJson();
  const RenderOptions options{.agent_image = "agent:1", .runtime_image = "runtime:1"};
  const auto rendered = renderPod(*parsed, {v1::ROLE_WORKER, 1}, 1, options);
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return rendered.ok() ? (*rendered)["spec"] : OrderedJson();
}

constexpr char kRingTraining[] = R"(  strategy: AllReduce
  training: {model: {name: mlp}, data: {format: synthetic, shape: [4, 4, 1], classes: 2, samples: 10},
    batchSize: 1, steps: 1, optimizer: {name: SGD, learningRate: 0.1}})";

TEST(PodClassTest, RanksOfARingPreferToBeNearEachOther) {
  const OrderedJson near = OrderedJson::parse(R"({"podAffinity": {
      "preferredDuringSchedulingIgnoredDuringExecution": [
    {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector":
      {"matchLabels": {"trainyard.dev/job-name": "own", "trainyard.dev/role": "worker"}}}},
    {"weight": 50, "podAffinityTerm": {"topologyKey": "topology.kubernetes.io/zone",
      "labelSelector":
      {"matchLabels": {"trainyard.dev/job-name": "own", "trainyard.dev/role": "worker"}}}}]}})");
  const OrderedJson ours = workerOf(kRingTraining);
  EXPECT_EQ(ours["affinity"], near);
  EXPECT_FALSE(ours.contains("topologySpreadConstraints"));
  const OrderedJson foreign = workerOf("  strategy: AllReduce");
  EXPECT_EQ(foreign["affinity"], near);
  // The scheduler's own constraint, for pods of a Service, does not hold then.
  EXPECT_EQ(foreign["topologySpreadConstraints"], OrderedJson::parse(R"([{
      "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
      "labelSelector": {"matchLabels": {"trainyard.dev/job-name": "own",
        "trainyard.dev/role": "worker", "trainyard.dev/index": "1"}}}])"));
}

TEST(PodClassTest, OthersGoWhereTheyFindRoom) {
  const auto placed = [](const OrderedJson& spec) {
    return spec.contains("affinity") || spec.contains("topologySpreadConstraints");
  };
  EXPECT_FALSE(placed(workerOf("  strategy: AllReduce", "", 1))) << "nobody to be near to";
  EXPECT_FALSE(placed(workerOf("  ps: {template: {spec: {containers: [{command: [a]}]}}}")))
      << "workers of parameter servers";
  EXPECT_EQ(workerOf("  strategy: AllReduce", "affinity: {},")["affinity"], OrderedJson::object());
  EXPECT_FALSE(
      workerOf("  strategy: AllReduce", "affinity: {},").contains("topologySpreadConstraints"));
  EXPECT_FALSE(
      workerOf("  strategy: AllReduce", "topologySpreadConstraints: [],").contains("affinity"));
}

}  // namespace
}  // namespace trainyard::control
