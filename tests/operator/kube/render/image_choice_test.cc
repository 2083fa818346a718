// Which image a task has that names none: the runtime's, or the one with LibTorch.
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/job/job.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kAsksForGpu[] =
    "template: {spec: {containers: [{name: task, resources: {limits: {nvidia.com/gpu: 1}}}]}}";
constexpr char kOwnImage[] = "template: {spec: {containers: [{name: task, image: own}]}}";

v1::TrainingJob jobWith(const std::string& model, const std::string& device,
                        const std::string& worker = "", const std::string& spec = "") {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: fashion, namespace: team}}
spec:
  ps: {{replicas: 1}}
  worker: {{{}}}
  {}
  training:
    model: {}
    device: {}
    data: {{format: synthetic, shape: [28, 28, 1], classes: 10, samples: 100}}
    batchSize: 10
    steps: 10
    optimizer: {{name: SGD, learningRate: 0.1}}
)",
                                       worker, spec, model, device);
  const auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(v1::TrainingJob());
}

const std::string kMlp = "{name: mlp, hidden: [8]}";
const std::string kModule = "{name: torchscript, path: /m.pt}";

const RenderOptions kBoth = {
    .agent_image = "agent:1", .runtime_image = "runtime:1", .runtime_torch_image = "torch:1"};
const RenderOptions kPlainOnly = {.agent_image = "agent:1", .runtime_image = "runtime:1"};

// "IMAGE", with " +agent" where an init container brings the agent.
std::string imageOf(const v1::TrainingJob& job, v1::Role role,
                    const RenderOptions& options = kBoth) {
  const auto pod = renderPod(job, {role, 0}, 1, options);
  if (!pod.ok()) return std::string(pod.status().message());
  const auto& spec = (*pod)["spec"];
  return spec["containers"][0]["image"].get<std::string>() +
         (spec.contains("initContainers") ? " +agent" : "");
}

TEST(ImageChoice, LibTorchIsForModulesAndForWorkersOnGpus) {
  EXPECT_EQ(imageOf(jobWith(kMlp, "Auto"), v1::ROLE_WORKER), "runtime:1");
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER})
    EXPECT_EQ(imageOf(jobWith(kModule, "CPU"), role), "torch:1") << role;
  EXPECT_EQ(imageOf(jobWith(kMlp, "GPU"), v1::ROLE_PS), "runtime:1");
  EXPECT_EQ(imageOf(jobWith(kMlp, "GPU"), v1::ROLE_WORKER), "torch:1");
  EXPECT_EQ(imageOf(jobWith(kMlp, "Auto", kAsksForGpu), v1::ROLE_PS), "runtime:1");
  EXPECT_EQ(imageOf(jobWith(kMlp, "Auto", kAsksForGpu), v1::ROLE_WORKER), "torch:1");
  EXPECT_EQ(imageOf(jobWith(kMlp, "CPU", kAsksForGpu), v1::ROLE_WORKER), "runtime:1");
}

// The program of the same name starts either runtime, as its surroundings are.
TEST(ImageChoice, TheAgentIsToldTheSame) {
  const auto pod = renderPod(jobWith(kModule, "Auto"), {v1::ROLE_PS, 0}, 1, kBoth);
  ASSERT_TRUE(pod.ok()) << pod.status();
  const auto& command = (*pod)["spec"]["containers"][0]["command"];
  EXPECT_EQ(command[0], "/usr/bin/trainyard-agent");
  EXPECT_EQ(command.back(), "--runtime=/usr/bin/trainyard-runtime");
}

TEST(ImageChoice, ImagesThatAreNamedWin) {
  EXPECT_EQ(imageOf(jobWith(kModule, "GPU", kOwnImage), v1::ROLE_WORKER), "own +agent");
  EXPECT_EQ(imageOf(jobWith(kModule, "GPU", "", "image: jobs"), v1::ROLE_WORKER), "jobs +agent");
  EXPECT_EQ(imageOf(jobWith(kMlp, "Auto", "", "image: 'torch:1'"), v1::ROLE_WORKER), "torch:1");
  v1::TrainingJob begun = jobWith(kModule, "Auto");
  begun.mutable_status()->mutable_images()->set_runtime("runtime:0");
  begun.mutable_status()->mutable_images()->set_runtime_torch("torch:0");
  EXPECT_EQ(imageOf(begun, v1::ROLE_WORKER), "torch:0");
}

TEST(ImageChoice, WithoutAnImageForItAJobIsRefused) {
  const std::string refusal =
      "spec.training.model: torchscript needs trainyard-runtime-torch (this operator has no image "
      "with it)";
  EXPECT_THAT(imageOf(jobWith(kModule, "Auto"), v1::ROLE_PS, kPlainOnly), StartsWith(refusal));
  EXPECT_THAT(std::string(checkImages(jobWith(kModule, "Auto"), kPlainOnly).message()),
              AllOf(StartsWith(refusal), HasSubstr("chart value runtimeTorch.image")));
  EXPECT_THAT(std::string(checkImages(jobWith(kMlp, "GPU"), kPlainOnly).message()),
              StartsWith("spec.training.device: GPU needs "));
  EXPECT_EQ(imageOf(jobWith(kMlp, "GPU"), v1::ROLE_PS, kPlainOnly), "runtime:1");
  EXPECT_EQ(imageOf(jobWith(kMlp, "Auto", kAsksForGpu), v1::ROLE_WORKER, kPlainOnly), "runtime:1");
  // Who has an image of his own has it in there, or is told by the agent.
  EXPECT_TRUE(checkImages(jobWith(kMlp, "GPU", kOwnImage), kPlainOnly).ok());
  EXPECT_TRUE(checkImages(jobWith(kModule, "Auto", "", "image: jobs"), kPlainOnly).ok());
  EXPECT_FALSE(checkImages(jobWith(kModule, "Auto", kOwnImage), kPlainOnly).ok()) << "ps has none";
  EXPECT_TRUE(checkImages(jobWith(kModule, "GPU"), kBoth).ok());
}

}  // namespace
}  // namespace trainyard::control
