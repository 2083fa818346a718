// prometheus.json of a run directory: where Prometheus finds the metrics of the run's tasks, as
// file_sd_configs reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::cli {

// In the run directory.
inline constexpr const char* kScrapeList = "prometheus.json";

struct ScrapeTarget {
  std::string task;  // "ps-0"
  std::string ip;
  std::uint32_t port = 0;
};

// [{"targets":["127.0.0.1:40001"],"labels":{"namespace":"default","pod":"ps-0"}}]: the labels that
// a scrape of pods gives. Pure.
std::string scrapeList(const std::string& ns, const std::vector<ScrapeTarget>& targets);

}  // namespace trainyard::cli
