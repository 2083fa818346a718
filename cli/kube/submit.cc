#include "cli/kube/submit.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/core/strings.h"
#include "cli/kube/cluster_view.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

using control::kTrainingJobs;
using Json = nlohmann::json;

constexpr char kManager[] = "trainyard";
const Json::json_pointer kVersion("/metadata/resourceVersion");
const Json::json_pointer kDeleted("/metadata/deletionTimestamp");

// Programs with which people write, by the names that they have as managers of fields.
constexpr std::string_view kPeoplesTools[] = {"kubectl", kManager};

// Whether all with whom an apply conflicts are people's tools, by the apiserver's words
// (conflict with "NAME" using VERSION).
bool areAllPeople(std::string_view message) {
  constexpr std::string_view kWith = "with \"";
  bool any = false;
  for (std::size_t at = message.find(kWith); at != std::string_view::npos;
       at = message.find(kWith, at)) {
    at += kWith.size();
    const std::string_view name = message.substr(at);
    if (std::none_of(std::begin(kPeoplesTools), std::end(kPeoplesTools),
                     [&](std::string_view tool) { return name.starts_with(tool); }))
      return false;
    any = true;
  }
  return any;
}

// What a person set by another command follows the file; what a controller holds (an autoscaler the
// number of workers, a queue whether the job is suspended) is taken over on demand only.
StatusOr<Json> applyJob(control::KubeClient& client, const std::string& ns, const Json& written,
                        const SubmitOptions& options) {
  control::KubeClient::ApplyOptions apply{
      .field_manager = kManager, .force = options.force, .dry_run = options.dry_run};
  StatusOr<Json> applied = client.apply(kTrainingJobs, ns, written, apply);
  if (control::kubeReason(applied.status()) != "Conflict" || apply.force) return applied;
  const std::string_view conflict = fromAbsl(applied.status().message());
  if (!areAllPeople(conflict))
    return absl::FailedPreconditionError(
        fmt::format("{}; leave the field out of the file, or take it over with --force", conflict));
  apply.force = true;
  return client.apply(kTrainingJobs, ns, written, apply);
}

}  // namespace

StatusOr<Submitted> submitJob(control::KubeClient& client, Json written,
                              const SubmitOptions& options) {
  Json& metadata = written["metadata"];
  const std::string name = metadata.value("name", std::string());
  const std::string ns = metadata.value("namespace", options.ns);
  if (options.ns_given && ns != options.ns) {
    return invalidInput("metadata.namespace",
                        fmt::format("the file says {}, --namespace {}", ns, options.ns));
  }
  metadata["namespace"] = ns;
  // What was there only decides what is said.
  const auto before = client.get(kTrainingJobs, ns, name);
  const bool is_new = absl::IsNotFound(before.status());
  if (!is_new) TY_RETURN_IF_ERROR(before.status());
  if (!is_new && before->contains(kDeleted)) {
    return absl::FailedPreconditionError(
        fmt::format("'{}' is being deleted: submit it again when it is gone", name));
  }
  auto applied = applyJob(client, ns, written, options);
  TY_RETURN_IF_ERROR(applied.status());
  Submitted done;
  const bool same =
      !is_new && before->value(kVersion, std::string()) == applied->value(kVersion, std::string());
  TY_ASSIGN_OR_RETURN(done.job, clusterView(*std::move(applied)));
  done.what = is_new ? "created" : same ? "unchanged" : "configured";
  return done;
}

}  // namespace trainyard::cli
