#include "cli/app.h"

#include <sstream>

#include "base/core/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;

struct Answer {
  int code;
  std::string out, err;
};

Answer run(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const Console console{out, err};
  const int code = runApp(arguments, console);
  return {code, out.str(), err.str()};
}

TEST(AppTest, UnknownVerbIsAnsweredWithTheNearest) {
  const Answer answer = run({"pln", "-f", "x"});
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_THAT(answer.err, HasSubstr("there is no command \"pln\"; did you mean \"plan\"?"));
  EXPECT_EQ(answer.out, "");
  EXPECT_EQ(run({"frobnicate"}).err.find("did you mean"), std::string::npos);
}

TEST(AppTest, HelpIsNoFailure) {
  const Answer answer = run({"--help"});
  EXPECT_EQ(answer.code, kExitOk);
  for (const char* verb : {"run", "get", "describe", "logs", "suspend", "resume", "delete", "plan",
                           "validate", "checkpoint", "doctor", "version"}) {
    EXPECT_THAT(answer.out, HasSubstr(verb));
  }
  EXPECT_EQ(answer.out.find("launch "), std::string::npos) << "not for users";
  EXPECT_THAT(run({"run", "--help"}).out, HasSubstr("--volume"));
  EXPECT_EQ(run({}).code, kExitUsage);
}

TEST(AppTest, WrongFlagsAreUsage) {
  EXPECT_EQ(run({"run"}).code, kExitUsage);
  EXPECT_EQ(run({"run", "-f", "x", "--set", "noequals"}).code, kExitUsage);
  EXPECT_EQ(run({"version", "-o", "xml"}).code, kExitUsage);
  EXPECT_EQ(run({"--wrong"}).code, kExitUsage);
}

TEST(AppTest, ACommandForAClusterIsShownAsAJob) {
  const Answer answer = run({"submit", "-np", "16", "--image", "registry/x:1", "--gpus", "1", "-n",
                             "lab", "--dry-run", "--", "python3", "train.py", "-np", "3"});
  EXPECT_EQ(answer.code, kExitOk) << answer.err;
  EXPECT_EQ(answer.out, R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata:
  name: train
  namespace: lab
spec:
  strategy: AllReduce
  worker:
    replicas: 16
    restartPolicy: Never
    template:
      spec:
        containers:
          - name: task
            image: "registry/x:1"
            command:
              - python3
              - train.py
              - "-np"
              - "3"
            resources:
              limits:
                nvidia.com/gpu: "1"
  runPolicy:
    successPolicy: AllWorkers
)");
}

TEST(AppTest, CommandsAreRefusedWithWhatIsMissing) {
  const auto refusal = [](const std::vector<std::string>& arguments) {
    const Answer answer = run(arguments);
    EXPECT_EQ(answer.code, kExitUsage);
    return answer.err;
  };
  EXPECT_THAT(refusal({"submit"}), HasSubstr("--file"));
  EXPECT_THAT(refusal({"submit", "-np", "2", "--", "a"}), HasSubstr("--image"));
  EXPECT_THAT(refusal({"submit", "--np", "2", "--image", "x"}), HasSubstr("needs a command"));
  EXPECT_THAT(refusal({"submit", "-f", "x", "--", "a"}), HasSubstr("-np N -- before it"));
  EXPECT_THAT(refusal({"submit", "-np", "2", "-f", "x", "--image", "x", "--", "a"}),
              HasSubstr("--file"));
  EXPECT_THAT(refusal({"submit", "-np", "2", "--image", "x", "--name", "No Name", "--", "a"}),
              HasSubstr("metadata.name"));
  EXPECT_THAT(refusal({"run", "-np", "2", "--horovod", "--", "./train.py"}),
              HasSubstr("--horovod: ./train.py is no Python program"));
  EXPECT_THAT(refusal({"run", "--horovod", "-f", "x"}), HasSubstr("--np"));
}

TEST(AppTest, Version) {
  EXPECT_THAT(run({"version"}).out, HasSubstr("trainyard 0."));
  const auto json = nlohmann::json::parse(run({"version", "-o", "json"}).out);
  EXPECT_FALSE(json["version"].get<std::string>().empty());
}

TEST(AppTest, AMissingFileIsNamed) {
  const Answer answer = run({"run", "-f", "nowhere/job.yaml"});
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_THAT(answer.err, HasSubstr("nowhere/job.yaml"));
  EXPECT_EQ(answer.out, "");
}

}  // namespace
}  // namespace trainyard::cli
