#include "cli/kube/submit.h"

#include <utility>

#include "cli/kube/cluster_view.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

using control::kTrainingJobs;
using Json = nlohmann::json;

constexpr char kManager[] = "trainyard";
const Json::json_pointer kVersion("/metadata/resourceVersion");
const Json::json_pointer kDeleted("/metadata/deletionTimestamp");

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
  auto applied = client.apply(kTrainingJobs, ns, std::move(written), kManager, options.dry_run);
  TY_RETURN_IF_ERROR(applied.status());
  Submitted done;
  const bool same =
      !is_new && before->value(kVersion, std::string()) == applied->value(kVersion, std::string());
  TY_ASSIGN_OR_RETURN(done.job, clusterView(*std::move(applied)));
  done.what = is_new ? "created" : same ? "unchanged" : "configured";
  return done;
}

}  // namespace trainyard::cli
