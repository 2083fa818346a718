#include "cli/kube/cluster_view.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/core/rfc3339.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "operator/cluster/task_keys.h"
#include "operator/kube/observe/observe.h"
#include "operator/kube/render/names.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::json;
using control::TaskKey;
using control::TaskObservation;
using control::TaskPhase;

std::string endText(const control::TaskExit& exit) {
  return exit.signal != 0 ? fmt::format("Exited (signal {})", exit.signal)
                          : fmt::format("Exited (code {})", exit.code);
}

std::string podState(const TaskObservation& pod) {
  if (pod.disrupted) return "Disrupted";
  if (pod.exit) return endText(*pod.exit);
  if (pod.terminating) return "Terminating";
  if (pod.ready) return "Ready";
  if (pod.phase == TaskPhase::kRunning) return "Running";
  return pod.waiting ? fmt::format("Waiting ({})", pod.waiting->reason) : "Waiting";
}

std::string timeOfEvent(const Json& event) {
  for (const char* name : {"lastTimestamp", "eventTime", "firstTimestamp"}) {
    std::string text = textAt(event, name);
    if (text.empty()) continue;
    // Some have microseconds, which nobody reads here.
    const std::size_t point = text.find('.');
    return point == std::string::npos ? text : text.substr(0, point) + "Z";
  }
  return textAt(member(event, "metadata"), "creationTimestamp");
}

}  // namespace

std::string clusterState(const v1::TrainingJob& job) {
  if (job.metadata().has_deletion_timestamp()) return "Terminating";
  const std::string& state = job.status().state();
  if (state.empty()) return "Pending";
  if (state == "Suspended") return job.spec().run_policy().suspend() ? state : "Starting";
  // All else is as with a launcher that is there.
  return shownState(job, true);
}

StatusOr<JobView> clusterView(Json object) {
  JobView view;
  TY_ASSIGN_OR_RETURN(view.job, control::readJob(object));
  view.object = std::move(object);
  view.name = view.job.metadata().name();
  view.ns = view.job.metadata().namespace_();
  if (view.ns.empty()) return invalidInput("metadata.namespace", "missing");
  view.state = clusterState(view.job);
  takeProgress(&view);
  const v1::JobStatus& status = view.job.status();
  if (status.has_checkpoint()) view.checkpoint_step = status.checkpoint().step();
  // A job at rest goes on from there.
  if (view.state == "Suspended") view.step = view.checkpoint_step.value_or(view.step);
  const bool moves = view.state == "Running" || view.state == "Succeeded";
  if (!moves) view.examples_per_second.reset();
  return view;
}

std::vector<TaskView> podTasks(const JobView& job, const std::vector<Json>& pods) {
  std::map<TaskKey, TaskView> tasks;
  for (const TaskKey& key : control::wantedTasks(job.job)) {
    tasks.emplace(key, recordedTask(key, job.job.status()));
  }
  for (const Json& pod : pods) {
    const auto seen = control::observePod(pod);
    if (!seen || control::controllerUid(pod) != job.job.metadata().uid()) continue;
    TaskView task = recordedTask(seen->key, job.job.status());
    task.state = podState(*seen);
    task.created = seen->created;
    task.pod = textAt(member(pod, "metadata"), "name");
    task.node = textAt(member(pod, "spec"), "nodeName");
    task.since = textAt(member(pod, "metadata"), "creationTimestamp");
    tasks.insert_or_assign(seen->key, std::move(task));
  }
  std::vector<TaskView> sorted;
  for (auto& [key, task] : tasks) sorted.push_back(std::move(task));
  return sorted;
}

std::vector<EventRecord> clusterEvents(const std::vector<Json>& events) {
  std::vector<EventRecord> records;
  for (const Json& event : events) {
    EventRecord record{timeOfEvent(event), textAt(event, "type"), textAt(event, "reason"),
                       textAt(event, "message")};
    const Json& count = member(event, "count");
    if (count.is_number_integer() && count.get<std::int64_t>() > 1) {
      record.message = fmt::format("(x{}) {}", count.get<std::int64_t>(), record.message);
    }
    records.push_back(std::move(record));
  }
  std::stable_sort(records.begin(), records.end(), [](const EventRecord& a, const EventRecord& b) {
    return parseRfc3339(a.time) < parseRfc3339(b.time);
  });
  return records;
}

}  // namespace trainyard::cli
