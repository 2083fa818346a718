// How long the program of a pod has to end by itself: what its agent is told of it.
#include <string>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

StatusOr<nlohmann::ordered_json> podOfGrace(const std::string& grace) {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: own, namespace: team}}
spec:
  strategy: AllReduce
  worker: {{template: {{spec: {{{} containers: [{{name: task, image: a, command: [b]}}]}}}}}}
)",
                                       grace);
  TY_ASSIGN_OR_RETURN(const v1::TrainingJob job, parseJob(text, "job.yaml", {}, nullptr));
  return renderPod(job, {v1::ROLE_WORKER, 0}, 1,
                   {.agent_image = "agent:1", .runtime_image = "runtime:1"});
}

// The agent's flag; "" where it has none.
std::string stopGraceOf(const std::string& grace) {
  const auto pod = podOfGrace(grace);
  if (!pod.ok()) return std::string(pod.status().message());
  for (const auto& word : (*pod)["spec"]["containers"][0]["command"]) {
    const auto text = word.get<std::string>();
    if (text.starts_with("--stop-grace=")) return text;
  }
  return "";
}

TEST(StopGraceTest, IsThatOfThePodLessTheAgentsLastWords) {
  EXPECT_EQ(stopGraceOf(""), "--stop-grace=28") << "Kubernetes gives 30";
  EXPECT_EQ(stopGraceOf("terminationGracePeriodSeconds: 600,"), "--stop-grace=598");
  EXPECT_EQ(stopGraceOf("terminationGracePeriodSeconds: 9000000000,"), "--stop-grace=999999998")
      << "as much as the agent takes";
  EXPECT_EQ(stopGraceOf("terminationGracePeriodSeconds: 4,"), "--stop-grace=2");
  EXPECT_EQ(stopGraceOf("terminationGracePeriodSeconds: 1,"), "--stop-grace=0.5");
  EXPECT_EQ(stopGraceOf("terminationGracePeriodSeconds: 0,"), "--stop-grace=0");
}

TEST(StopGraceTest, OfAnotherShapeIsRefused) {
  EXPECT_EQ(stopGraceOf("terminationGracePeriodSeconds: long,"),
            "job.yaml:6: spec.worker.template.spec.terminationGracePeriodSeconds: expected a whole "
            "number, got text \"long\"");
}

}  // namespace
}  // namespace trainyard::control
