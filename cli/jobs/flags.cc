#include "cli/jobs/flags.h"

#include <ostream>

#include "base/core/exit_code.h"
#include "base/core/printable.h"
#include "base/core/strings.h"

namespace trainyard::cli {

void addRunsFlag(CLI::App& verb, JobFlags& flags) {
  verb.add_option("--runs,--dir", flags.runs,
                  "Folder of the runs (default: runs, or what TRAINYARD_RUNS says)");
}

void addJobFlags(CLI::App& verb, JobFlags& flags) {
  verb.add_option("JOB", flags.job, "Name of the job in the folder of the runs, or its directory")
      ->required();
  addRunsFlag(verb, flags);
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
