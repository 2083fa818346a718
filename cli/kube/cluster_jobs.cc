#include "cli/kube/cluster_jobs.h"

#include <utility>
#include <vector>

#include "cli/closest_word.h"
#include "cli/jobs/patience.h"
#include "cli/kube/cluster_view.h"
#include "cli/kube/connect.h"
#include "cli/kube/pod_logs.h"
#include "cli/top/collect_pages.h"
#include "fmt/format.h"
#include "operator/cluster/task_keys.h"
#include "operator/cluster/volume_claims.h"
#include "operator/kube/render/names.h"

namespace trainyard::cli {
namespace {

using control::kTrainingJobs;
using control::KubeClient;
using Json = nlohmann::json;

constexpr Duration kMetricsPatience = std::chrono::seconds(5);
constexpr Duration kLook = std::chrono::milliseconds(500);
const Json::json_pointer kUid("/metadata/uid");

Status beingDeleted(const JobView& job) {
  return absl::FailedPreconditionError(fmt::format("'{}' is being deleted", job.name));
}

// With the job.
std::string whatGoesWith(const v1::JobSpec& spec) {
  bool claims = false;
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER}) {
    claims |=
        control::claimsGoWithTheJob(spec, role) && !control::claimTemplates(spec, role).empty();
  }
  return claims ? "its pods and volume claims of its tasks; what is in its other volumes stays"
                : "its pods; what is in its volumes stays";
}

// One object, by its uid: another of the same name is not meant.
class ClusterControl : public JobControl {
 public:
  ClusterControl(KubeClient& client, std::string server, const JobView& job)
      : client_(client),
        server_(std::move(server)),
        ns_(job.ns),
        name_(job.name),
        uid_(job.job.metadata().uid()) {}

  std::string shown() const override { return fmt::format("'{}'", name_); }
  StatusOr<JobView> read() override;
  Status setSuspend(bool suspend) override {
    Json patch;
    patch["metadata"]["uid"] = uid_;
    patch["spec"]["runPolicy"]["suspend"] = suspend;
    return explained(client_.patchMerge(kTrainingJobs, ns_, name_, patch).status());
  }
  StatusOr<bool> suspendAtRest() override { return false; }  // an operator looks after all of them
  StatusOr<std::int64_t> setReplicas(const Replicas& replicas) override;
  Duration look() const override { return kLook; }

 private:
  Status explained(const Status& status) const { return explain(status, server_); }

  KubeClient& client_;
  const std::string server_;
  const std::string ns_;
  const std::string name_;
  const std::string uid_;
};

StatusOr<JobView> ClusterControl::read() {
  auto object = client_.get(kTrainingJobs, ns_, name_);
  if (!object.ok()) return explained(object.status());
  TY_ASSIGN_OR_RETURN(JobView job, clusterView(*std::move(object)));
  if (job.job.metadata().uid() == uid_) return job;
  return absl::NotFoundError(fmt::format("'{}' is another job by now", name_));
}

// The workers' number has a subresource, which more people may be allowed to write; parameter
// servers, and both at once, are a change of the job itself.
StatusOr<std::int64_t> ClusterControl::setReplicas(const Replicas& replicas) {
  Json patch;
  patch["metadata"]["uid"] = uid_;
  if (replicas.ps) patch["spec"]["ps"]["replicas"] = *replicas.ps;
  if (replicas.ps && replicas.workers) patch["spec"]["worker"]["replicas"] = *replicas.workers;
  if (!replicas.ps) patch["spec"]["replicas"] = replicas.workers.value_or(0);
  const auto scaled = replicas.ps ? client_.patchMerge(kTrainingJobs, ns_, name_, patch)
                                  : client_.patchMerge(kTrainingJobs, ns_, name_, patch, "scale");
  TY_RETURN_IF_ERROR(explained(scaled.status()));
  TY_ASSIGN_OR_RETURN(const JobView job, read());
  return job.job.metadata().generation();
}

class ClusterJobs : public JobSource {
 public:
  ClusterJobs(std::shared_ptr<KubeClient> client, const Clock& clock, ClusterJobsOptions options)
      : kept_(std::move(client)), client_(*kept_), clock_(clock), options_(std::move(options)) {}

  std::string place() const override {
    return options_.all_namespaces ? "any namespace" : "namespace " + options_.ns;
  }
  StatusOr<JobList> list() override;
  StatusOr<JobView> read(const std::string& job) override;
  StatusOr<JobDetails> describe(const std::string& job) override;
  StatusOr<std::string> suspend(const std::string& job, const Waiting& waiting) override {
    TY_ASSIGN_OR_RETURN(ClusterControl found, find(job));
    return suspendJob(found, waiting, clock_);
  }
  StatusOr<Resumed> resume(const std::string& job, const Waiting& waiting) override;
  StatusOr<std::string> scale(const std::string& job, const Replicas& replicas,
                              const Waiting& waiting) override {
    TY_ASSIGN_OR_RETURN(ClusterControl found, find(job));
    return scaleJob(found, replicas, waiting, clock_);
  }
  StatusOr<Doomed> toRemove(const std::string& job) override;
  StatusOr<std::string> remove(const Doomed& doomed, const RemoveOptions& options) override;
  Status logs(const JobView& job, const LogRequest& request, const LogPrinter& print) override {
    return explained(readPodLogs(client_, clock_, job, request, print));
  }
  StatusOr<TaskPages> metrics(const JobView& job) override;

 private:
  Status explained(const Status& status) const { return explain(status, options_.server); }
  StatusOr<ClusterControl> find(const std::string& job) {
    TY_ASSIGN_OR_RETURN(const JobView view, read(job));
    return ClusterControl(client_, options_.server, view);
  }
  Status unknown(const std::string& job);

  const std::shared_ptr<KubeClient> kept_;
  KubeClient& client_;
  const Clock& clock_;
  const ClusterJobsOptions options_;
};

StatusOr<JobList> ClusterJobs::list() {
  control::ListQuery query;
  if (!options_.all_namespaces) query.ns = options_.ns;
  auto page = client_.list(kTrainingJobs, query);
  if (!page.ok()) return explained(page.status());
  JobList list;
  for (Json& object : page->items) {
    const std::string name = object.value(Json::json_pointer("/metadata/name"), std::string());
    auto job = clusterView(std::move(object));
    if (job.ok()) {
      list.jobs.push_back(*std::move(job));
    } else {
      list.problems.push_back(annotate(job.status(), name));
    }
  }
  return list;
}

Status ClusterJobs::unknown(const std::string& job) {
  std::vector<std::string> names;
  const auto there = list();  // only for the hint
  if (there.ok()) {
    for (const JobView& view : there->jobs) names.push_back(view.name);
  }
  const std::string near = closestWord(job, names);
  return absl::NotFoundError(
      fmt::format("there is no job '{}' in {}{}", job, place(),
                  near.empty() ? std::string() : fmt::format(": did you mean '{}'?", near)));
}

StatusOr<JobView> ClusterJobs::read(const std::string& job) {
  if (job.empty()) return absl::InvalidArgumentError("the name of a job is empty");
  auto object = client_.get(kTrainingJobs, options_.ns, job);
  if (absl::IsNotFound(object.status()) && control::kubeReason(object.status()) == "NotFound") {
    return unknown(job);
  }
  if (!object.ok()) return explained(object.status());
  return clusterView(*std::move(object));
}

StatusOr<JobDetails> ClusterJobs::describe(const std::string& job) {
  JobDetails details;
  TY_ASSIGN_OR_RETURN(details.view, read(job));
  // Who may see jobs may not see all else.
  const auto hidden = [this](const Status& status) {
    return fmt::format("not known: {}", std::string(explained(status).message()));
  };
  control::ListQuery query;
  query.ns = details.view.ns;
  query.label_selector = fmt::format("{}={}", control::kJobNameLabel, details.view.name);
  const auto pods = client_.list(control::kPods, query);
  if (pods.ok()) {
    details.tasks = podTasks(details.view, pods->items);
  } else {
    details.tasks_hidden = hidden(pods.status());
  }
  query.label_selector.clear();
  query.field_selector = "involvedObject.uid=" + details.view.job.metadata().uid();
  const auto events = client_.list(control::kEvents, query);
  if (events.ok()) {
    details.events = clusterEvents(events->items);
  } else {
    details.events_hidden = hidden(events.status());
  }
  return details;
}

StatusOr<Resumed> ClusterJobs::resume(const std::string& name, const Waiting& waiting) {
  TY_ASSIGN_OR_RETURN(ClusterControl found, find(name));
  const Patience patience(clock_, waiting.limit, kLook);
  for (bool asked = false;;) {
    TY_ASSIGN_OR_RETURN(const JobView job, found.read());
    if (job.state == "Terminating") return beingDeleted(job);
    // One that had little left to do may be over between two looks.
    if (asked && job.state == "Succeeded")
      return Resumed{fmt::format("{} went on and succeeded, step {}", job.name, job.step)};
    if (job.finished()) {
      return absl::FailedPreconditionError(fmt::format(
          "'{}' {}: {}", job.name, asked ? "went on and ended" : "has ended already", job.state));
    }
    if (job.job.spec().run_policy().suspend()) {
      TY_RETURN_IF_ERROR(found.setSuspend(false));
      asked = true;
      if (!waiting.wait) return Resumed{fmt::format("{} goes on", job.name)};
    } else if (job.state == "Running" || job.state == "Restarting" || !waiting.wait) {
      return Resumed{fmt::format("{} {}, step {}", job.name, asked ? "goes on" : "is not suspended",
                                 job.step)};
    }
    if (!patience.wait()) {
      return absl::DeadlineExceededError(fmt::format("'{}' does not run after {:.0f} s; it is {}",
                                                     job.name, toSeconds(waiting.limit),
                                                     job.state));
    }
  }
}

StatusOr<Doomed> ClusterJobs::toRemove(const std::string& name) {
  TY_ASSIGN_OR_RETURN(const JobView job, read(name));
  return Doomed{job.name, job.job.metadata().uid(),
                fmt::format("trainingjob {} in namespace {}", job.name, job.ns),
                whatGoesWith(job.job.spec())};
}

StatusOr<std::string> ClusterJobs::remove(const Doomed& doomed, const RemoveOptions& options) {
  const std::string& name = doomed.name;
  control::DeleteQuery query;
  query.uid = doomed.id;
  // It is there until its pods are gone, so that one can wait for them.
  query.propagation = "Foreground";
  const auto removed = client_.remove(kTrainingJobs, options_.ns, name, query);
  const std::string done = fmt::format("{} deleted", name);
  if (absl::IsNotFound(removed.status())) return done;  // by somebody else
  TY_RETURN_IF_ERROR(explained(removed.status()));
  if (!options.waiting.wait) return fmt::format("{} is being deleted", name);
  const Patience patience(clock_, options.waiting.limit, kLook);
  for (;;) {
    const auto left = client_.get(kTrainingJobs, options_.ns, name);
    if (absl::IsNotFound(left.status())) return done;
    TY_RETURN_IF_ERROR(explained(left.status()));
    if (left->value(kUid, std::string()) != doomed.id) return done;
    if (!patience.wait()) {
      return absl::DeadlineExceededError(
          fmt::format("'{}' is still there after {:.0f} s: it goes when its pods are gone", name,
                      toSeconds(options.waiting.limit)));
    }
  }
}

// Through the apiserver, which reaches the pods wherever this runs.
StatusOr<TaskPages> ClusterJobs::metrics(const JobView& job) {
  control::HttpLimits limits = client_.options().limits;
  limits.deadline = kMetricsPatience;
  KubeClient client = client_.with(limits);
  auto pages = collectPages(control::wantedTasks(job.job), [&](const control::TaskKey& key) {
    return client.getRaw(fmt::format("/api/v1/namespaces/{}/pods/{}:{}/proxy/metrics", job.ns,
                                     control::podName(job.job, key),
                                     job.job.spec().network().metrics_port()));
  });
  if (!pages.ok()) return explained(pages.status());
  return pages;
}

}  // namespace

std::unique_ptr<JobSource> makeClusterJobs(std::shared_ptr<KubeClient> client, const Clock& clock,
                                           const ClusterJobsOptions& options) {
  return std::make_unique<ClusterJobs>(std::move(client), clock, options);
}

}  // namespace trainyard::cli
