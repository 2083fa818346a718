// Programs of the user's own tell how they get on, and everything that shows a job shows it.
#include <signal.h>

#include "fmt/format.h"
#include "tests/multiproc/metrics_page.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Ten steps of 64 examples a second until there is a file `go`; plain Python and no package. Each
// life begins at step 1000 x the number of those before it.
constexpr char kTells[] = R"(
import json, os, socket, sys, time
rank, folder = os.environ['RANK'], sys.argv[1]
lives = os.path.join(folder, 'lives-' + rank)
open(lives, 'a').write('x')
first = 1000 * (os.path.getsize(lives) - 1)
to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
to.connect(os.environ['TRAINYARD_REPORT'])
host, port = os.environ['TRAINYARD_RENDEZVOUS'].rsplit(':', 1)
if rank == '0': meeting = socket.create_server((host, int(port)))
print('secret', os.environ['TRAINYARD_SECRET'], flush=True)
print('told by', sorted(name for name in os.environ if 'TOKEN' in name), flush=True)
for text in (b'junk', b'x' * 50000, b'{"step": -1}'): to.send(text)
step = 0
while step < 3 or not os.path.exists(os.path.join(folder, 'go')):
    step += 1
    told = {'step': first + step, 'examples': 64 * step, 'accuracy': 0.5, 'mine': [1]}
    if rank == '0': told['loss'] = 0.25
    to.send(json.dumps(told).encode())
    time.sleep(0.1)
)";

class TellingTest : public RunTest {
 protected:
  static double stepOf(const JobRun& run, const std::string& task) {
    return metricOf(metricsPage(run, task), "trainyard_global_step");
  }
  // As the record has it, which is written every ten seconds.
  static nlohmann::json progressOf(const JobRun& run) {
    const nlohmann::json status = run.json("status.json");
    return status.is_object() ? status.at("status").value("progress", nlohmann::json::object())
                              : nlohmann::json::object();
  }
};

TEST_F(TellingTest, EverythingShowsWhatACommandTells) {
  const fs::path script = writeText("tells.py", kTells);
  JobRun run(folder("base"), "");
  const ProgramEnd started =
      program({"trainyard", "run", "-np", "2", "--detach", "--dir", run.dir().string(), "--",
               "python3", script.string(), root().string()});
  ASSERT_EQ(started.code, 0) << started.output;
  for (const char* task : {"worker-0", "worker-1"})
    EXPECT_TRUE(eventually([&] { return stepOf(run, task) >= 10; })) << task;

  const std::string page = metricsPage(run, "worker-0");
  EXPECT_GE(metricOf(page, "trainyard_worker_examples_total"), 64);
  EXPECT_GE(metricOf(page, "trainyard_worker_steps_total"), 1);
  EXPECT_EQ(metricOf(page, "trainyard_training_loss"), 0.25);
  EXPECT_EQ(metricOf(page, "trainyard_evaluation_accuracy"), 0.5);
  EXPECT_EQ(metricOf(page, "trainyard_task_refused_tellings_total"), 3);
  EXPECT_THAT(metricsPage(run, "worker-1"), Not(HasSubstr("trainyard_training_loss{")));

  const std::string top = program({"trainyard", "top", run.dir().string(), "--frames", "1"}).output;
  EXPECT_THAT(top, ContainsRegex("Running  step [0-9]+  [0-9,.]+ examples/s  loss 0.2500"));
  // The first record may be of worker-1 alone, whose program has told before that of worker-0.
  EXPECT_TRUE(eventually([&] { return progressOf(run).value("loss", "") == "0.25"; }));
  EXPECT_GT(progressOf(run).value("step", 0), 0);
  EXPECT_THAT(program({"trainyard", "get", run.dir().string()}).output,
              ContainsRegex("Running  [0-9]+ +2/2 +0/0  0.2500"));

  writeText("go", "");
  EXPECT_TRUE(eventually([&] { return run.json("result.json").is_object(); }));
  const nlohmann::json result = run.json("result.json");
  EXPECT_EQ(result.value("result", ""), "succeeded");
  EXPECT_GE(result.value("steps", 0), 10);
  EXPECT_EQ(result.value("loss", 0.0), 0.25);
  EXPECT_GT(result.value("examplesPerSecond", 0.0), 0) << result;
  EXPECT_LT(result.value("examplesPerSecond", 0.0), 1920)
      << "two of at most 640, and what it adds that a first report was read late";
  EXPECT_NE(progressOf(run).value("examplesPerSecond", ""), "");
  EXPECT_FALSE(fs::exists(run.taskDir("worker-0") / "tell.sock"));
  for (const char* task : {"worker-0", "worker-1"}) {
    const std::string log = run.taskLog(task);
    EXPECT_THAT(log, ContainsRegex("secret [0-9a-f]{64}\n"));
    EXPECT_THAT(log, HasSubstr("told by []\n")) << "the token is nobody's but ours";
    const std::size_t warned = log.find("told what is left out");
    EXPECT_NE(warned, std::string::npos);
    EXPECT_EQ(log.find("told what is left out", warned + 1), std::string::npos) << "once";
  }
}

TEST_F(TellingTest, AKilledProgramBeginsAnewAndItsCountersGoOn) {
  const fs::path script = writeText("tells.py", kTells);
  JobRun run(folder("base"), fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: tells}}
spec:
  strategy: AllReduce
  worker:
    replicas: 2
    restartPolicy: OnFailure
    template: {{spec: {{containers: [{{name: task, command: [python3, {}, {}]}}]}}}}
  runPolicy: {{successPolicy: AllWorkers}}
)",
                                         script.string(), root().string()));
  run.launch();
  ASSERT_TRUE(eventually([&] { return stepOf(run, "worker-1") >= 5; }));
  const double examples = metricOf(metricsPage(run, "worker-1"), "trainyard_worker_examples_total");
  ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-1"));
  EXPECT_TRUE(eventually([&] { return stepOf(run, "worker-1") > 1000; }));
  const std::string page = metricsPage(run, "worker-1");
  EXPECT_GT(metricOf(page, "trainyard_worker_examples_total"), examples);
  EXPECT_LT(metricOf(page, "trainyard_worker_steps_total"), 900) << "it has not taken these";
  EXPECT_LT(stepOf(run, "worker-0"), 1000);
  writeText("go", "");
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded steps=10"));
  EXPECT_THAT(end.lastLine(), HasSubstr(" loss=0.25"));
  EXPECT_THAT(end.output, ContainsRegex("step 10[0-9]+ .*loss 0.2500"));
}

TEST_F(TellingTest, ProcessesOfAWorkerAreOneWithALongPathToo) {
  const fs::path script = writeText("tells.py", kTells);
  // Too long for a socket in the task's folder.
  const fs::path base = folder(std::string(90, 'x'));
  JobRun run(base, fmt::format(R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: tells}}
spec:
  strategy: AllReduce
  worker:
    replicas: 1
    processesPerPod: 2
    template: {{spec: {{containers: [{{name: task, command: [python3, {}, {}]}}]}}}}
  runPolicy: {{successPolicy: AllWorkers}}
)",
                               script.string(), root().string()));
  writeText("go", "");
  const ProgramEnd end = run.launchAndWait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_THAT(end.lastLine(), StartsWith("result: succeeded steps=3 "));
  const nlohmann::json report = run.json("tasks/worker-0/report.json");
  EXPECT_EQ(report.value("examples", ""), "384") << "of both";
  EXPECT_EQ(report.at("told").value("step", ""), "3");
}

}  // namespace
}  // namespace trainyard
