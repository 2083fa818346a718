#include "runtime/task/declaring.h"

namespace trainyard::runtime {

std::unique_ptr<AgentLink> reportDeclaring(const TaskOptions& options) {
  v1::RuntimeReport report = identifiedRuntimeReport(options);
  report.set_phase("Declaring");
  report.set_revision(options.membership.revision());
  report.set_message("until worker-0's program has declared its model");
  const v1::Measurements nothing = identifiedMeasurements(options);
  auto link = std::make_unique<AgentLink>(
      options.agent_target, options.token, [report = std::move(report)] { return report; },
      [](const v1::RuntimeDirective&) {}, [nothing] { return nothing; }, options.local_agent);
  link->start();
  return link;
}

}  // namespace trainyard::runtime
