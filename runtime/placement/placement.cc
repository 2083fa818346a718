#include "runtime/placement/placement.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/core/glob.h"
#include "base/core/units.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/placement/internal/cut.h"

namespace trainyard::runtime {
namespace {

using internal::Cutter;
using internal::fixedSizeCutter;
using internal::maxBytesCutter;
using internal::minMaxCutter;

// A part that is not contiguous is a list of runs; more than this would not fit anywhere.
constexpr std::int64_t kMaxSegments = std::int64_t{1} << 22;

// What decides about some of the variables: a rule, or the strategy.
struct Decision {
  std::string field;
  std::string match;      // a rule's glob
  std::optional<int> ps;  // a rule's
  bool balanced = false;
  Cutter cutter;
};

Status checkVariables(const std::vector<Variable>& variables) {
  std::set<std::string> names;
  for (const Variable& variable : variables) {
    const auto refuse = [&](std::string_view why) {
      return absl::InvalidArgumentError(fmt::format("variable {}: {}", variable.name, why));
    };
    if (!names.insert(variable.name).second) return refuse("two variables have this name");
    for (const std::int64_t dimension : variable.shape) {
      if (dimension < 1) return refuse(fmt::format("dimension {} is below 1", dimension));
    }
    if (variable.trainable && variable.dtype != DType::kFloat32) {
      return refuse("trainable but not float32");
    }
  }
  return {};
}

StatusOr<Decision> readRule(const v1::PlacementRule& rule, int number, int num_ps) {
  Decision decision;
  decision.field = fmt::format("placement.rules[{}]", number);
  decision.match = rule.match();
  if (rule.match().empty()) {
    return invalidInput(decision.field + ".match", "empty: expected a glob over variable names");
  }
  const int kinds =
      rule.has_fixed_size() + rule.has_min_max() + rule.has_max_bytes() + rule.has_ps();
  if (kinds != 1) {
    return invalidInput(
        decision.field,
        fmt::format("{} of fixedSize, minMax, maxBytes and ps are given, expected one", kinds));
  }
  if (rule.has_ps()) {
    if (rule.ps() < 0) {
      return invalidInput(decision.field + ".ps", fmt::format("{} is below 0", rule.ps()));
    }
    if (rule.ps() >= num_ps) {
      return invalidInput(decision.field + ".ps",
                          fmt::format("{} is not below ps.replicas {}", rule.ps(), num_ps));
    }
    decision.ps = rule.ps();
    return decision;
  }
  StatusOr<Cutter> cutter =
      rule.has_fixed_size()
          ? fixedSizeCutter(rule.fixed_size(), num_ps, decision.field + ".fixedSize")
      : rule.has_min_max() ? minMaxCutter(rule.min_max(), num_ps, decision.field + ".minMax")
                           : maxBytesCutter(rule.max_bytes(), decision.field + ".maxBytes");
  TY_ASSIGN_OR_RETURN(decision.cutter, std::move(cutter));
  return decision;
}

StatusOr<Decision> readStrategy(const v1::PlacementSpec& spec, int num_ps) {
  Decision decision;
  decision.field = "placement";
  const std::string& strategy = spec.strategy();
  if (strategy == "RoundRobin") return decision;
  if (strategy.empty() || strategy == "Balanced") {
    decision.balanced = true;
  } else if (strategy == "FixedSize") {
    TY_ASSIGN_OR_RETURN(decision.cutter,
                        fixedSizeCutter(spec.fixed_size(), num_ps, "placement.fixedSize"));
  } else if (strategy == "MinMax") {
    TY_ASSIGN_OR_RETURN(decision.cutter, minMaxCutter(spec.min_max(), num_ps, "placement.minMax"));
  } else if (strategy == "MaxBytes") {
    TY_ASSIGN_OR_RETURN(decision.cutter, maxBytesCutter(spec.max_bytes(), "placement.maxBytes"));
  } else {
    return invalidInput("placement.strategy",
                        fmt::format("\"{}\" is none of RoundRobin, FixedSize, MinMax, MaxBytes, "
                                    "Balanced",
                                    strategy));
  }
  return decision;
}

// Where a decision's cutter is meant to cut, at least one variable must let it, and not into dust.
Status checkCuts(const Decision& decision, const std::vector<const Variable*>& variables) {
  if (decision.cutter.kind == Cutter::Kind::kWhole || variables.empty()) return {};
  bool found = false;
  std::int64_t segments = 0;
  for (const Variable* variable : variables) {
    found |= decision.cutter.hasAxis(*variable);
    const std::int64_t slabs = decision.cutter.slabs(*variable);
    if (slabs == 1) continue;
    std::int64_t runs = slabs;
    for (int axis = 0; axis < decision.cutter.axis; ++axis) runs *= variable->shape[axis];
    segments += runs;
    if (segments > kMaxSegments) {
      return invalidInput(
          decision.field,
          fmt::format("{} would fall into {} pieces along axis {}, more than {}", variable->name,
                      formatCount(runs), decision.cutter.axis, formatCount(kMaxSegments)));
    }
  }
  if (found) return {};
  return invalidInput(decision.field,
                      fmt::format("axis {} is an axis of no variable", decision.cutter.axis));
}

// decisions[i] is rule i, the last one the strategy; the answer is a number of it per variable.
StatusOr<std::vector<std::size_t>> decide(const std::vector<Decision>& decisions,
                                          const std::vector<Variable>& variables) {
  const std::size_t strategy = decisions.size() - 1;
  std::vector<std::size_t> chosen;
  std::vector<std::vector<const Variable*>> subjects(decisions.size());
  for (const Variable& variable : variables) {
    std::size_t k = 0;
    while (k < strategy && !matchesGlob(decisions[k].match, variable.name)) ++k;
    chosen.push_back(k);
    if (variable.trainable) subjects[k].push_back(&variable);
  }
  for (std::size_t k = 0; k < decisions.size(); ++k) {
    const auto matches = [&](const Variable& v) { return matchesGlob(decisions[k].match, v.name); };
    if (k < strategy && std::none_of(variables.begin(), variables.end(), matches)) {
      return invalidInput(decisions[k].field + ".match",
                          fmt::format("\"{}\" matches no variable", decisions[k].match));
    }
    TY_RETURN_IF_ERROR(checkCuts(decisions[k], subjects[k]));
  }
  return chosen;
}

// All parts in the variables' order, their ps set.
std::vector<Part> makeParts(const std::vector<Decision>& decisions,
                            const std::vector<std::size_t>& chosen,
                            const std::vector<Variable>& variables, int num_ps) {
  const std::size_t strategy = decisions.size() - 1;
  std::vector<int> to_balance;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (decisions[chosen[i]].balanced && variables[i].trainable) to_balance.push_back(int(i));
  }
  const std::vector<Part> balanced = internal::cutBalanced(variables, to_balance, num_ps);
  auto next_balanced = balanced.begin();

  std::int64_t turn_of_strategy = 0;
  std::int64_t turn_of_rules = 0;
  std::vector<Part> parts;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Decision& decision = decisions[chosen[i]];
    if (decision.balanced && variables[i].trainable) {
      while (next_balanced != balanced.end() && next_balanced->variable == int(i)) {
        parts.push_back(*next_balanced++);
      }
      continue;
    }
    std::int64_t& turn = chosen[i] == strategy ? turn_of_strategy : turn_of_rules;
    for (Part part : internal::cutVariable(decision.cutter, int(i), variables[i])) {
      part.ps = decision.ps ? *decision.ps : int(turn++ % num_ps);
      parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace

double Placement::hotShare() const {
  const std::int64_t total =
      std::accumulate(bytes_per_ps.begin(), bytes_per_ps.end(), std::int64_t{0});
  if (total == 0) return 1.0 / num_ps;
  return double(*std::max_element(bytes_per_ps.begin(), bytes_per_ps.end())) / double(total);
}

std::vector<std::uint32_t> Placement::chunksOf(int ps) const {
  std::vector<std::uint32_t> ids;
  for (const Chunk& chunk : chunks) {
    if (chunk.ps == ps) ids.push_back(chunk.id);
  }
  return ids;
}

int Placement::globalStepPs() const {
  for (const Part& part : parts) {
    if (variables[part.variable].name == kGlobalStep) return part.ps;
  }
  return -1;
}

std::vector<Segment> Placement::segmentsOf(const Part& part) const {
  const Variable& variable = variables[part.variable];
  if (part.axis == kFlatAxis) return {{part.variable, part.begin, part.end}};
  if (part.bytes == variable.bytes()) return {{part.variable, 0, variable.elements()}};
  std::int64_t outer = 1;
  for (int axis = 0; axis < part.axis; ++axis) outer *= variable.shape[axis];
  const std::int64_t dimension = variable.shape[part.axis];
  const std::int64_t inner = variable.elements() / (outer * dimension);
  std::vector<Segment> segments;
  for (std::int64_t o = 0; o < outer; ++o) {
    segments.push_back(
        {part.variable, (o * dimension + part.begin) * inner, (o * dimension + part.end) * inner});
  }
  return segments;
}

StatusOr<Placement> place(const v1::PlacementSpec& spec, const std::vector<Variable>& variables,
                          int num_ps, int max_ps) {
  if (num_ps < 1) return invalidInput("ps.replicas", fmt::format("{} is below 1", num_ps));
  if (max_ps == 0) max_ps = num_ps;
  if (max_ps < num_ps) {
    return invalidInput("ps.maxReplicas",
                        fmt::format("{} is below ps.replicas {}", max_ps, num_ps));
  }
  TY_RETURN_IF_ERROR(checkVariables(variables));
  std::vector<Decision> decisions;
  for (int i = 0; i < spec.rules_size(); ++i) {
    TY_ASSIGN_OR_RETURN(Decision rule, readRule(spec.rules(i), i, num_ps));
    decisions.push_back(std::move(rule));
  }
  TY_ASSIGN_OR_RETURN(Decision strategy, readStrategy(spec, num_ps));
  decisions.push_back(std::move(strategy));
  TY_ASSIGN_OR_RETURN(const std::vector<std::size_t> chosen, decide(decisions, variables));

  Placement placement;
  placement.num_ps = num_ps;
  placement.variables = variables;
  placement.parts = makeParts(decisions, chosen, variables, num_ps);
  placement.bytes_per_ps.assign(num_ps, 0);
  for (const Part& part : placement.parts) placement.bytes_per_ps[part.ps] += part.bytes;
  placement.chunks = internal::makeChunks(placement, max_ps);
  for (Chunk& chunk : placement.chunks) {
    chunk.pinned =
        std::any_of(chunk.segments.begin(), chunk.segments.end(), [&](const Segment& segment) {
          return decisions[chosen[static_cast<std::size_t>(segment.variable)]].ps.has_value();
        });
  }
  return placement;
}

StatusOr<Placement> placeJob(const v1::JobSpec& spec) {
  const v1::Training& training = spec.training();
  const InputShape input = impliedInput(training);
  TY_ASSIGN_OR_RETURN(const std::vector<Variable> variables,
                      catalogVariables(training.model(), input.shape, input.classes));
  return place(training.placement(), variables, spec.ps().replicas(), spec.ps().max_replicas());
}

}  // namespace trainyard::runtime
