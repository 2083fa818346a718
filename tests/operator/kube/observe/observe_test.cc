#include "operator/kube/observe/observe.h"

#include <string>

#include "base/core/exit_code.h"
#include "base/core/rfc3339.h"
#include "gtest/gtest.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

Json podWith(const std::string& status, const std::string& more_metadata = "") {
  return Json::parse(R"({"metadata": {"name": "fashion-worker-2", "labels": {
      "trainyard.dev/role": "worker", "trainyard.dev/index": "2", "trainyard.dev/created": "3"},
      "annotations": {"trainyard.dev/task-container": "main"})" +
                     more_metadata + R"(}, "status": )" + status + "}");
}

// The state of the task's container, beside a sidecar that lives on.
std::string container(const std::string& state, bool ready = false) {
  return R"({"phase": "Running", "podIP": "10.1.2.3", "containerStatuses": [
      {"name": "sidecar", "ready": true, "state": {"running": {}}},
      {"name": "main", "ready": )" +
         std::string(ready ? "true" : "false") + R"(, "state": )" + state + "}]}";
}

// Of the pod as it is cached.
TaskObservation seen(Json pod) {
  trimPod(pod);
  const auto task = observePod(pod);
  EXPECT_TRUE(task.has_value());
  return task.value_or(TaskObservation{});
}

TEST(TrimPod, LeavesWhatIsRead) {
  Json pod = Json::parse(R"({
    "metadata": {"name": "p", "managedFields": [{}], "creationTimestamp": "t", "labels": {"a": "b"},
      "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1",
        "trainyard.dev/task-container": "task", "trainyard.dev/other": "3",
        "controller.kubernetes.io/pod-deletion-cost": "2"},
      "ownerReferences": [{"uid": "u", "controller": true, "name": "job"}], "finalizers": ["f"]},
    "spec": {"nodeName": "n", "volumes": [{}], "containers": [{"name": "task", "env": []}]},
    "status": {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.0.0.2",
      "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}],
      "containerStatuses": [{"name": "task", "ready": true, "state": {"running": {}}, "imageID": "i",
        "lastState": {}, "restartCount": 0, "image": "train:1"}]}})");
  trimPod(pod);
  EXPECT_EQ(pod, Json::parse(R"({
    "metadata": {"name": "p", "labels": {"a": "b"},
      "annotations": {"trainyard.dev/task-container": "task",
        "controller.kubernetes.io/pod-deletion-cost": "2"},
      "ownerReferences": [{"uid": "u", "controller": true}], "finalizers": ["f"]},
    "spec": {"nodeName": "n"},
    "status": {"phase": "Running", "podIP": "10.0.0.1",
      "conditions": [{"type": "Ready", "status": "True"}],
      "containerStatuses": [{"name": "task", "ready": true, "state": {"running": {}},
        "image": "train:1"}]}})"));
  for (const char* text :
       {"{}", "{\"metadata\": 1, \"spec\": 2}",
        "{\"metadata\": {\"annotations\": null, \"ownerReferences\": [1]}, \"status\": "
        "{\"conditions\": 1, \"containerStatuses\": [null]}}"}) {
    Json odd = Json::parse(text);
    trimPod(odd);
    EXPECT_EQ(odd, Json::parse(text));
  }
}

TEST(ObservePod, WithoutOurLabelsIsNoTask) {
  EXPECT_FALSE(observePod(Json::parse(R"({"metadata": {"name": "x"}})")));
  EXPECT_FALSE(observePod(Json()));
}

TEST(ObservePod, TellsWhoItIs) {
  const TaskObservation task = seen(podWith(container(R"({"running": {}})", true)));
  EXPECT_EQ(toString(task.key), "worker-2");
  EXPECT_EQ(task.created, 3u);
  EXPECT_EQ(task.phase, TaskPhase::kRunning);
  EXPECT_TRUE(task.ready);
  EXPECT_EQ(task.ip, "10.1.2.3");
  EXPECT_FALSE(task.terminating);
  EXPECT_FALSE(task.held);
}

TEST(ObservePod, ReadyIsTheTasksContainerAlone) {
  EXPECT_FALSE(seen(podWith(container(R"({"running": {}})", false))).ready);
}

TEST(ObservePod, TheTasksContainerDecidesThoughASidecarLivesOn) {
  const TaskObservation done = seen(podWith(container(R"({"terminated": {"exitCode": 0}})")));
  EXPECT_EQ(done.phase, TaskPhase::kSucceeded);
  EXPECT_FALSE(done.ready);
  const TaskObservation failed = seen(podWith(container(
      R"({"terminated": {"exitCode": 3, "reason": "Error", "message":
          "{\"level\": \"error\", \"message\": \"data.images: no such file\"}\n"}})")));
  EXPECT_EQ(failed.phase, TaskPhase::kFailed);
  EXPECT_EQ(failed.exit->code, 3);
  EXPECT_EQ(failed.exit->cause, "exit code 3: data.images: no such file");
  EXPECT_FALSE(failed.disrupted);
}

TEST(ObservePod, AnEndedTaskLingersWhileAnotherContainerRuns) {
  EXPECT_TRUE(seen(podWith(container(R"({"terminated": {"exitCode": 0}})"))).lingers);
  EXPECT_TRUE(seen(podWith(container(R"({"terminated": {"exitCode": 3}})"))).lingers);
  EXPECT_FALSE(seen(podWith(container(R"({"running": {}})"))).lingers) << "it works";
  EXPECT_FALSE(seen(podWith(R"({"phase": "Succeeded", "containerStatuses": [
      {"name": "sidecar", "state": {"terminated": {"exitCode": 0}}},
      {"name": "main", "state": {"terminated": {"exitCode": 0}}}]})"))
                   .lingers)
      << "nothing runs any more";
}

TEST(ObservePod, CodesAbove128AreSignals) {
  const TaskObservation killed =
      seen(podWith(container(R"({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})")));
  EXPECT_EQ(killed.exit->code, 0);
  EXPECT_EQ(killed.exit->signal, 9);
  EXPECT_EQ(killed.exit->cause, "killed by signal 9 (Killed): OOMKilled");
  const TaskObservation own =
      seen(podWith(container(R"({"terminated": {"exitCode": 255, "message": "bye\n\n"}})")));
  EXPECT_EQ(own.exit->code, 255);
  EXPECT_EQ(own.exit->cause, "exit code 255: bye");
}

TEST(ObservePod, SaysWhenItEnded) {
  const TaskObservation task = seen(podWith(
      container(R"({"terminated": {"exitCode": 1, "finishedAt": "2023-11-14T22:13:20Z"}})")));
  EXPECT_EQ(task.exit->at, 1'700'000'000'000);
  EXPECT_EQ(seen(podWith(container(R"({"terminated": {"exitCode": 1}})"))).exit->at, 0);
  const TaskObservation garbled =
      seen(podWith(container(R"({"terminated": {"exitCode": 1, "finishedAt": "14 Nov"}})")));
  EXPECT_EQ(garbled.exit->at, 0) << "the end counts, whenever it was";
  EXPECT_EQ(garbled.exit->code, 1);
}

TEST(ObservePod, KeepsTheCoordinatorsLastWord) {
  const TaskObservation task = seen(podWith(container(R"({"terminated": {"exitCode": 4, "message":
      "{\"jobProgress\":{\"step\":\"200\",\"accuracy\":0.9,\"failure\":\"diverged\",\"newer\":1}}\n"}})")));
  ASSERT_TRUE(task.last_word.has_value());
  EXPECT_EQ(task.last_word->step(), 200);
  EXPECT_DOUBLE_EQ(task.last_word->accuracy(), 0.9);
  EXPECT_EQ(task.exit->cause, "exit code 4: diverged");
  EXPECT_FALSE(seen(podWith(container(R"({"terminated": {"exitCode": 0, "message": "{"}})")))
                   .last_word.has_value());
}

TEST(ObservePod, EndedFromOutsideIsDisrupted) {
  const TaskObservation evicted = seen(
      podWith(R"({"phase": "Failed", "reason": "Evicted", "message": "node is out of memory"})"));
  EXPECT_EQ(evicted.phase, TaskPhase::kFailed);
  EXPECT_TRUE(evicted.disrupted);
  EXPECT_EQ(evicted.exit->cause, "Evicted: node is out of memory");
  EXPECT_TRUE(seen(podWith(R"({"phase": "Failed", "reason": "OutOfcpu"})")).disrupted);
  EXPECT_TRUE(seen(podWith(R"({"phase": "Failed", "conditions": [
      {"type": "DisruptionTarget", "status": "True"}], "containerStatuses": [
      {"name": "main", "state": {"terminated": {"exitCode": 143}}}]})"))
                  .disrupted);
  EXPECT_TRUE(seen(podWith(container(
                       R"({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}})")))
                  .disrupted);
  EXPECT_FALSE(seen(podWith(R"({"phase": "Failed"})")).disrupted);
}

TEST(ObservePod, TellsTheConditionsOfWhatFailsOrIsDeleted) {
  const auto with = [](const std::string& phase) {
    return podWith(R"({"phase": ")" + phase + R"(", "conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}, {"type": "Ready", "status": "False"}]})");
  };
  const std::vector<PodCondition> both = {{"DisruptionTarget", "True"}, {"Ready", "False"}};
  EXPECT_EQ(seen(with("Failed")).conditions, both);
  EXPECT_TRUE(seen(with("Running")).conditions.empty());
  Json going = with("Running");
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  EXPECT_EQ(seen(going).conditions, both);
}

TEST(ObservePod, AFailedInitContainerSaysWhy) {
  const TaskObservation task = seen(podWith(R"({"phase": "Failed", "initContainerStatuses": [
      {"name": "fetch", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}]})"));
  EXPECT_EQ(task.exit->code, kExitAgentFailure) << "not the program's own word";
  EXPECT_EQ(task.exit->cause, "init container fetch: exit code 2");
}

TEST(ObservePod, TellsWhatItWaitsFor) {
  const TaskObservation unschedulable = seen(podWith(R"({"phase": "Pending", "conditions": [
      {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]})"));
  EXPECT_EQ(unschedulable.phase, TaskPhase::kPending);
  EXPECT_EQ(unschedulable.waiting->reason, "Unschedulable");
  EXPECT_EQ(unschedulable.waiting->message, "0/1");
  const TaskObservation pulling = seen(
      podWith(container(R"({"waiting": {"reason": "ErrImagePull", "message": "not found"}})")));
  EXPECT_EQ(pulling.waiting->reason, "ImagePullBackOff");
  EXPECT_FALSE(seen(podWith(container(R"({"waiting": {"reason": "ContainerCreating"}})")))
                   .waiting.has_value());
  const TaskObservation init = seen(podWith(R"({"phase": "Pending", "initContainerStatuses": [
      {"name": "a", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}]})"));
  EXPECT_EQ(init.waiting->reason, "CreateContainerConfigError");
}

TEST(ObservePod, ATerminatingPodIsNotReady) {
  const TaskObservation task = seen(podWith(container(R"({"running": {}})", true),
                                            R"(, "deletionTimestamp": "2026-01-01T00:00:00Z",
                      "finalizers": ["trainyard.dev/result"])"));
  EXPECT_TRUE(task.terminating);
  EXPECT_EQ(task.end_due, parseRfc3339("2026-01-01T00:00:00Z"));
  ASSERT_TRUE(task.waiting.has_value());
  EXPECT_EQ(task.waiting->reason, "Terminating");
  EXPECT_TRUE(task.held);
  EXPECT_FALSE(task.ready);
}

TEST(ReadJob, PassesOverWhatANewerSchemaHas) {
  const auto job = readJob(Json::parse(R"({
      "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
      "metadata": {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "7", "generation": 2,
                   "managedFields": [{"manager": "kubectl"}], "ownerReferences": []},
      "spec": {"worker": {"replicas": 2, "novelty": 1, "template": {"spec": {"novelty": 2}}}},
      "status": {"conditions": [{"type": "Created", "status": "True", "novelty": 3}]}})"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->metadata().resource_version(), "7");
  EXPECT_EQ(job->spec().worker().replicas(), 2);
  EXPECT_EQ(job->spec().worker().template_(), R"({"spec":{"novelty":2}})");
  EXPECT_EQ(job->status().conditions(0).type(), "Created");
  EXPECT_FALSE(readJob(Json::parse(R"({"spec": {"worker": {"replicas": "x"}}})")).ok());
}

TEST(MergePatch, MakesOneIntoTheOther) {
  const Json before = Json::parse(R"({"a": 1, "b": {"c": 2, "d": 3}, "e": [1], "f": 1})");
  const Json after = Json::parse(R"({"a": 1, "b": {"c": 4}, "e": [1, 2], "g": 5})");
  const Json patch = mergePatch(before, after);
  EXPECT_EQ(patch, Json::parse(R"({"b": {"c": 4, "d": null}, "e": [1, 2], "f": null, "g": 5})"));
  Json result = before;
  result.merge_patch(patch);
  EXPECT_EQ(result, after);
  EXPECT_EQ(mergePatch(after, after), Json::object());
}

TEST(StatusPatch, IsConditionalAndEmptyWhenNothingChanged) {
  v1::TrainingJob job;
  job.mutable_metadata()->set_resource_version("9");
  job.mutable_status()->set_state("Created");
  EXPECT_EQ(statusPatch(job, job.status()), Json::object());
  v1::JobStatus next = job.status();
  next.set_state("Running");
  EXPECT_EQ(
      statusPatch(job, next),
      Json::parse(R"({"metadata": {"resourceVersion": "9"}, "status": {"state": "Running"}})"));
}

TEST(ControllerUid, IsThatOfTheController) {
  EXPECT_EQ(controllerUid(Json::parse(R"({"metadata": {"ownerReferences": [
      {"uid": "a"}, {"uid": "b", "controller": true}]}})")),
            "b");
  EXPECT_EQ(controllerUid(Json()), "");
}

}  // namespace
}  // namespace trainyard::control
