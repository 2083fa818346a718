// Jobs whose pods are placed together: the group, and what of a pod says that it belongs to it.
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/job/job.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using OrderedJson = nlohmann::ordered_json;

v1::TrainingJob gangJob(const std::string& policy, const std::string& worker = "replicas: 3",
                        const std::string& pod = "", const std::string& ps = "replicas: 2") {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: own, namespace: team}}
spec:
  runPolicy: {{{}}}
  ps: {{{}, template: {{spec: {{containers: [{{name: task, image: a, command: [b]}}]}}}}}}
  worker: {{{}, template: {{spec: {{{} containers: [{{name: task, image: a, command: [b]}}]}}}}}}
)",
                                       policy, ps, worker, pod);
  const auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(v1::TrainingJob());
}

OrderedJson gangPod(const v1::TrainingJob& job, std::optional<GangOptions> gang) {
  RenderOptions options{.agent_image = "agent:1", .runtime_image = "runtime:1"};
  options.gang = std::move(gang);
  const auto rendered = renderPod(job, {v1::ROLE_WORKER, 0}, 1, options);
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return rendered.value_or(OrderedJson());
}

const GangOptions kWithPlugin{GangScheduler::kCoscheduling, "gangs"};
const GangOptions kWithVolcano{GangScheduler::kVolcano, "volcano"};

TEST(PodGroupTest, HoldsAllTasksWithoutWhichTheJobDoesNotTrain) {
  EXPECT_EQ(gangMembers(gangJob("schedulingPolicy: {}")), 5);
  EXPECT_EQ(gangMembers(gangJob("schedulingPolicy: {}", "replicas: 3, minReplicas: 1")), 3);
  EXPECT_EQ(gangMembers(
                gangJob("schedulingPolicy: {}", "replicas: 3", "", "replicas: 2, minReplicas: 1")),
            4);
  EXPECT_EQ(gangMembers(gangJob("schedulingPolicy: {}", "replicas: 3, minReplicas: 1", "",
                                "replicas: 2, minReplicas: 1")),
            2);
  EXPECT_EQ(gangMembers(gangJob("schedulingPolicy: {minAvailable: 2}")), 2);
  EXPECT_EQ(gangMembers(gangJob("schedulingPolicy: {minAvailable: 9}")), 5)
      << "more than there are would never be placed";
}

TEST(PodGroupTest, ForCoscheduling) {
  const OrderedJson group =
      renderPodGroup(gangJob("schedulingPolicy: {queue: q, scheduleTimeoutSeconds: 30}"),
                     GangScheduler::kCoscheduling);
  EXPECT_EQ(group["apiVersion"], "scheduling.x-k8s.io/v1alpha1");
  EXPECT_EQ(group["kind"], "PodGroup");
  EXPECT_EQ(group["metadata"]["name"], "own");
  EXPECT_EQ(group["metadata"]["namespace"], "team");
  EXPECT_EQ(group["metadata"]["ownerReferences"][0]["kind"], "TrainingJob");
  EXPECT_EQ(group["spec"], OrderedJson::parse(R"({"minMember": 5, "scheduleTimeoutSeconds": 30})"));
}

TEST(PodGroupTest, ForVolcano) {
  const OrderedJson group = renderPodGroup(
      gangJob("schedulingPolicy: {queue: q, priorityClass: high, scheduleTimeoutSeconds: 30}"),
      GangScheduler::kVolcano);
  EXPECT_EQ(group["apiVersion"], "scheduling.volcano.sh/v1beta1");
  EXPECT_EQ(group["spec"],
            OrderedJson::parse(R"({"minMember": 5, "queue": "q", "priorityClassName": "high"})"));
}

TEST(PodGroupTest, APodBelongsToItsGroup) {
  const v1::TrainingJob job = gangJob("schedulingPolicy: {priorityClass: high}");
  const OrderedJson plugin = gangPod(job, kWithPlugin);
  EXPECT_EQ(plugin["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "own");
  EXPECT_EQ(plugin["spec"]["schedulerName"], "gangs");
  EXPECT_EQ(plugin["spec"]["priorityClassName"], "high");
  const OrderedJson volcano = gangPod(job, kWithVolcano);
  EXPECT_EQ(volcano["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "own");
  EXPECT_FALSE(volcano["metadata"]["labels"].contains("scheduling.x-k8s.io/pod-group"));
  EXPECT_EQ(volcano["spec"]["schedulerName"], "volcano");
}

TEST(PodGroupTest, OthersBelongToNone) {
  for (const OrderedJson& pod :
       {gangPod(gangJob(""), kWithPlugin), gangPod(gangJob(""), kWithVolcano),
        gangPod(gangJob(""), std::nullopt)}) {
    EXPECT_FALSE(pod["metadata"]["labels"].contains("scheduling.x-k8s.io/pod-group"));
    EXPECT_FALSE(pod["metadata"]["annotations"].contains("scheduling.k8s.io/group-name"));
    EXPECT_FALSE(pod["spec"].contains("schedulerName"));
    EXPECT_FALSE(pod["spec"].contains("priorityClassName"));
  }
}

TEST(PodGroupTest, TheTemplateNamesItsOwnSchedulerAndPriority) {
  const OrderedJson pod = gangPod(gangJob("schedulingPolicy: {priorityClass: high}", "replicas: 3",
                                          "schedulerName: mine, priorityClassName: low,"),
                                  kWithPlugin);
  EXPECT_EQ(pod["spec"]["schedulerName"], "mine");
  EXPECT_EQ(pod["spec"]["priorityClassName"], "low");
}

}  // namespace
}  // namespace trainyard::control
