#include "tests/multiproc/metrics_page.h"

#include <cmath>
#include <sstream>

#include "base/core/strings.h"
#include "httplib.h"

namespace trainyard {

std::string metricsPage(const JobRun& run, const std::string& task) {
  const nlohmann::json agent = run.agent(task);
  if (!agent.is_object()) return "";
  httplib::Client client("127.0.0.1", agent.at("metricsPort").get<int>());
  const auto reply = client.Get("/metrics");
  return reply && reply->status == 200 ? reply->body : std::string();
}

double metricOf(const std::string& page, const std::string& name, const std::string& label) {
  double sum = 0;
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name + "{") || line.find(label) == std::string::npos) continue;
    sum += parseNumber<double>(line.substr(line.rfind(' ') + 1)).value_or(std::nan(""));
  }
  return sum;
}

}  // namespace trainyard
