#include "cli/jobs/job_text.h"

#include <algorithm>

#include "base/core/rfc3339.h"
#include "base/core/units.h"
#include "base/json/proto_json.h"
#include "cli/live/text.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

constexpr char kNone[] = "-";
constexpr int kGap = 2;

// Columns as wide as their widest cell, the last one unpadded; each line after `indent` blanks.
std::string aligned(const std::vector<Row>& rows, int indent = 0) {
  std::vector<int> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], textWidth(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line(indent, ' ');
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i + 1 < row.size() ? padRight(row[i], widths[i] + kGap) : row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string orNone(const std::string& text) {
  return text.empty() ? kNone : text;
}
std::string measure(const std::optional<double>& value) {
  return value ? formatMeasure(*value) : kNone;
}
std::string process(pid_t pid) {
  return pid > 0 ? std::to_string(pid) : kNone;
}

std::string stepText(const JobView& job) {
  // Nobody counts its steps, unless its programs tell them.
  if (!job.job.spec().has_training() && !job.job.status().has_progress()) return kNone;
  return job.steps > 0 ? fmt::format("{}/{}", job.step, job.steps) : std::to_string(job.step);
}

// "2/2": how many are ready, of how many there should be.
std::string readyText(const JobView& job, const v1::RoleStatus& role, int replicas) {
  return fmt::format("{}/{}", job.attended() ? role.ready() : 0, replicas);
}

UnixMillis created(const JobView& job) {
  return parseRfc3339(job.job.metadata().creation_timestamp());
}

Row jobRow(const JobView& job, bool wide, UnixMillis now) {
  const v1::JobSpec& spec = job.job.spec();
  const v1::JobStatus& status = job.job.status();
  Row row = {job.name,
             job.state,
             stepText(job),
             readyText(job, status.worker(), spec.worker().replicas()),
             readyText(job, status.ps(), spec.ps().replicas()),
             measure(job.loss),
             measure(job.accuracy),
             job.examples_per_second ? formatRate(*job.examples_per_second) : kNone,
             formatAge(created(job), now)};
  if (!wide) return row;
  row.push_back(std::to_string(status.restarts()));
  row.push_back(job.checkpoint_step ? std::to_string(*job.checkpoint_step) : kNone);
  if (job.inCluster()) {
    row.push_back(spec.strategy());
  } else {
    row.push_back(process(job.launcher.value_or(0)));
    row.push_back(job.dir.string());
  }
  row.push_back(orNone(failureOf(job.job)));
  return row;
}

void addPlace(const JobView& job, std::vector<Row>* rows) {
  if (job.inCluster()) {
    const v1::Images& images = job.job.status().images();
    if (!images.runtime().empty()) rows->push_back({"Image:", images.runtime()});
    if (!images.runtime_torch().empty())
      rows->push_back({"Image with LibTorch:", images.runtime_torch()});
    if (!images.agent().empty()) rows->push_back({"Agent image:", images.agent()});
    return;
  }
  const std::string pid =
      job.launcher ? fmt::format("process {}", process(*job.launcher)) : std::string("none");
  rows->push_back({"Launcher:", pid});
}

std::string headText(const JobView& job, UnixMillis now) {
  std::vector<Row> rows = {{"Name:", job.job.metadata().name()}};
  rows.push_back(job.inCluster() ? Row{"Namespace:", job.ns} : Row{"Directory:", job.dir.string()});
  rows.push_back({"State:", job.state});
  if (const std::string why = failureOf(job.job); !why.empty()) rows.push_back({"Reason:", why});
  addPlace(job, &rows);
  const std::string& at = job.job.metadata().creation_timestamp();
  rows.push_back({"Created:", fmt::format("{} ({} ago)", at, formatAge(created(job), now))});
  return aligned(rows);
}

std::string progressText(const JobView& job) {
  const v1::JobStatus& status = job.job.status();
  std::vector<Row> rows = {{"step", stepText(job)}};
  if (job.checkpoint_step) rows.push_back({"checkpoint", std::to_string(*job.checkpoint_step)});
  if (job.loss) rows.push_back({"loss", formatMeasure(*job.loss)});
  if (job.accuracy) rows.push_back({"accuracy", formatMeasure(*job.accuracy)});
  if (job.examples_per_second) {
    rows.push_back({"examples/s", formatRate(*job.examples_per_second)});
  }
  if (job.skipped) rows.push_back({"skipped", std::to_string(*job.skipped)});
  if (job.spread) rows.push_back({"spread", std::to_string(*job.spread)});
  if (job.partial) rows.push_back({"partial", std::to_string(*job.partial)});
  if (status.restarts() > 0) rows.push_back({"restarts", std::to_string(status.restarts())});
  if (status.disruptions() > 0) {
    rows.push_back({"disruptions", std::to_string(status.disruptions())});
  }
  if (status.lost_steps() > 0) rows.push_back({"lost steps", std::to_string(status.lost_steps())});
  return "Progress:\n" + aligned(rows, 2);
}

std::string conditionsText(const v1::JobStatus& status, UnixMillis now) {
  std::vector<Row> rows = {{"TYPE", "STATUS", "AGE", "REASON", "MESSAGE"}};
  for (const v1::Condition& condition : status.conditions()) {
    rows.push_back({condition.type(), condition.status(),
                    formatAge(parseRfc3339(condition.last_transition_time()), now),
                    condition.reason(), condition.message()});
  }
  return "Conditions:" + (rows.size() == 1 ? std::string("  none\n") : "\n" + aligned(rows, 2));
}

std::string podsText(const JobDetails& details, UnixMillis now) {
  if (!details.tasks_hidden.empty()) return "Tasks:  " + details.tasks_hidden + "\n";
  std::vector<Row> rows = {{"NAME", "STATE", "POD", "NODE", "LIFE", "RESTARTS", "AGE"}};
  for (const TaskView& task : details.tasks) {
    rows.push_back({task.name, task.state, orNone(task.pod), orNone(task.node),
                    std::to_string(task.created), std::to_string(task.restarts),
                    formatAge(parseRfc3339(task.since), now)});
  }
  return "Tasks:\n" + aligned(rows, 2);
}

// What the operator knows of it; the files are in the job's volume.
std::string checkpointText(const v1::JobStatus& status, UnixMillis now) {
  if (!status.has_checkpoint()) return "Checkpoints:  none\n";
  const v1::CheckpointStatus& newest = status.checkpoint();
  return "Checkpoints:\n" +
         aligned({{"STEP", "DURABLE", "AGE"},
                  {std::to_string(newest.step()), newest.durable() ? "yes" : "no",
                   formatAge(parseRfc3339(newest.time()), now)}},
                 2);
}

std::string tasksText(const std::vector<TaskView>& tasks) {
  std::vector<Row> rows = {
      {"NAME", "STATE", "PROCESS", "AGENT", "LIFE", "START", "RESTARTS", "METRICS"}};
  for (const TaskView& task : tasks) {
    const std::string port =
        task.metrics_port > 0 ? fmt::format("127.0.0.1:{}", task.metrics_port) : kNone;
    rows.push_back({task.name, task.state, process(task.process), process(task.agent),
                    std::to_string(task.created), std::to_string(task.starts),
                    std::to_string(task.restarts), port});
  }
  return "Tasks:\n" + aligned(rows, 2);
}

std::string checkpointsText(const JobDetails& details, UnixMillis now) {
  std::vector<Row> rows = {{"STEP", "EPOCH", "FILES", "SIZE", "AGE"}};
  for (const runtime::Manifest& manifest : details.checkpoints) {
    std::uint64_t bytes = 0;
    for (const runtime::ShardFileInfo& file : manifest.files) bytes += file.size;
    rows.push_back({std::to_string(manifest.step), std::to_string(manifest.epoch),
                    std::to_string(manifest.files.size()), formatBytes(static_cast<double>(bytes)),
                    formatAge(manifest.unix_ms, now)});
  }
  std::string text =
      "Checkpoints:" + (rows.size() == 1 ? std::string("  none\n") : "\n" + aligned(rows, 2));
  for (const std::string& problem : details.problems) text += "  unreadable: " + problem + "\n";
  return text;
}

std::string eventsText(const JobDetails& details, UnixMillis now, std::size_t max) {
  if (!details.events_hidden.empty()) return "Events:  " + details.events_hidden + "\n";
  const std::vector<EventRecord>& events = details.events;
  std::vector<Row> rows = {{"AGE", "TYPE", "REASON", "MESSAGE"}};
  const std::size_t first = events.size() > max ? events.size() - max : 0;
  for (std::size_t i = first; i < events.size(); ++i) {
    const EventRecord& event = events[i];
    rows.push_back(
        {formatAge(parseRfc3339(event.time), now), event.type, event.reason, event.message});
  }
  if (rows.size() == 1) return "Events:  none\n";
  const std::string left_out = first > 0 ? fmt::format("  ({} earlier ones)", first) : "";
  return "Events:" + left_out + "\n" + aligned(rows, 2);
}

}  // namespace

std::string formatAge(UnixMillis then, UnixMillis now) {
  if (then <= 0 || now < then) return kNone;
  const std::int64_t seconds = (now - then) / 1000;
  const std::int64_t minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
  const auto two = [](std::int64_t whole, char unit, std::int64_t rest, char rest_unit) {
    return rest == 0 ? fmt::format("{}{}", whole, unit)
                     : fmt::format("{}{}{}{}", whole, unit, rest, rest_unit);
  };
  if (seconds < 120) return fmt::format("{}s", seconds);
  if (minutes < 10) return two(minutes, 'm', seconds % 60, 's');
  if (minutes < 180) return fmt::format("{}m", minutes);
  if (hours < 8) return two(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return fmt::format("{}h", hours);
  if (days < 8) return two(days, 'd', hours % 24, 'h');
  return fmt::format("{}d", days);
}

std::string jobsTable(const std::vector<JobView>& jobs, bool wide, UnixMillis now,
                      bool namespaces) {
  std::vector<Row> rows = {
      {"NAME", "STATE", "STEP", "WORKERS", "PS", "LOSS", "ACCURACY", "EXAMPLES/S", "AGE"}};
  const bool in_cluster = !jobs.empty() && jobs.front().inCluster();
  if (wide && in_cluster) {
    rows[0].insert(rows[0].end(), {"RESTARTS", "CHECKPOINT", "STRATEGY", "REASON"});
  } else if (wide) {
    rows[0].insert(rows[0].end(), {"RESTARTS", "CHECKPOINT", "LAUNCHER", "DIRECTORY", "REASON"});
  }
  for (const JobView& job : jobs) rows.push_back(jobRow(job, wide, now));
  if (namespaces) {
    rows[0].insert(rows[0].begin(), "NAMESPACE");
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      rows[i + 1].insert(rows[i + 1].begin(), orNone(jobs[i].ns));
    }
  }
  return aligned(rows);
}

Json jobJson(const JobView& job) {
  if (job.inCluster()) {
    Json json = job.object;
    json["metadata"].erase("managedFields");
    return json;
  }
  v1::TrainingJob shown = job.job;
  v1::JobStatus& status = *shown.mutable_status();
  status.set_state(job.state);
  v1::ProgressStatus& progress = *status.mutable_progress();
  progress.set_step(job.step);
  if (job.steps > 0) progress.set_steps(job.steps);
  progress.clear_eta_seconds();
  progress.clear_examples_per_second();
  if (job.loss) progress.set_loss(fmt::format("{:.4g}", *job.loss));
  if (job.accuracy) progress.set_accuracy(fmt::format("{:.4f}", *job.accuracy));
  if (job.examples_per_second) {
    progress.set_examples_per_second(fmt::format("{:.0f}", *job.examples_per_second));
  }
  Json json = toJson(shown);
  json["run"]["directory"] = job.dir.string();
  json["run"]["launcher"] = job.launcher ? Json(*job.launcher) : Json();
  if (job.skipped) json["run"]["skipped"] = *job.skipped;
  if (job.spread) json["run"]["spread"] = *job.spread;
  if (job.partial) json["run"]["partial"] = *job.partial;
  return json;
}

std::string describeText(const JobDetails& details,
                         const std::vector<std::pair<std::string, std::string>>& facts,
                         UnixMillis now, std::size_t max_events) {
  std::vector<Row> spec;
  for (const auto& [name, value] : facts) spec.push_back({name, value});
  const JobView& view = details.view;
  const std::string tasks = view.inCluster() ? podsText(details, now) : tasksText(details.tasks);
  const std::string checkpoints =
      view.inCluster() ? checkpointText(view.job.status(), now) : checkpointsText(details, now);
  return headText(view, now) + "Spec:\n" + aligned(spec, 2) + progressText(view) + tasks +
         checkpoints + conditionsText(view.job.status(), now) +
         eventsText(details, now, max_events);
}

}  // namespace trainyard::cli
