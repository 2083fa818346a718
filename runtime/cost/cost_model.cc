#include "runtime/cost/cost_model.h"

#include <algorithm>
#include <cmath>

#include "base/core/check.h"

namespace trainyard::runtime {
namespace {

// k 2 (n - 1)/n 8 D/B
double everyLinkSeconds(const CostInput& input, int machines) {
  return 2 * input.exchangeSeconds() * (machines - 1) / machines;
}

// Until a link has carried both directions.
double linkSeconds(const CostInput& input, const ServerSeconds& link) {
  return input.duplex == Duplex::kFull ? std::max(link.in, link.out) : link.in + link.out;
}

}  // namespace

int duplexFactor(Duplex duplex) {
  return duplex == Duplex::kFull ? 1 : 2;
}

double CostInput::exchangeSeconds() const {
  return duplexFactor(duplex) * 8 * model_bytes / bits_per_second;
}

double dedicatedServersSeconds(const CostInput& input, int workers, double hot_share) {
  TY_CHECK(workers >= 1, "a step needs a worker");
  return input.step_seconds + input.exchangeSeconds() * std::max(1.0, workers * hot_share) +
         2 * input.latency_seconds;
}

double colocatedServersSeconds(const CostInput& input, int machines) {
  TY_CHECK(machines >= 1, "a step needs a machine");
  if (machines == 1) return input.step_seconds;
  return input.step_seconds + everyLinkSeconds(input, machines) + 2 * input.latency_seconds;
}

double ringSeconds(const CostInput& input, int machines) {
  TY_CHECK(machines >= 1, "a step needs a machine");
  return input.step_seconds + everyLinkSeconds(input, machines) +
         2.0 * (machines - 1) * input.latency_seconds;
}

double bestWorkerShare(const CostInput& input) {
  TY_CHECK(input.step_seconds > 0, "without computing there is nothing to share out");
  return std::max(0.5, 1 / (1 + std::sqrt(input.exchangeSeconds() / input.step_seconds)));
}

Split bestSplit(const CostInput& input, int machines) {
  TY_CHECK(machines >= 2, "a worker and a server need two machines");
  const int below = static_cast<int>(bestWorkerShare(input) * machines);
  Split best;
  double least = 0;
  for (const int workers :
       {std::clamp(below, 1, machines - 1), std::clamp(below + 1, 1, machines - 1)}) {
    const int servers = machines - workers;
    const double unit = dedicatedServersSeconds(input, workers, 1.0 / servers) / workers;
    if (best.workers == 0 || unit < least) {
      best = {workers, servers};
      least = unit;
    }
  }
  return best;
}

JobSeconds predictJob(const CostInput& input, int workers,
                      const std::vector<ServerBytes>& servers) {
  TY_CHECK(workers >= 1, "a step needs a worker");
  const double byte = 8 / input.bits_per_second;
  JobSeconds result;
  double slowest = 0;
  double whole = 0;
  for (const ServerBytes& server : servers) {
    const double shared = workers * double(server.per_worker);
    const ServerSeconds seconds = {(shared + double(server.replicas_in)) * byte,
                                   (shared + double(server.replicas_out)) * byte};
    result.servers.push_back(seconds);
    slowest = std::max(slowest, linkSeconds(input, seconds));
    whole += double(server.per_worker) * byte;
  }
  result.worker = {whole, whole};
  result.communication =
      std::max(slowest, linkSeconds(input, result.worker)) + 2 * input.latency_seconds;
  result.step = input.step_seconds + result.communication;
  result.overlapped = std::max(input.step_seconds, result.communication);
  return result;
}

double efficiency(const CostInput& input, int workers, int machines, double step_seconds) {
  return workers * input.step_seconds / (machines * step_seconds);
}

std::vector<int> doublings(int first, int last) {
  TY_CHECK(1 <= first && first <= last, "a range of numbers of machines");
  std::vector<int> numbers;
  for (std::int64_t n = first; n < last; n *= 2) numbers.push_back(static_cast<int>(n));
  numbers.push_back(last);
  return numbers;
}

}  // namespace trainyard::runtime
