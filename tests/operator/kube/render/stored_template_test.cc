// Templates of jobs that were recorded before the schema knew their shape.
#include <string>

#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

// `spec`: JSON of the pod's spec.
std::string problemOf(const std::string& spec) {
  constexpr char kText[] = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: own, namespace: team}
spec:
  strategy: AllReduce
  worker: {template: {spec: {containers: [{name: task, image: a, command: [b]}]}}}
)";
  auto job = parseJob(kText, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  job->mutable_spec()->mutable_worker()->set_template_("{\"spec\": " + spec + "}");
  return std::string(checkTemplates(*job).message());
}

TEST(StoredTemplateTest, OfAnotherShapeIsNamed) {
  EXPECT_EQ(problemOf(R"({"containers": 3})"),
            "spec.worker.template.spec.containers: expected a list");
  EXPECT_EQ(problemOf(R"({"volumes": {}, "containers": [{"name": "task", "command": ["b"]}]})"),
            "spec.worker.template.spec.volumes: expected a list");
  EXPECT_EQ(problemOf(R"({"terminationGracePeriodSeconds": "long",
                          "containers": [{"name": "task", "command": ["b"]}]})"),
            "spec.worker.template.spec.terminationGracePeriodSeconds: expected a whole number");
}

}  // namespace
}  // namespace trainyard::control
