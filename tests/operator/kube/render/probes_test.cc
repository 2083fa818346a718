// How the kubelet learns that a task is ready.
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson containerWith(const std::string& more) {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: own, namespace: team}}
spec:
  strategy: AllReduce
  network: {{metricsPort: 9231}}
  worker: {{template: {{spec: {{containers: [{{name: task, image: a, command: [b]{}}}]}}}}}}
)",
                                       more);
  const auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  const auto pod = renderPod(*job, {v1::ROLE_WORKER, 0}, 1,
                             {.agent_image = "agent:1", .runtime_image = "runtime:1"});
  EXPECT_TRUE(pod.ok()) << pod.status();
  return (*pod)["spec"]["containers"][0];
}

TEST(ProbesTest, TheAgentIsAskedAtOnceUntilItIsReadyAndRarelyThen) {
  const OrderedJson task = containerWith("");
  const OrderedJson& ready = task["readinessProbe"];
  const OrderedJson& start = task["startupProbe"];
  EXPECT_EQ(ready["httpGet"], OrderedJson({{"path", "/readyz?wait"}, {"port", 9231}}));
  EXPECT_EQ(start["httpGet"], ready["httpGet"]);
  EXPECT_EQ(start["periodSeconds"], 1);
  EXPECT_EQ(ready["periodSeconds"], 10);
  EXPECT_GT(start["failureThreshold"], 1'000'000'000) << "a start is never given up";
}

TEST(ProbesTest, WhoBringsOneForReadinessWaitsForNoOther) {
  const OrderedJson task = containerWith(", readinessProbe: {exec: {command: [y]}}");
  EXPECT_TRUE(task["readinessProbe"].contains("exec"));
  EXPECT_FALSE(task.contains("startupProbe"));
}

TEST(ProbesTest, OneOfTheirsForTheStartStays) {
  const OrderedJson task = containerWith(", startupProbe: {exec: {command: [y]}}");
  EXPECT_TRUE(task["startupProbe"].contains("exec"));
  EXPECT_TRUE(task["readinessProbe"].contains("httpGet"));
}

}  // namespace
}  // namespace trainyard::control
