#include "agent/supervisor/compute_threads.h"

#include <algorithm>
#include <cmath>

#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard::agent {
namespace {

constexpr int kMaxThreads = 1024;  // of the schema, and of the runtime's --threads

std::string coresText(const AvailableCpus& cpus, int processes) {
  const double shown = std::floor(cpus.cores * 100) / 100;
  return fmt::format("{:g} core{} {}{}", shown, cpus.cores == 1 ? "" : "s", cpus.source,
                     processes > 1 ? fmt::format(", shared by {} processes", processes) : "");
}

}  // namespace

StatusOr<ComputeThreads> computeThreads(const v1::Training& training, const AvailableCpus& cpus,
                                        int processes) {
  const std::string given = training.has_threads() ? training.threads() : "Auto";
  if (given != "Auto") {
    const auto number = parseNumber<int>(given);
    if (!number || *number < 1 || *number > kMaxThreads) {
      return invalidInput("spec.training.threads",
                          fmt::format("expected Auto or a whole number from 1 to {}, got \"{}\"",
                                      kMaxThreads, given));
    }
    return ComputeThreads{*number, "training.threads"};
  }
  if (training.deterministic())
    return ComputeThreads{1, "training.threads: Auto of a deterministic job"};
  const double share = std::floor(cpus.cores / processes);
  return ComputeThreads{static_cast<int>(std::clamp<double>(share, 1, kMaxThreads)),
                        "training.threads: Auto, " + coresText(cpus, processes)};
}

}  // namespace trainyard::agent
