#include "runtime/events/placement_graph.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;
using testing::Not;

Variable variable(const std::string& name, std::vector<std::int64_t> shape) {
  Variable result;
  result.name = name;
  result.shape = std::move(shape);
  return result;
}

std::string graphOf(const std::string& strategy, const std::vector<Variable>& variables) {
  v1::PlacementSpec spec;
  spec.set_strategy(strategy);
  const auto placement = place(spec, variables, 2);
  EXPECT_TRUE(placement.ok()) << placement.status();
  return placementGraph(placement.value_or(Placement()));
}

// How a name of `text`'s length stands in the message: as a string of field 1.
std::string named(const std::string& text) {
  return std::string(1, '\x0a') + static_cast<char>(text.size()) + text;
}

TEST(PlacementGraph, AWholeVariableKeepsItsName) {
  const std::string graph = graphOf("RoundRobin", {variable("a", {4}), variable("b", {4})});
  EXPECT_THAT(graph, HasSubstr(named("a") + "\x12\x0aVariableV2\x22\x0e/job:ps/task:0"));
  EXPECT_THAT(graph, HasSubstr(named("b") + "\x12\x0aVariableV2\x22\x0e/job:ps/task:1"));
  EXPECT_THAT(graph, HasSubstr(named("model")));
}

TEST(PlacementGraph, PartsAreNamedAsTensorFlowNamesThem) {
  const std::string graph = graphOf("FixedSize", {variable("w", {10, 3})});
  EXPECT_THAT(graph, HasSubstr(named("w/part_0")));
  EXPECT_THAT(graph, HasSubstr(named("w/part_1")));
  EXPECT_THAT(graph, Not(HasSubstr(named("w/part_2"))));
  EXPECT_THAT(graph, Not(HasSubstr(named("w"))));
}

TEST(PlacementGraph, LongGraphsEnd) {
  std::vector<Variable> variables;
  for (int i = 0; i < 1003; ++i) variables.push_back(variable("v" + std::to_string(i), {2}));
  const std::string graph = graphOf("RoundRobin", variables);
  EXPECT_THAT(graph, HasSubstr(named("v999")));
  EXPECT_THAT(graph, Not(HasSubstr(named("v1000"))));
}

}  // namespace
}  // namespace trainyard::runtime
