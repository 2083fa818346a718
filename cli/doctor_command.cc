// `trainyard doctor`: what is missing on this machine, or in a cluster.
#include <memory>
#include <ostream>
#include <string>

#include "CLI/CLI.hpp"
#include "base/core/commit.h"
#include "base/core/exit_code.h"
#include "cli/command.h"
#include "cli/doctor/cluster_findings.h"
#include "cli/doctor/local_findings.h"
#include "cli/jobs/flags.h"
#include "cli/kube/connect.h"
#include "cli/version.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

struct DoctorFlags {
  JobFlags job;
  std::string output = "text";
};

Diagnosis diagnoseMachine(const DoctorFlags& flags, const Console& console) {
  LocalPlace place{console.program_dir, runsDir(flags.job, console), versionText(), builtCommit(),
                   console.visible_gpus};
  return {"this machine", localFindings(collectLocal(place))};
}

Diagnosis diagnoseCluster(const Connection& connection, const Console& console) {
  const ClusterPlace place{connection.config.server, connection.ns,
                           connection.client->options().user_agent};
  const ClusterFacts facts = collectCluster(*connection.transport, *console.clock, place);
  return {fmt::format("namespace {} of {}", place.ns, place.server),
          clusterFindings(facts, thisRelease(), console.clock->unixMillis())};
}

void print(const Diagnosis& diagnosis, const DoctorFlags& flags, const Console& console) {
  console.out << (flags.output == "json" ? diagnosisJson(diagnosis).dump(2) + "\n"
                                         : diagnosisText(diagnosis, console.colour))
              << std::flush;
}

int doctor(const DoctorFlags& flags, const Console& console) {
  Diagnosis diagnosis;
  int code = kExitFailure;
  if (!flags.job.cluster.given()) {
    diagnosis = diagnoseMachine(flags, console);
  } else if (const auto connection = connectCluster(flags.job.cluster, console); connection.ok()) {
    diagnosis = diagnoseCluster(**connection, console);
  } else {
    diagnosis = {"no cluster", noClusterFindings(connection.status())};
    code = kExitUsage;
  }
  print(diagnosis, flags, console);
  return countOf(diagnosis, FindingLevel::kProblem) == 0 ? kExitOk : code;
}

constexpr char kDoctorFooter[] =
    "Each finding begins with ok, note, unknown (could not be asked), warning (something will not "
    "work, or\n"
    "not well) or problem (nothing will), and says below what to do. Exit code 0 without problems, "
    "1 with, 2\n"
    "where no cluster is known.\n\n"
    "Examples:\n"
    "  trainyard doctor                 # this machine, for `trainyard run`\n"
    "  trainyard doctor --cluster       # the current context's cluster and namespace\n"
    "  trainyard doctor -n lab -o json";

}  // namespace

void registerDoctor(CLI::App& app, ChosenCommand& chosen) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* verb = app.add_subcommand(
      "doctor", "Say what is missing for jobs on this machine, or in a cluster, and what to do");
  verb->add_option("-o,--output", flags->output, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  addRunsFlag(*verb, flags->job);
  addClusterFlags(*verb, flags->job.cluster, true);
  verb->footer(kDoctorFooter);
  verb->callback([flags, &chosen] {
    chosen = [flags](const Console& console) { return doctor(*flags, console); };
  });
}

}  // namespace trainyard::cli
