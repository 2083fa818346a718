// Programs of the user's own, run as ps and workers: what they are told, who ends them, what counts
// as a failure, and that nobody is left.
#include <signal.h>

#include <fstream>

#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string source(const std::string& path) {
  const char* root = std::getenv("TRAINYARD_SOURCE");
  return fmt::format("{}/{}", root == nullptr ? "." : root, path);
}

class ForeignTest : public RunTest {
 protected:
  // A job of Python programs; `worker` and `ps` are what they do, after `import os, sys, time`.
  std::string pythonJob(int ps, int workers, const std::string& ps_code,
                        const std::string& worker_code, const std::string& more = "",
                        const std::string& policy = "") {
    return fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: own}}
spec:
  ps: {{replicas: {}, template: {}}}
  worker: {{replicas: {}, template: {}{}}}
  runPolicy: {{successPolicy: AllWorkers{}}}
)",
                       ps, templateOf("ps.py", ps_code), workers,
                       templateOf("worker.py", worker_code), more, policy);
  }
  std::string templateOf(const std::string& name, const std::string& code) {
    const fs::path script = writeText(name, "import os, signal, sys, time\n" + code);
    return fmt::format("{{spec: {{containers: [{{name: task, command: [python3, -u, {}]}}]}}}}",
                       script.string());
  }
  // Waits until the log of a task holds `text`.
  static Waited says(const JobRun& run, const std::string& task, const std::string& text) {
    return eventually([&] { return run.taskLog(task).find(text) != std::string::npos; },
                      std::chrono::seconds(120));
  }
  ProgramEnd verb(const std::string& name, const JobRun& run, std::vector<std::string> more = {}) {
    std::vector<std::string> argv = {"trainyard", name, run.dir().string()};
    argv.insert(argv.end(), more.begin(), more.end());
    return program(argv);
  }
};

constexpr char kServe[] = "print('serves', flush=True)\nwhile True: time.sleep(3600)\n";

TEST_F(ForeignTest, AParameterServerProgramOfPlainSocketsSucceeds) {
  std::string yaml = readFile(source("examples/foreign/sockets.yaml"), 1 << 20).value();
  const std::string script = "examples/foreign/sockets.py";
  // The working directory of the run is another one here, and so is the path of the script.
  fs::copy_file(source(script), folder("code") / "sockets.py");
  yaml.replace(yaml.find(script), script.size(), (folder("code") / "sockets.py").string());
  JobRun run(folder("sockets"), yaml);
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded seconds="));
  EXPECT_THAT(end.output,
              ContainsRegex("ps-0 and ps-1 run: python3 .*--ps_hosts=\\$\\(PS_HOSTS\\)"));
  for (const char* worker : {"worker-0", "worker-1"}) {
    EXPECT_THAT(run.taskLog(worker), HasSubstr("step 50 loss 0.00"));
  }
  for (const char* ps : {"ps-0", "ps-1"}) {
    EXPECT_THAT(run.taskLog(ps),
                AllOf(HasSubstr("serving on localhost:"), HasSubstr("signal 15: stops")));
  }
  const nlohmann::json status = run.json("status.json").at("status");
  EXPECT_EQ(status.at("ps").at("succeeded"), 2);
  EXPECT_EQ(status.value("restarts", -1), 0);
  // 51 gradients of 80,000 bytes from each of two workers: plain sockets have no framing.
  std::string last;
  std::ifstream traffic(run.dir() / "traffic.jsonl");
  for (std::string line; std::getline(traffic, line);) last = line;
  const auto sample = nlohmann::json::parse(last, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(sample.is_object()) << last;
  for (const auto& ps : sample.at("ps")) {
    const auto received = ps.at("receivedBytes").get<std::int64_t>();
    EXPECT_GE(received, 2 * 51 * 80'000) << last;
    EXPECT_LE(received, 2 * 51 * 80'000 + 2) << last;  // TCP counts the end of a connection too
  }
}

TEST_F(ForeignTest, ProgramsAreToldWhoBelongsToTheJob) {
  const std::string worker = R"(
for name in sorted(os.environ):
    if name.startswith(('TRAINYARD_', 'TF_', 'LD_', 'CUDA_', 'MY_', 'MASTER_')) or name in (
            'PS_HOSTS', 'WORKER_HOSTS', 'RANK', 'WORLD_SIZE', 'LOCAL_RANK'):
        print(name + '=' + os.environ[name])
print('args', sys.argv[1:], os.getcwd())
if os.environ['TRAINYARD_ROLE'] == 'ps':
    open('ps-has-told', 'w').close()
while not os.path.exists('ps-has-told'):  # it is stopped when the workers have succeeded
    time.sleep(0.01)
)";
  const fs::path script = writeText("told.py", "import os, sys, time\n" + worker);
  const std::string container = fmt::format(
      R"Y({{name: task, image: "x:1", command: [python3, -u, {}], args: ["$(RANK)", "$$(RANK)", "$(HOME)"],
          env: [{{name: MY_OWN, value: "seven"}}, {{name: LD_BIND_NOW, value: "1"}}], workingDir: {}}})Y",
      script.string(), folder("there").string());
  const std::string yaml = fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: told}}
spec:
  volumes: [{{name: my-data, mountPath: /data}}]
  ps: {{replicas: 1, template: {{spec: {{containers: [{0}]}}}}, restartPolicy: OnFailure}}
  worker: {{replicas: 2, template: {{spec: {{containers: [{0}], nodeSelector: {{a: b}}}}}}}}
  runPolicy: {{successPolicy: AllWorkers}}
)",
                                       container);
  JobRun run(folder("told"), yaml, {"--volume", "my-data=" + folder("data").string()});
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.output,
              HasSubstr("not used on one machine: spec.worker.template.spec.containers[0].image, "
                        "spec.worker.template.spec.nodeSelector"));
  const std::string log = run.taskLog("worker-1");
  for (const char* line :
       {"TRAINYARD_JOB=told\n", "TRAINYARD_ROLE=worker\n", "TRAINYARD_INDEX=1\n",
        "TRAINYARD_REVISION=1\n", "WORLD_SIZE=2\n", "\nRANK=1\n", "LOCAL_RANK=1\n",
        "MASTER_ADDR=localhost\n", "MY_OWN=seven\n", "LD_BIND_NOW=1\n", "CUDA_VISIBLE_DEVICES=1\n",
        "args ['1', '$(RANK)', '$(HOME)']"}) {
    EXPECT_THAT(log, HasSubstr(line));
  }
  EXPECT_THAT(log, HasSubstr("TRAINYARD_VOLUME_MY_DATA=" + folder("data").string() + "\n"));
  EXPECT_THAT(log, HasSubstr(folder("there").string() + "\n"));
  EXPECT_THAT(log, ContainsRegex("PS_HOSTS=localhost:[0-9]+\n"));
  EXPECT_THAT(log, ContainsRegex("WORKER_HOSTS=localhost:[0-9]+,localhost:[0-9]+\n"));
  EXPECT_THAT(log, HasSubstr(R"("task":{"type":"worker","index":1}})"));
  EXPECT_THAT(run.taskLog("ps-0"), HasSubstr("CUDA_VISIBLE_DEVICES=\n"));
}

TEST_F(ForeignTest, APsThatTakesNoHintIsKilledAndCountsAsSuccess) {
  const std::string deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()\n";
  JobRun run(folder("deaf"), pythonJob(1, 1, deaf + kServe, "time.sleep(0.5)\n"),
             {"--set", "runPolicy.stopSeconds=2"});
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded "));
  EXPECT_EQ(run.json("status.json").at("status").at("ps").at("succeeded"), 1);
  EXPECT_TRUE(processesWith(root().string()).empty());
}

TEST_F(ForeignTest, FailuresAreCountedByTheRestartPolicy) {
  // The first life fails, the second one does not.
  const std::string once = "if not os.path.exists('once'): open('once', 'w'); sys.exit(200)\n";
  JobRun mended(folder("mended"), pythonJob(1, 1, kServe, once));
  EXPECT_EQ(mended.launchAndWait().code, 0);
  EXPECT_EQ(mended.json("status.json").at("status").value("restarts", -1), 1);

  JobRun permanent(folder("permanent"),
                   pythonJob(1, 1, kServe, "print('no such data')\nsys.exit(3)\n"));
  const ProgramEnd end = permanent.launchAndWait();
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(),
              HasSubstr("reason=\"TaskFailed: worker-0: exit code 3: no such data\""));

  JobRun never(folder("never"), pythonJob(1, 1, kServe, "sys.exit(1)\n", ", restartPolicy: Never"));
  EXPECT_EQ(never.launchAndWait().code, 1);
  EXPECT_EQ(never.agent("worker-0").value("start", 0), 1);
}

// Killed and not counted, then counted although the code is permanent, then the end by a rule.
TEST_F(ForeignTest, WhatFollowsFromAFailureIsTheJobsToSay) {
  const std::string work = R"(
open('lives', 'a').write('x')
life = len(open('lives').read())
if life == 1: os.kill(os.getpid(), signal.SIGKILL)
if life == 2: sys.exit(3)
print('wrong configuration', flush=True)
sys.exit(78)
)";
  const std::string rules = R"([{action: Ignore, onExitCodes: {operator: In, values: [137]}},
      {action: Count, onExitCodes: {operator: In, values: [3]}},
      {action: FailJob, onExitCodes: {operator: NotIn, values: [1]}}])";
  JobRun run(folder("rules"),
             pythonJob(1, 1, kServe, work, "", ", podFailurePolicy: {rules: " + rules + "}"));
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(),
              HasSubstr("PodFailurePolicy: worker-0: exit code 78: wrong configuration; by "
                        "runPolicy.podFailurePolicy.rules[2]"));
  const nlohmann::json status = run.json("status.json").at("status");
  EXPECT_EQ(status.value("restarts", -1), 1);
  EXPECT_EQ(status.value("disruptions", -1), 1);
  EXPECT_EQ(run.agent("worker-0").value("created", 0), 3);
  EXPECT_EQ(run.agent("worker-0").value("start", 0), 1) << "its agent started none of them again";
}

TEST_F(ForeignTest, AnUnknownCommandIsNamed) {
  const ProgramEnd end =
      program({"trainyard", "run", "-np", "2", "--dir", folder("run").string(), "--", "nosuch"});
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), HasSubstr("start nosuch: No such file or directory"));
}

TEST_F(ForeignTest, ACommandIsRunManyTimes) {
  const fs::path script = writeText(
      "ranks.py", "import os\nprint('I am', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n");
  const std::vector<std::string> command = {"trainyard", "run",     "-np",
                                            "4",         "--dir",   folder("run").string(),
                                            "--",        "python3", script.string()};
  for (int again = 0; again < 2; ++again) {  // a finished one is run again
    const ProgramEnd end = program(command);
    EXPECT_EQ(end.code, 0) << end.output;
    EXPECT_THAT(end.output, HasSubstr("starting 'ranks' in "));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(end.output, HasSubstr(fmt::format("[worker-{0}] I am {0} of 4\n", rank)));
    }
  }
}

TEST_F(ForeignTest, AKilledAgentComesBackWhereItWas) {
  // The worker ends when its ps is lost, as a program does that cannot go on; with a code that its
  // agent starts it again for.
  const std::string serve = R"(
import socket
host, port = os.environ['PS_HOSTS'].rsplit(':', 1)
server = socket.create_server((host, int(port)))
print('serves at', port, flush=True)
peers = []
while True: peers.append(server.accept())
)";
  const std::string work = R"(
import socket
host, port = os.environ['PS_HOSTS'].rsplit(':', 1)
for _ in range(600):
    try: peer = socket.create_connection((host, int(port)))
    except OSError: time.sleep(0.1)
    else: break
print('connected', flush=True)
if os.path.exists('again'): sys.exit(0)
peer.recv(1)
open('again', 'w')
sys.exit(129)
)";
  JobRun run(folder("killed"), pythonJob(1, 1, serve, work));
  run.launch();
  ASSERT_TRUE(says(run, "worker-0", "connected"));
  const int port = run.agent("ps-0").value("taskPort", 0);
  const pid_t agent = run.agentPid("ps-0");
  ASSERT_GT(agent, 0);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 0);
  const nlohmann::json status = run.json("status.json").at("status");
  EXPECT_EQ(status.value("restarts", -1), 1) << "the ps";
  EXPECT_EQ(status.value("disruptions", -1), 0) << "the worker's end is counted with the ps";
  EXPECT_EQ(run.agent("ps-0").value("created", 0), 2);
  EXPECT_EQ(run.agent("ps-0").value("taskPort", 0), port);
}

// What a program is told at its start, and by a signal if it cares.
constexpr char kMembers[] = R"(
import json
def members(*_):
    with open(os.environ['TRAINYARD_MEMBERSHIP_FILE']) as file:
        print('file', len(json.load(file)['tasks']), flush=True)
signal.signal(signal.SIGHUP, members)
print('told', len(os.environ['WORKER_HOSTS'].split(',')), flush=True)
while not os.path.exists('go'): time.sleep(0.05)
)";

TEST_F(ForeignTest, ProgramsStartAgainWhenTheJobGrowsOrShrinks) {
  JobRun run(folder("grow"), pythonJob(1, 2, kMembers, kMembers));
  run.launch();
  for (const char* task : {"ps-0", "worker-0", "worker-1"}) ASSERT_TRUE(says(run, task, "told 2"));
  ASSERT_EQ(verb("scale", run, {"--workers", "3"}).code, 0);
  for (const char* task : {"ps-0", "worker-0", "worker-1", "worker-2"}) {
    EXPECT_TRUE(says(run, task, "told 3")) << task;
  }
  ASSERT_EQ(verb("scale", run, {"--workers", "1"}).code, 0);
  for (const char* task : {"ps-0", "worker-0"}) EXPECT_TRUE(says(run, task, "told 1")) << task;
  writeText("grow/go", "");
  EXPECT_EQ(run.wait().code, 0);
  const nlohmann::json status = run.json("status.json").at("status");
  EXPECT_EQ(status.value("restarts", -1), 0) << "these were asked for";
  EXPECT_EQ(status.value("disruptions", -1), 0);
  EXPECT_EQ(run.agent("worker-0").value("start", 0), 3);
}

TEST_F(ForeignTest, ProgramsThatCareThemselvesGoOnWhenTheJobGrows) {
  for (const std::string on_change : {"Signal", "Ignore"}) {
    const std::string name = on_change == "Signal" ? "hears" : "goes-on";
    JobRun run(folder(name),
               pythonJob(1, 1, kMembers, kMembers, ", onMembershipChange: " + on_change));
    run.launch();
    for (const char* task : {"ps-0", "worker-0"}) ASSERT_TRUE(says(run, task, "told 1"));
    ASSERT_EQ(verb("scale", run, {"--workers", "2"}).code, 0);
    EXPECT_TRUE(says(run, "worker-1", "told 2"));
    for (const char* task : {"ps-0", "worker-0"}) {
      EXPECT_TRUE(on_change == "Ignore" || says(run, task, "file 3")) << task;
      EXPECT_TRUE(eventually([&] {
        const fs::path file = run.dir() / "tasks" / task / "membership.json";
        const auto read = readFile(file, 1 << 20);
        return read.ok() && nlohmann::json::parse(*read).at("tasks").size() == 3;
      })) << task;
    }
    writeText(name + "/go", "");
    EXPECT_EQ(run.wait().code, 0);
    for (const char* task : {"ps-0", "worker-0"}) {
      EXPECT_EQ(run.agent(task).value("start", 0), 1) << on_change << " " << task;
      EXPECT_EQ(run.taskLog(task).find("file") != std::string::npos, on_change == "Signal") << task;
    }
  }
}

TEST_F(ForeignTest, SuspendedAndResumedProgramsStartAgain) {
  const std::string work =
      "print('life', flush=True)\n"
      "if os.path.exists('go'): sys.exit(0)\ntime.sleep(3600)\n";
  JobRun run(folder("job"), pythonJob(1, 2, kServe, work));
  run.launch();
  ASSERT_TRUE(says(run, "worker-1", "life"));
  EXPECT_EQ(verb("suspend", run).code, 0);
  const ProgramEnd suspended = run.wait();
  EXPECT_EQ(suspended.code, 0);
  EXPECT_THAT(suspended.lastLine(), StartsWith("result: suspended seconds="));
  EXPECT_THAT(suspended.output, Not(HasSubstr("checkpoint")));
  EXPECT_TRUE(processesWith(root().string()).empty());
  EXPECT_THAT(verb("describe", run).output, AllOf(HasSubstr("worker.py"), HasSubstr("Suspended")));
  EXPECT_THAT(verb("logs", run).output, HasSubstr("[worker-1] life"));

  writeText("job/go", "");
  EXPECT_EQ(verb("resume", run).code, 0);
  EXPECT_TRUE(eventually(
      [&] {
        const nlohmann::json result = run.json("result.json");
        return result.is_object() && result.value("result", "") == "succeeded";
      },
      std::chrono::seconds(120)));
  EXPECT_TRUE(
      eventually([&] { return processesWith(root().string()).empty(); }, std::chrono::seconds(30)));
  EXPECT_EQ(verb("delete", run, {"--yes"}).code, 0);
  EXPECT_FALSE(fs::exists(run.dir()));
}

TEST_F(ForeignTest, CtrlCAndAKilledLauncherLeaveNobody) {
  // In one write each: both write into one pipe.
  const std::string work =
      "if os.fork() == 0: os.setsid()\nos.write(1, b'here\\n')\ntime.sleep(3600)\n";
  JobRun run(folder("job"), pythonJob(1, 1, kServe, work));
  run.launch();
  ASSERT_TRUE(says(run, "worker-0", "here\nhere"));
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  EXPECT_EQ(run.wait().code, 130);
  EXPECT_TRUE(processesWith(root().string()).empty());

  run.launch();
  ASSERT_TRUE(eventually([&] { return run.runtimePid("worker-0") > 0; }));
  ASSERT_TRUE(run.launcher().signal(SIGKILL).ok());
  run.wait();
  EXPECT_TRUE(
      eventually([&] { return processesWith(root().string()).empty(); }, std::chrono::seconds(60)));
}

// Longer than the 10 s that a process of the runtime has: the job's own time counts.
TEST_F(ForeignTest, AProgramThatSavesForLongHasTheTimeOfStopSeconds) {
  const std::string work = R"(
def save(*_):
    time.sleep(12)
    print('saved', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print('works', flush=True)
while True: time.sleep(3600)
)";
  JobRun run(folder("job"), pythonJob(1, 1, kServe, work));
  run.launch();
  ASSERT_TRUE(says(run, "worker-0", "works"));
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 130);
  EXPECT_THAT(end.output, HasSubstr("stopping, 60 s at most"));
  EXPECT_THAT(run.taskLog("worker-0"), HasSubstr("saved"));
}

TEST_F(ForeignTest, AProgramThatDoesNotEndIsKilledAfterStopSeconds) {
  const std::string work = R"(
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('works', flush=True)
while True: time.sleep(3600)
)";
  JobRun run(folder("job"), pythonJob(1, 1, kServe, work), {"--set", "runPolicy.stopSeconds=1"});
  run.launch();
  ASSERT_TRUE(says(run, "worker-0", "works"));
  ASSERT_TRUE(run.launcher().signal(SIGINT).ok());
  EXPECT_EQ(run.wait().code, 130);
  EXPECT_THAT(run.taskLog("worker-0"), HasSubstr("did not end in time: kills it"));
}

TEST_F(ForeignTest, BadTemplatesAreRefusedInOneLine) {
  const auto refusal = [this](const std::string& worker) {
    const fs::path file = writeText("bad.yaml", fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: bad}}
spec:
  strategy: AllReduce
  worker: {}
)",
                                                            worker));
    const ProgramEnd end =
        program({"trainyard", "run", "-f", file.string(), "--dir", folder("bad").string()});
    EXPECT_EQ(end.code, 2);
    return end.output;
  };
  EXPECT_THAT(refusal("{replicas: 1}"),
              HasSubstr("spec.worker.template.spec.containers[0].command: missing"));
  const std::string open = "{template: {spec: {containers: [{name: a, command: [b], ";
  EXPECT_THAT(refusal(open + "args: [1]}]}}}"),
              HasSubstr("containers[0].args[0]: expected a text"));
  EXPECT_THAT(refusal(open + "env: [{name: RANK, value: '1'}]}]}}}"),
              HasSubstr("containers[0].env[0].name: RANK is set by Trainyard"));
  EXPECT_THAT(refusal(open + "env: [{name: A, value: 1}]}]}}}"),
              HasSubstr("containers[0].env[0].value: expected a text"));
  EXPECT_THAT(
      refusal("{onMembershipChange: Live, template: {spec: {containers: [{command: [b]}]}}}"),
      HasSubstr("spec.worker.onMembershipChange: Live of a program of your own"));
}

}  // namespace
}  // namespace trainyard
