#include "cli/jobs/flags.h"

#include <ostream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/printable.h"
#include "base/core/strings.h"

namespace trainyard::cli {

void addRunsFlag(CLI::App& verb, JobFlags& flags) {
  verb.add_option("--runs,--dir", flags.runs,
                  "Folder of the runs (default: runs, or what TRAINYARD_RUNS says)");
}

void addJobFlags(CLI::App& verb, JobFlags& flags) {
  verb.add_option("JOB", flags.job,
                  "Name of the job in the folder of the runs, or its directory; of a cluster: its "
                  "name")
      ->required();
  addRunsFlag(verb, flags);
  addClusterFlags(verb, flags.cluster, true);
}

void addClusterFlags(CLI::App& verb, ClusterFlags& flags, bool optional) {
  constexpr char kGroup[] = "Jobs of a Kubernetes cluster (any of these means them)";
  const auto add = [&](CLI::Option* option) {
    if (!optional) return;
    option->group(kGroup);
    if (CLI::Option* runs = verb.get_option_no_throw("--runs")) option->excludes(runs);
  };
  if (optional) add(verb.add_flag("--cluster", flags.cluster, "That of the current context"));
  const auto text = [&](const char* name, std::string& value, const char* help) {
    CLI::Option* option = verb.add_option(name, value, help);
    option->check([](const std::string& given) {
      return given.empty() ? std::string("is empty") : std::string();
    });
    add(option);
  };
  text("-n,--namespace", flags.ns, "Namespace (default: that of the context)");
  text("--context", flags.context, "Context of the kubeconfig file (default: the current one)");
  text("--kubeconfig", flags.kubeconfig,
       "File that says where the cluster is (default: $KUBECONFIG, ~/.kube/config, the pod that "
       "this runs in)");
}

std::string ClusterFlags::again(const std::string& job_ns) const {
  std::string text = " -n " + job_ns;
  if (!context.empty()) text += " --context " + context;
  if (!kubeconfig.empty()) text += " --kubeconfig " + kubeconfig;
  return text;
}

std::string runsDir(const JobFlags& flags, const Console& console) {
  std::string dir = flags.runs.empty() ? console.runs_dir : flags.runs;
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

int failVerb(const Console& console, const std::string& verb, const Status& status) {
  console.err << "trainyard " << verb << ": " << printable(fromAbsl(status.message())) << std::endl;
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ? kExitUsage : kExitFailure;
}

}  // namespace trainyard::cli
