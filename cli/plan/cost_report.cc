#include "cli/plan/cost_report.h"

#include <set>

#include "base/core/units.h"
#include "cli/plan/text_table.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;
using runtime::CostInput;

MachinesRow rowOf(const CostInput& input, int n) {
  const auto everyMachine = [&](double seconds) {
    return Way{{n, 0}, seconds, runtime::efficiency(input, n, n, seconds)};
  };
  MachinesRow row{n, std::nullopt, everyMachine(colocatedServersSeconds(input, n)),
                  everyMachine(ringSeconds(input, n))};
  if (n >= 2) {
    const runtime::Split split = bestSplit(input, n);
    const double seconds = dedicatedServersSeconds(input, split.workers, 1.0 / split.servers);
    row.dedicated = Way{split, seconds, runtime::efficiency(input, split.workers, n, seconds)};
  }
  return row;
}

std::string seconds(double value) {
  return fmt::format("{:.4g} s", value);
}

std::string rate(double bits_per_second) {
  for (const auto& [factor, unit] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (bits_per_second >= factor)
      return fmt::format("{:.6g} {}bit/s", bits_per_second / factor, unit);
  }
  return fmt::format("{:.6g} bit/s", bits_per_second);
}

const char* duplexName(runtime::Duplex duplex) {
  return duplex == runtime::Duplex::kFull ? "full" : "half";
}

std::string setting(const CostInput& input) {
  return fmt::format("{} links, {} duplex (factor {}), {} of computing, latency {}",
                     rate(input.bits_per_second), duplexName(input.duplex),
                     runtime::duplexFactor(input.duplex), seconds(input.step_seconds),
                     seconds(input.latency_seconds));
}

Json settingJson(const CostInput& input) {
  return {{"bitsPerSecond", input.bits_per_second},
          {"computeSeconds", input.step_seconds},
          {"duplex", duplexName(input.duplex)},
          {"duplexFactor", runtime::duplexFactor(input.duplex)},
          {"latencySeconds", input.latency_seconds}};
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

Json wayJson(const Way& way) {
  return {{"workers", way.split.workers},
          {"ps", way.split.servers},
          {"stepSeconds", way.step_seconds},
          {"efficiency", way.efficiency}};
}

Json secondsJson(const runtime::ServerSeconds& seconds) {
  return {{"inSeconds", seconds.in}, {"outSeconds", seconds.out}};
}

}  // namespace

CostInput costInput(std::int64_t parameters, CostInput input) {
  input.model_bytes = 4.0 * double(parameters);
  return input;
}

CostReport makeCostReport(const std::string& model, std::int64_t parameters, const CostInput& input,
                          std::optional<int> machines, const std::vector<int>& scale) {
  CostReport report{model, parameters, costInput(parameters, input), {}, machines};
  std::set<int> numbers(scale.begin(), scale.end());
  if (machines) numbers.insert(*machines);
  for (const int n : numbers) report.rows.push_back(rowOf(report.input, n));
  return report;
}

std::string renderCostText(const CostReport& report) {
  std::string out = fmt::format(
      "{}{} parameters, {} bytes\n{}\n\n", report.model.empty() ? "" : report.model + ": ",
      formatCount(report.parameters), formatCount(4 * report.parameters), setting(report.input));
  std::vector<TableRow> rows = {
      {"machines", "workers+ps", "T dedicated", "%", "T colocated", "%", "T ring", "%"}};
  for (const MachinesRow& row : report.rows) {
    TableRow cells = {std::to_string(row.machines), "-", "-", "-"};
    if (row.dedicated) {
      const Way& way = *row.dedicated;
      cells = {cells[0], fmt::format("{}+{}", way.split.workers, way.split.servers),
               fmt::format("{:.4g}", way.step_seconds),
               fmt::format("{:.1f}", 100 * way.efficiency)};
    }
    for (const Way& way : {row.colocated, row.ring}) {
      cells.push_back(fmt::format("{:.4g}", way.step_seconds));
      cells.push_back(fmt::format("{:.1f}", 100 * way.efficiency));
    }
    rows.push_back(std::move(cells));
  }
  out += renderTable(rows, {true, true, true, true, true, true, true, true});
  for (const MachinesRow& row : report.rows) {
    if (row.machines != report.best_split || !row.dedicated) continue;
    const runtime::Split split = row.dedicated->split;
    out +=
        fmt::format("\nbest split of {} machines  {} worker{} + {} ps ({} of workers in theory)\n",
                    row.machines, split.workers, split.workers == 1 ? "" : "s", split.servers,
                    percent(runtime::bestWorkerShare(report.input)));
  }
  out +=
      "\nT: seconds of a synchronous step. Dedicated: servers on machines of their own,\n"
      "in the best split; colocated: every machine is worker and server. %: efficiency,\n"
      "steps of workers per second against machines that need not communicate.\n";
  return out;
}

Json renderCostJson(const CostReport& report) {
  Json rows = Json::array();
  for (const MachinesRow& row : report.rows) {
    rows.push_back({{"machines", row.machines},
                    {"dedicated", row.dedicated ? wayJson(*row.dedicated) : Json(nullptr)},
                    {"colocated", wayJson(row.colocated)},
                    {"ring", wayJson(row.ring)}});
  }
  Json json = settingJson(report.input);
  json["model"] = report.model.empty() ? Json(nullptr) : Json(report.model);
  json["parameters"] = report.parameters;
  json["modelBytes"] = 4 * report.parameters;
  json["exchangeSeconds"] = report.input.exchangeSeconds();
  json["bestWorkerShare"] = runtime::bestWorkerShare(report.input);
  json["scale"] = std::move(rows);
  return json;
}

runtime::JobSeconds predictJob(const PlanReport& plan, const CostInput& input) {
  std::vector<runtime::ServerBytes> servers;
  for (const PsPlan& ps : plan.ps) {
    servers.push_back(
        {ps.in_per_step / plan.workers, ps.replica_in_per_step, ps.replica_out_per_step});
  }
  return runtime::predictJob(input, plan.workers, servers);
}

std::string renderPredictionText(const CostInput& input, const runtime::JobSeconds& job) {
  std::vector<TableRow> rows = {{"seconds of a step on the link", "in", "out"}};
  for (std::size_t i = 0; i < job.servers.size(); ++i) {
    rows.push_back(
        {fmt::format("ps{}", i), seconds(job.servers[i].in), seconds(job.servers[i].out)});
  }
  rows.push_back({"each worker", seconds(job.worker.in), seconds(job.worker.out)});
  return setting(input) + "\n\n" + renderTable(rows, {false, true, true}) +
         fmt::format(
             "\nstep of this job       {}, of which {} of communication\n"
             "at best                {}, where all communication hides behind computing\n",
             seconds(job.step), seconds(job.communication), seconds(job.overlapped));
}

Json renderPredictionJson(const CostInput& input, const runtime::JobSeconds& job) {
  Json servers = Json::array();
  for (std::size_t i = 0; i < job.servers.size(); ++i) {
    Json server = {{"index", i}};
    server.update(secondsJson(job.servers[i]));
    servers.push_back(std::move(server));
  }
  Json json = settingJson(input);
  json["ps"] = std::move(servers);
  json["worker"] = secondsJson(job.worker);
  json["communicationSeconds"] = job.communication;
  json["stepSeconds"] = job.step;
  json["overlappedStepSeconds"] = job.overlapped;
  return json;
}

}  // namespace trainyard::cli
