#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/core/units.h"
#include "cli/plan/plan_report.h"
#include "cli/plan/text_table.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

// {0,1,2,5} -> "ps0-2,5"; "4 ps" where that is too long for a table.
std::string compactList(const std::set<int>& servers) {
  std::string text = "ps";
  for (auto it = servers.begin(); it != servers.end();) {
    const int first = *it;
    int last = first;
    while (++it != servers.end() && *it == last + 1) ++last;
    if (text.size() > 2) text += ",";
    text += first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
  }
  return text.size() <= 24 ? text : fmt::format("{} ps", servers.size());
}

// Where a variable's parts lie: "ps1 6,422,528, ps0 6,422,528" or "64 parts on ps0-15".
std::string whereabouts(const std::vector<const runtime::Part*>& parts) {
  std::vector<std::pair<int, std::int64_t>> bytes;  // by ps, in the order of the parts
  std::set<int> servers;
  for (const runtime::Part* part : parts) {
    if (servers.insert(part->ps).second) bytes.emplace_back(part->ps, 0);
    for (auto& [ps, sum] : bytes) sum += ps == part->ps ? part->bytes : 0;
  }
  if (parts.size() > 2) return fmt::format("{} parts on {}", parts.size(), compactList(servers));
  std::string text;
  for (const auto& [ps, sum] : bytes) {
    if (!text.empty()) text += ", ";
    text += fmt::format("ps{} {}", ps, formatCount(sum));
  }
  return text;
}

std::string variableTable(const runtime::Placement& placement) {
  std::vector<std::vector<const runtime::Part*>> parts(placement.variables.size());
  for (const runtime::Part& part : placement.parts) parts[part.variable].push_back(&part);
  std::vector<TableRow> rows = {{"variable", "shape", "bytes", "parts"}};
  for (std::size_t i = 0; i < placement.variables.size(); ++i) {
    const runtime::Variable& variable = placement.variables[i];
    rows.push_back({variable.name, fmt::format("[{}]", fmt::join(variable.shape, ",")),
                    formatCount(variable.bytes()), whereabouts(parts[i])});
  }
  return renderTable(rows, {false, false, true, false});
}

std::string serverTable(const PlanReport& report) {
  std::vector<TableRow> rows = {{"bytes held", "share", "in per step", "out per step", "memory"}};
  for (std::size_t i = 0; i < report.ps.size(); ++i) {
    const PsPlan& ps = report.ps[i];
    rows.push_back({fmt::format("ps{} {}", i, formatCount(ps.held)),
                    fmt::format("{:.2f} %", 100 * ps.share), formatCount(ps.in_per_step),
                    formatCount(ps.out_per_step), formatCount(ps.memory())});
  }
  return renderTable(rows, {false, true, true, true, true});
}

// What the bytes of a step stand for.
std::string stepNote(const TablePlans& plans) {
  if (plans.expected)
    return "rows and their bytes at most; a step as the made-up ids are expected to repeat";
  const bool features = std::any_of(plans.tables.begin(), plans.tables.end(),
                                    [](const TablePlan& table) { return table.most.in > 0; });
  if (!features) return "rows and their bytes at most; what a step moves is the program's to say";
  return "all at most: a step moves each id once, and how often ids repeat is not known";
}

// Of tables whose job says how many rows they are expected to have.
std::string expectedRows(const TablePlans& plans) {
  std::string text;
  for (const TablePlan& table : plans.tables) {
    if (table.expected_rows == 0) continue;
    text += fmt::format("table {}: {} rows are expected, {} bytes\n", table.name,
                        formatCount(table.expected_rows), formatCount(table.expected_bytes));
  }
  return text;
}

std::string workerReplicas(const TablePlans& plans) {
  if (plans.worker_replica_bytes == 0) return "";
  return fmt::format("worker 0 keeps the only server's replicas: {} bytes at most\n",
                     formatCount(plans.worker_replica_bytes));
}

// Tables, then what each server has of all of them.
std::string embeddingTables(const TablePlans& plans) {
  if (plans.tables.empty()) return "";
  std::vector<TableRow> rows = {
      {"table", "dim", "bytes a row", "rows at most", "bytes", "in per step", "out per step"}};
  for (const TablePlan& table : plans.tables) {
    const StepBytes& step = plans.expected ? *table.expected : table.most;
    rows.push_back({table.name, formatCount(table.dim), formatCount(table.row_bytes),
                    formatCount(table.max_rows), formatCount(table.max_bytes), formatCount(step.in),
                    formatCount(step.out)});
  }
  std::vector<TableRow> servers = {
      {"rows on", "share", "bytes", "replicas", "in per step", "out per step", "to replicas"}};
  for (std::size_t i = 0; i < plans.servers.size(); ++i) {
    const TableServerPlan& ps = plans.servers[i];
    servers.push_back({fmt::format("ps{}", i), fmt::format("{:.2f} %", 100 * ps.share),
                       formatCount(ps.max_bytes), formatCount(ps.replica_bytes),
                       formatCount(ps.step.in), formatCount(ps.step.out),
                       formatCount(ps.replicated)});
  }
  return renderTable(rows, {false, true, true, true, true, true, true}) + "\n" +
         renderTable(servers, {false, true, true, true, true, true, true}) + expectedRows(plans) +
         workerReplicas(plans) + stepNote(plans) + "\n\n";
}

std::string ratio(const std::optional<double>& value) {
  if (!value) return "none (a ps holds nothing)";
  return *value < 100 ? fmt::format("{:.4f}", *value) : formatCount(std::llround(*value));
}

std::string chunkLine(const std::vector<runtime::Chunk>& chunks) {
  if (chunks.empty()) return "none";
  const auto smaller = [](const runtime::Chunk& a, const runtime::Chunk& b) {
    return a.elements < b.elements;
  };
  const auto [least, most] = std::minmax_element(chunks.begin(), chunks.end(), smaller);
  return fmt::format("{}, {} to {} bytes each", formatCount(std::int64_t(chunks.size())),
                     formatCount(least->elements * 4), formatCount(most->elements * 4));
}

std::string summary(const PlanReport& report) {
  const int n = report.placement.num_ps;
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<23}{}\n", name, value);
  };
  line("hot share", fmt::format("{:.2f} % (even: {:.2f} %)", 100 * report.hot_share, 100.0 / n));
  line("max/min", ratio(report.max_to_min));
  line("slowdown against even", fmt::format("{:.3f}", report.slowdown));
  line("chunks", chunkLine(report.placement.chunks));
  line("memory of a worker", formatCount(report.worker_weights + report.worker_gradients));
  return out;
}

}  // namespace

std::string renderPlanText(const PlanReport& report) {
  const runtime::Placement& placement = report.placement;
  const auto trainable = std::count_if(placement.variables.begin(), placement.variables.end(),
                                       [](const runtime::Variable& v) { return v.trainable; });
  std::string out =
      fmt::format("{}: {}, {} variables, {} parameters, {} bytes\n", report.job, report.model,
                  trainable, formatCount(report.parameters), formatCount(report.trainable_bytes));
  out += fmt::format("placement {} on {} ps, {} worker{}\n\n", report.strategy, placement.num_ps,
                     report.workers, report.workers == 1 ? "" : "s");
  out += variableTable(placement) + "\n" + serverTable(report) + "\n" +
         embeddingTables(report.tables) + summary(report) + "\n";
  out +=
      "Per step: gradients that all workers push and weights that they pull; headers\n"
      "(below 0.1 %) and global_step, which travels in them, are not counted.\n";
  const bool replicated = report.ps.size() > 1 && report.ps[0].replica_out_per_step > 0;
  out += fmt::format(
      "Memory of a ps, at most: two versions of its weights, {} optimizer slot{}{};\n"
      "of it {} x bytes held only where steps go on while a checkpoint is written.\n"
      "Memory of a worker: the weights and the gradients, besides activations and\n"
      "libraries{}.\n",
      report.slots, report.slots == 1 ? "" : "s", replicated ? ",\nreplicas of another's part" : "",
      1 + report.slots,
      report.worker_replicas > 0 ? fmt::format("; of worker 0 {} more for the ps's replicas",
                                               formatCount(report.worker_replicas))
                                 : "");
  return out;
}

}  // namespace trainyard::cli
