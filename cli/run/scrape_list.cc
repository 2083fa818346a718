#include "cli/run/scrape_list.h"

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {

std::string scrapeList(const std::string& ns, const std::vector<ScrapeTarget>& targets) {
  auto list = nlohmann::ordered_json::array();
  for (const ScrapeTarget& target : targets) {
    const bool v6 = target.ip.find(':') != std::string::npos;
    nlohmann::ordered_json entry;
    entry["targets"] = {
        fmt::format("{}{}{}:{}", v6 ? "[" : "", target.ip, v6 ? "]" : "", target.port)};
    entry["labels"] = {{"namespace", ns.empty() ? "default" : ns}, {"pod", target.task}};
    list.push_back(std::move(entry));
  }
  return list.dump(1) + "\n";
}

}  // namespace trainyard::cli
