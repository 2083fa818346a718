// What a job tells Kueue by its Workload, and reads of it.
#include "operator/kube/kueue/workload.h"

#include "gmock/gmock.h"
#include "operator/job/job.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;

constexpr UnixMillis kNow = 1'700'000'000'000;
constexpr char kNowText[] = "2023-11-14T22:13:20Z";

v1::TrainingJob queuedJob(const std::string& cpu = "500m") {
  const std::string text = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: own, namespace: team, labels: {kueue.x-k8s.io/queue-name: team-a}}
spec:
  ps: {replicas: 1, template: {spec: {containers: [{name: task, image: a, command: [b]}]}}}
  worker:
    replicas: 4
    template:
      spec:
        nodeSelector: {disk: ssd}
        priorityClassName: calm
        containers: [{name: task, image: a, command: [b], resources: {requests: {cpu: )" +
                           cpu + "}}}]\n";
  auto job = parseJob(text, "job.yaml", {}, nullptr);
  EXPECT_TRUE(job.ok()) << job.status();
  v1::TrainingJob queued = job.value_or(v1::TrainingJob());
  queued.mutable_metadata()->set_uid("0123456789abcdef");
  return queued;
}

QuotaClaim claimOf(int ps, int workers) {
  QuotaClaim claim;
  claim.ps = ps;
  claim.workers = claim.least_workers = workers;
  return claim;
}

Json rendered(const v1::TrainingJob& job, const QuotaClaim& claim,
              const PriorityClass& priority = {}) {
  const auto workload = renderWorkload(job, claim, priority,
                                       {.agent_image = "agent:1", .runtime_image = "runtime:1"});
  EXPECT_TRUE(workload.ok()) << workload.status();
  Json stored = workload.value_or(Json());
  stored["metadata"]["resourceVersion"] = "7";
  stored["metadata"]["generation"] = 3;
  return stored;
}

void set(Json& workload, const std::string& type, bool value, const std::string& reason = "Why",
         const std::string& message = "") {
  Json condition = {{"type", type},
                    {"status", value ? "True" : "False"},
                    {"reason", reason},
                    {"message", message},
                    {"lastTransitionTime", "2020-01-01T00:00:00Z"}};
  Json& conditions = workload["status"]["conditions"];
  for (Json& one : conditions) {
    if (one["type"] != type) continue;
    one = condition;
    return;
  }
  conditions.push_back(condition);
}

// As Kueue admits it.
void admit(Json& workload, int workers) {
  set(workload, "QuotaReserved", true);
  set(workload, "Admitted", true);
  workload["status"]["admission"] = Json::parse(R"({"clusterQueue": "all", "podSetAssignments": [
      {"name": "ps", "flavors": {"cpu": "training"}, "count": 1}, {"name": "worker"}]})");
  workload["status"]["admission"]["podSetAssignments"][1]["count"] = workers;
}

Json conditionOf(const Json& object, const std::string& type) {
  for (const Json& one : object["status"]["conditions"]) {
    if (one["type"] == type) return one;
  }
  return Json::object({{"status", "none"}});
}

TEST(WorkloadTest, AsksForEachRole) {
  QuotaClaim claim = claimOf(1, 4);
  claim.least_workers = 2;
  const Json workload = rendered(queuedJob(), claim);
  EXPECT_EQ(workload["apiVersion"], "kueue.x-k8s.io/v1beta1");
  EXPECT_EQ(workload["metadata"]["name"], "trainingjob-own-01234567");
  EXPECT_EQ(workload["metadata"]["ownerReferences"][0]["kind"], "TrainingJob");
  const Json& spec = workload["spec"];
  EXPECT_EQ(spec["queueName"], "team-a");
  ASSERT_EQ(spec["podSets"].size(), 2U);
  const Json &ps = spec["podSets"][0], &worker = spec["podSets"][1];
  EXPECT_EQ(ps["name"], "ps");
  EXPECT_EQ(ps["count"], 1);
  EXPECT_FALSE(ps.contains("minCount"));
  EXPECT_EQ(worker["name"], "worker");
  EXPECT_EQ(worker["count"], 4);
  EXPECT_EQ(worker["minCount"], 2);
  const Json& pod = worker["template"]["spec"];
  EXPECT_EQ(pod["nodeSelector"], Json::parse(R"({"disk": "ssd"})"));
  EXPECT_EQ(pod["containers"][0]["resources"]["requests"]["cpu"], "500m");
  EXPECT_FALSE(pod.contains("volumes")) << "nothing that Kueue does not read";
  EXPECT_FALSE(pod["containers"][0].contains("env"));
}

TEST(WorkloadTest, ARingHasNoServers) {
  const Json workload = rendered(queuedJob(), claimOf(0, 4));
  ASSERT_EQ(workload["spec"]["podSets"].size(), 1U);
  EXPECT_EQ(workload["spec"]["podSets"][0]["name"], "worker");
}

TEST(WorkloadTest, PriorityIsThatOfTheLabelElseOfThePods) {
  v1::TrainingJob job = queuedJob();
  EXPECT_EQ(priorityClassOf(job).name, "calm");
  EXPECT_FALSE(priorityClassOf(job).of_workloads);
  // What pods get whose template names none.
  auto* const policy = job.mutable_spec()->mutable_run_policy()->mutable_scheduling_policy();
  policy->set_priority_class("batch");
  EXPECT_EQ(priorityClassOf(job).name, "calm");
  EXPECT_NE(rendered(job, claimOf(1, 4))["metadata"]["annotations"],
            rendered(queuedJob(), claimOf(1, 4))["metadata"]["annotations"]);
  v1::TrainingJob plain = job;
  plain.mutable_spec()->mutable_worker()->clear_template_();
  EXPECT_EQ(priorityClassOf(plain).name, "batch");
  EXPECT_FALSE(priorityClassOf(plain).of_workloads);
  (*job.mutable_metadata()->mutable_labels())[std::string(kPriorityLabel)] = "urgent";
  EXPECT_EQ(priorityClassOf(job).name, "urgent");
  EXPECT_TRUE(priorityClassOf(job).of_workloads);
  const Json of_label = rendered(job, claimOf(1, 4), {"urgent", true, 100})["spec"];
  EXPECT_EQ(of_label["priority"], 100);
  EXPECT_EQ(of_label["priorityClassName"], "urgent");
  EXPECT_EQ(of_label["priorityClassSource"], "kueue.x-k8s.io/workloadpriorityclass");
  EXPECT_EQ(rendered(job, claimOf(1, 4), {"calm", false, 1})["spec"]["priorityClassSource"],
            "scheduling.k8s.io/priorityclass");
  EXPECT_FALSE(rendered(job, claimOf(1, 4))["spec"].contains("priority"));
}

TEST(WorkloadTest, WaitsUntilItIsAdmitted) {
  const v1::TrainingJob job = queuedJob();
  QuotaObservation seen = readWorkload(job, Json());
  EXPECT_EQ(seen.queue, "team-a");
  EXPECT_FALSE(seen.claim.has_value());
  Json workload = rendered(job, claimOf(1, 4));
  set(workload, "QuotaReserved", false, "Pending", "not enough");
  seen = readWorkload(job, workload);
  EXPECT_EQ(seen.claim, claimOf(1, 4));
  EXPECT_FALSE(seen.held || seen.granted || seen.withdrawn || seen.outdated);
  EXPECT_EQ(seen.message, "not enough");
  admit(workload, 4);
  set(workload, "Admitted", false, "NoChecks", "checks are open");
  seen = readWorkload(job, workload);
  EXPECT_TRUE(seen.held);
  EXPECT_FALSE(seen.granted);
  EXPECT_EQ(seen.message, "checks are open");
  admit(workload, 3);
  seen = readWorkload(job, workload);
  EXPECT_TRUE(seen.granted);
  EXPECT_EQ(seen.workers_granted, 3);
  EXPECT_EQ(seen.message, "");
}

TEST(WorkloadTest, ChangesOfTheTemplateAreSeen) {
  const Json workload = rendered(queuedJob("500m"), claimOf(1, 4));
  EXPECT_FALSE(readWorkload(queuedJob("500m"), workload).outdated);
  EXPECT_TRUE(readWorkload(queuedJob("700m"), workload).outdated);
  const Json patch = askPatch(workload, rendered(queuedJob("700m"), claimOf(1, 4)));
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "7");
  EXPECT_EQ(patch["spec"]["podSets"][1]["template"]["spec"]["containers"][0]["resources"]
                 ["requests"]["cpu"],
            "700m");
  EXPECT_TRUE(patch["spec"]["priority"].is_null()) << "a merge would keep the former one";
  EXPECT_TRUE(askPatch(workload, workload).is_null());
  EXPECT_EQ(
      askPatch(workload, rendered(queuedJob("500m"), claimOf(1, 5)))["spec"]["podSets"][1]["count"],
      5);
}

TEST(WorkloadTest, WhoIsEvictedIsToStopAndGivesItsQuotaBack) {
  const v1::TrainingJob job = queuedJob();
  Json workload = rendered(job, claimOf(1, 4));
  admit(workload, 4);
  set(workload, "PodsReady", true);
  set(workload, "Evicted", true, "Preempted", "others need it");
  const QuotaObservation seen = readWorkload(job, workload);
  EXPECT_TRUE(seen.granted && seen.withdrawn);
  EXPECT_EQ(seen.message, "others need it");
  const Json patch = giveBackPatch(workload, kNow);
  EXPECT_TRUE(patch["status"]["admission"].is_null());
  EXPECT_TRUE(patch["status"]["reclaimablePods"].is_null());
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "7");
  EXPECT_EQ(conditionOf(patch, "QuotaReserved")["status"], "False");
  EXPECT_EQ(conditionOf(patch, "QuotaReserved")["lastTransitionTime"], kNowText);
  EXPECT_EQ(conditionOf(patch, "QuotaReserved")["observedGeneration"], 3);
  EXPECT_EQ(conditionOf(patch, "Admitted")["status"], "False");
  EXPECT_EQ(conditionOf(patch, "PodsReady")["status"], "False");
  EXPECT_EQ(conditionOf(patch, "Requeued")["status"], "True");
  EXPECT_EQ(conditionOf(patch, "Evicted")["status"], "True") << "Kueue's own";
  workload.merge_patch(patch);
  const QuotaObservation after = readWorkload(job, workload);
  EXPECT_FALSE(after.held || after.granted || after.withdrawn);
  EXPECT_EQ(after.claim, claimOf(1, 4));
}

TEST(WorkloadTest, WhoWasDeactivatedIsNotQueuedAtOnce) {
  Json workload = rendered(queuedJob(), claimOf(1, 4));
  admit(workload, 4);
  set(workload, "Evicted", true, "Deactivated");
  EXPECT_EQ(conditionOf(giveBackPatch(workload, kNow), "Requeued")["status"], "False");
}

TEST(WorkloadTest, TellsWhatHasChangedAndNothingElse) {
  const v1::TrainingJob job = queuedJob();
  Json workload = rendered(job, claimOf(1, 4));
  admit(workload, 4);
  QuotaClaim claim = claimOf(1, 4);
  EXPECT_TRUE(claimPatch(workload, claim, kNow).is_null());
  claim.ready = true;
  Json patch = claimPatch(workload, claim, kNow);
  EXPECT_EQ(conditionOf(patch, "PodsReady")["status"], "True");
  EXPECT_EQ(conditionOf(patch, "Admitted")["lastTransitionTime"], "2020-01-01T00:00:00Z");
  EXPECT_FALSE(patch["status"].contains("reclaimablePods"));
  workload.merge_patch(patch);
  claim.workers_done = 3;
  patch = claimPatch(workload, claim, kNow);
  EXPECT_EQ(patch["status"],
            Json::parse(R"({"reclaimablePods": [{"name": "worker", "count": 3}]})"));
  workload.merge_patch(patch);
  EXPECT_EQ(readWorkload(job, workload).claim, claim);
  claim.end = QuotaEnd::kFailed;
  workload.merge_patch(claimPatch(workload, claim, kNow));
  EXPECT_EQ(conditionOf(workload, "Finished")["reason"], "Failed");
  const QuotaObservation ended = readWorkload(job, workload);
  EXPECT_EQ(ended.claim, claim);
  EXPECT_FALSE(ended.granted);
}

// Kueue gives a start and a recovery time limits of their own.
TEST(WorkloadTest, TasksThatWereReadyBeforeRecover) {
  Json workload = rendered(queuedJob(), claimOf(1, 4));
  admit(workload, 4);
  QuotaClaim claim = claimOf(1, 4);
  const auto reason = [&](bool ready) {
    claim.ready = ready;
    workload.merge_patch(claimPatch(workload, claim, kNow));
    return conditionOf(workload, "PodsReady")["reason"];
  };
  EXPECT_EQ(reason(true), "Started");
  EXPECT_EQ(reason(false), "WaitForRecovery");
  EXPECT_EQ(reason(true), "Recovered");
  set(workload, "Evicted", true, "Preempted");
  workload.merge_patch(giveBackPatch(workload, kNow));
  EXPECT_EQ(conditionOf(workload, "PodsReady")["reason"], "WaitForStart");
}

TEST(WorkloadTest, WhatTheCacheKeepsIsReadAsBefore) {
  const v1::TrainingJob job = queuedJob();
  Json workload = rendered(job, claimOf(1, 4));
  admit(workload, 2);
  Json kept = workload;
  trimWorkload(kept);
  EXPECT_LT(kept.dump().size(), workload.dump().size());
  EXPECT_EQ(readWorkload(job, kept).claim, readWorkload(job, workload).claim);
  EXPECT_EQ(readWorkload(job, kept).workers_granted, 2);
  EXPECT_FALSE(readWorkload(job, kept).outdated);
}

}  // namespace
}  // namespace trainyard::control
