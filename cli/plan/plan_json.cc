#include "cli/plan/plan_report.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

Json partJson(const runtime::Part& part) {
  // Parts of Balanced are ranges of elements, those of the other strategies slabs along an axis.
  const bool flat = part.axis == runtime::kFlatAxis;
  return {{"ps", part.ps},
          {"axis", flat ? Json(nullptr) : Json(part.axis)},
          {"begin", part.begin},
          {"end", part.end},
          {"bytes", part.bytes}};
}

Json variablesJson(const runtime::Placement& placement) {
  Json list = Json::array();
  for (const runtime::Variable& variable : placement.variables) {
    list.push_back({{"name", variable.name},
                    {"shape", variable.shape},
                    {"dtype", variable.dtype == runtime::DType::kFloat32 ? "F32" : "I32"},
                    {"trainable", variable.trainable},
                    {"bytes", variable.bytes()},
                    {"parts", Json::array()}});
  }
  for (const runtime::Part& part : placement.parts) {
    list[part.variable]["parts"].push_back(partJson(part));
  }
  return list;
}

Json serversJson(const PlanReport& report) {
  Json list = Json::array();
  for (std::size_t i = 0; i < report.ps.size(); ++i) {
    const PsPlan& ps = report.ps[i];
    list.push_back({{"index", i},
                    {"bytes", ps.held},
                    {"share", ps.share},
                    {"bytesInPerStep", ps.in_per_step},
                    {"bytesOutPerStep", ps.out_per_step},
                    {"replicaBytesInPerStep", ps.replica_in_per_step},
                    {"replicaBytesOutPerStep", ps.replica_out_per_step},
                    {"memory",
                     {{"weights", ps.weights},
                      {"slots", ps.slots},
                      {"snapshot", ps.snapshot},
                      {"replicas", ps.replicas},
                      {"total", ps.memory()}}}});
  }
  return list;
}

Json tablesJson(const TablePlans& plans) {
  Json list = Json::array();
  for (const TablePlan& table : plans.tables) {
    list.push_back(
        {{"name", table.name},
         {"dim", table.dim},
         {"rowBytes", table.row_bytes},
         {"maxRows", table.max_rows},
         {"maxBytes", table.max_bytes},
         {"expectedRows", table.expected_rows > 0 ? Json(table.expected_rows) : Json(nullptr)},
         {"expectedBytes", table.expected_rows > 0 ? Json(table.expected_bytes) : Json(nullptr)},
         {"replicaBytesPerStep", table.replicated},
         {"bytesInPerStep", table.most.in},
         {"bytesOutPerStep", table.most.out},
         {"expectedBytesInPerStep", table.expected ? Json(table.expected->in) : Json(nullptr)},
         {"expectedBytesOutPerStep", table.expected ? Json(table.expected->out) : Json(nullptr)}});
  }
  return list;
}

Json tableServersJson(const TablePlans& plans) {
  Json list = Json::array();
  for (std::size_t i = 0; i < plans.servers.size(); ++i) {
    const TableServerPlan& ps = plans.servers[i];
    list.push_back({{"index", i},
                    {"share", ps.share},
                    {"maxBytes", ps.max_bytes},
                    {"replicaMaxBytes", ps.replica_bytes},
                    {"replicaBytesPerStep", ps.replicated},
                    {"bytesInPerStep", ps.step.in},
                    {"bytesOutPerStep", ps.step.out},
                    {"expected", plans.expected}});
  }
  return list;
}

Json chunksJson(const runtime::Placement& placement) {
  Json list = Json::array();
  for (const runtime::Chunk& chunk : placement.chunks) {
    Json segments = Json::array();
    for (const runtime::Segment& segment : chunk.segments) {
      segments.push_back({{"variable", placement.variables[segment.variable].name},
                          {"begin", segment.begin},
                          {"end", segment.end}});
    }
    list.push_back({{"id", chunk.id},
                    {"ps", chunk.ps},
                    {"bytes", chunk.elements * 4},
                    {"segments", std::move(segments)}});
  }
  return list;
}

}  // namespace

Json renderPlanJson(const PlanReport& report) {
  return {{"job", report.job},
          {"model", report.model},
          {"placement", report.strategy},
          {"psReplicas", report.placement.num_ps},
          {"workers", report.workers},
          {"parameters", report.parameters},
          {"trainableBytes", report.trainable_bytes},
          {"hotShare", report.hot_share},
          {"maxToMin", report.max_to_min ? Json(*report.max_to_min) : Json(nullptr)},
          {"slowdown", report.slowdown},
          {"ps", serversJson(report)},
          {"worker",
           {{"memory",
             {{"weights", report.worker_weights},
              {"gradients", report.worker_gradients},
              {"replicas", report.worker_replicas},
              {"total", report.worker_weights + report.worker_gradients}}}}},
          {"tables", tablesJson(report.tables)},
          {"tableServers", tableServersJson(report.tables)},
          {"variables", variablesJson(report.placement)},
          {"chunks", chunksJson(report.placement)}};
}

}  // namespace trainyard::cli
