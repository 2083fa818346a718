// A task's last report and its agent's file, as the launcher reads them.
#include "base/core/check.h"
#include "operator/local/last_report.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {

void runReport(std::string_view input) {
  const MemoryFile file(input);
  const auto report = control::readLastReport(file.path());
  if (!report.ok()) {
    TY_CHECK(absl::IsInvalidArgument(report.status()), "a file that is wrong is named so");
  }
  control::AgentFile agent;
  agent.created = 1;
  agent.start = 2;
  const auto word = control::lastWordOf(file.path(), agent);
  TY_CHECK(!word || (report.ok() && report->has_job() && report->incarnation().created() == 1 &&
                     report->incarnation().start() == 2),
           "only the coordinator's program has the last word");
  const auto read = control::readAgentFile(file.path());
  TY_CHECK(read.ok() || absl::IsInvalidArgument(read.status()), "so is an agent's");
}

std::vector<std::string> reportSeeds() {
  std::vector<std::string> seeds;
  for (const char* const text :
       {"", "{", "[]", "{}",
        R"({"jobUid":"u","id":{"role":"ROLE_PS"},"incarnation":{"created":1,"start":2},"pid":7,)"
        R"("step":"12","examples":"5","seconds":{"data":0.5},"traffic":[{"peer":{"index":1},)"
        R"("receivedBytes":"9"}],"job":{"step":"12","loss":"NaN","outcome":"succeeded"}})",
        R"({"incarnation":{"created":1,"start":1},"job":{}})",
        R"({"incarnation":{"created":1,"start":2}})", R"({"pid":-1})", R"({"step":"x"})",
        R"({"pid":4,"childPid":5,"created":1,"start":2,"plannedStarts":1,"ip":"127.0.0.1",)"
        R"("agentPort":1,"metricsPort":2,"taskPort":3,"child":"Running","ready":true,)"
        R"("lastExitCode":0,"lastSignal":9})",
        R"({"pid":"x"})", R"({"pid":99999999999999999999,"ready":5})"}) {
    seeds.emplace_back(text);
  }
  return seeds;
}

}  // namespace trainyard::fuzz
