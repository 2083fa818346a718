// What a pod's agent is told about the end of its program, and how many processes that has.
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/job/job.h"
#include "operator/kube/render/render.h"

namespace trainyard::control {
namespace {

using testing::Contains;
using testing::Each;
using testing::Not;
using testing::StartsWith;

// Of the first worker of a job with this of its `spec`, in flow style.
std::vector<std::string> agentWords(const std::string& spec) {
  const std::string text = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: fashion, namespace: team}}
spec: {{{}, training: {{model: {{name: mnist_cnn}}, batchSize: 10, steps: 10,
    data: {{format: synthetic, shape: [28, 28, 1], classes: 10, samples: 100}},
    optimizer: {{name: SGD, learningRate: 0.1}}}}}}
)",
                                       spec);
  const auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  const auto pod = renderPod(job.value_or(v1::TrainingJob()), {v1::ROLE_WORKER, 0}, 1,
                             {.agent_image = "agent:1", .runtime_image = "runtime:1"});
  EXPECT_TRUE(pod.ok()) << pod.status();
  if (!pod.ok()) return {};
  return pod->at("spec").at("containers").at(0).at("command").get<std::vector<std::string>>();
}

TEST(AgentWords, RestartPolicyNeverIsAmongThem) {
  EXPECT_THAT(agentWords("ps: {}, worker: {restartPolicy: Never}"), Contains("--no-restart"));
  EXPECT_THAT(agentWords("ps: {}, worker: {}"), Not(Contains("--no-restart")));
}

TEST(AgentWords, NameTheEndsThatAreTheJobsToJudge) {
  const std::string rules = "[{action: Ignore, onExitCodes: {operator: In, values: [1, 2, 137]}}]";
  EXPECT_THAT(
      agentWords("ps: {}, worker: {}, runPolicy: {podFailurePolicy: {rules: " + rules + "}}"),
      Contains("--final-exits=1-2,137"));
  EXPECT_THAT(agentWords("ps: {}, worker: {}"), Each(Not(StartsWith("--final-exits"))));
}

TEST(AgentWords, TellHowManyProcessesAWorkerHas) {
  EXPECT_THAT(agentWords("strategy: AllReduce, worker: {processesPerPod: 3}"),
              Contains("--processes=3"));
  EXPECT_THAT(agentWords("strategy: AllReduce, worker: {}"), Each(Not(StartsWith("--processes"))));
}

}  // namespace
}  // namespace trainyard::control
