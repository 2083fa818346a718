#include "tests/operator/local/local_run.h"

#include <signal.h>

#include <cstdlib>

#include "base/process/files.h"
#include "base/process/poll.h"
#include "gtest/gtest.h"

namespace trainyard::control {

namespace fs = std::filesystem;

LocalRun::LocalRun() {
  std::string name = testing::TempDir() + "local_run_XXXXXX";
  paths_.dir = ::mkdtemp(name.data());
  v1::TrainingJob job;
  job.set_api_version("trainyard.dev/v1alpha1");
  job.set_kind("TrainingJob");
  job.mutable_metadata()->set_name("stub");
  job.mutable_metadata()->set_namespace_("default");
  job.mutable_metadata()->set_uid("0123456789abcdef");
  job.mutable_metadata()->set_generation(1);
  job.mutable_spec()->mutable_ps()->set_replicas(1);
  job.mutable_spec()->mutable_worker()->set_replicas(2);
  job.mutable_spec()->mutable_training()->mutable_model()->set_name("mlp");
  EXPECT_TRUE(RunRecord(paths_).writeSpec(job).ok());
  EXPECT_TRUE(writeFileAtomically(paths_.token(), std::string(64, 'a') + "\n", 0600).ok());
}

LocalRun::~LocalRun() {
  close();
  fs::remove_all(paths_.dir);
}

void LocalRun::open(Duration grace, TaskPlaces places) {
  LocalClusterOptions options;
  options.dir = paths_.dir.string();
  options.agent_path = std::string(std::getenv("TRAINYARD_BIN")) + "/stub-agent";
  options.runtime_path = "/bin/false";
  options.stop_grace = grace;
  options.places = std::move(places);
  auto opened = LocalCluster::open(std::move(options), systemClock());
  ASSERT_TRUE(opened.ok()) << opened.status();
  cluster_ = *std::move(opened);
}

void LocalRun::command(const TaskKey& task, const std::string& command) {
  ASSERT_TRUE(writeFileAtomically(paths_.task(task) / "stub.command", command + "\n").ok());
}

int LocalRun::pidOf(const TaskKey& task) {
  int pid = 0;
  eventually([&] {
    const auto agent = readAgentFile(paths_.agent(task));
    if (agent.ok()) pid = agent->pid;
    return pid > 0;
  });
  return pid;
}

bool LocalRun::eventually(const std::function<bool()>& predicate) {
  const TimePoint deadline = systemClock().now() + std::chrono::seconds(10);
  while (!predicate()) {
    if (systemClock().now() >= deadline) return predicate();
    pollUntil({}, systemClock().now() + std::chrono::milliseconds(5));
  }
  return true;
}

bool LocalRun::lives(int pid) {
  return pid <= 0 || ::kill(pid, 0) == 0;
}

}  // namespace trainyard::control
