#include "runtime/placement/placement.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/placement/placement_table.h"

namespace trainyard::runtime {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;

Variable variable(const std::string& name, std::vector<std::int64_t> shape) {
  Variable v;
  v.name = name;
  v.shape = std::move(shape);
  return v;
}

Variable globalStep() {
  Variable v = variable("global_step", {});
  v.dtype = DType::kInt32;
  v.trainable = false;
  return v;
}

v1::PlacementSpec strategy(const std::string& name) {
  v1::PlacementSpec spec;
  spec.set_strategy(name);
  return spec;
}

v1::PlacementRule* addRule(v1::PlacementSpec& spec, const std::string& match) {
  v1::PlacementRule* rule = spec.add_rules();
  rule->set_match(match);
  return rule;
}

Placement placed(const v1::PlacementSpec& spec, const std::vector<Variable>& variables, int num_ps,
                 int max_ps = 0) {
  auto placement = place(spec, variables, num_ps, max_ps);
  EXPECT_TRUE(placement.ok()) << placement.status();
  return placement.value_or(Placement());
}

// "P1@0 P2@1": each part's variable, its slab where it is cut, and its ps.
std::vector<std::string> partsOf(const Placement& placement) {
  std::vector<std::string> out;
  for (const Part& part : placement.parts) {
    const Variable& v = placement.variables[part.variable];
    std::string text = v.name;
    if (part.bytes != v.bytes()) {
      text += "[" + std::to_string(part.begin) + ":" + std::to_string(part.end) + "]";
    }
    out.push_back(text + "@" + std::to_string(part.ps));
  }
  return out;
}

TEST(RoundRobin, FiveBareVariablesOverTwo) {
  const std::vector<Variable> variables = {variable("P1", {3}), variable("P2", {4}),
                                           variable("P3", {5}), variable("P4", {6}),
                                           variable("P5", {7})};
  EXPECT_THAT(partsOf(placed(strategy("RoundRobin"), variables, 2)),
              ElementsAre("P1@0", "P2@1", "P3@0", "P4@1", "P5@0"));
}

TEST(FixedSize, FirstSlabsTakeTheRestAndShortAxesAreCutLess) {
  v1::PlacementSpec spec = strategy("FixedSize");
  spec.mutable_fixed_size()->set_shards(3);
  const Placement placement =
      placed(spec, {globalStep(), variable("a", {8, 2}), variable("b", {2}), variable("s", {})}, 2);
  EXPECT_THAT(partsOf(placement), ElementsAre("global_step@0", "a[0:3]@1", "a[3:6]@0", "a[6:8]@1",
                                              "b[0:1]@0", "b[1:2]@1", "s@0"));
  EXPECT_EQ(placement.globalStepPs(), 0);
}

TEST(FixedSize, ShardsDefaultToTheNumberOfPs) {
  EXPECT_THAT(partsOf(placed(strategy("FixedSize"), {variable("a", {6})}, 3)),
              ElementsAre("a[0:2]@0", "a[2:4]@1", "a[4:6]@2"));
}

TEST(FixedSize, AlongAnInnerAxisAPartIsManyRuns) {
  v1::PlacementSpec spec = strategy("FixedSize");
  spec.mutable_fixed_size()->set_shards(2);
  spec.mutable_fixed_size()->set_axis(1);
  const Placement placement = placed(spec, {variable("a", {2, 3, 4}), variable("b", {5})}, 2);
  EXPECT_THAT(partsOf(placement), ElementsAre("a[0:2]@0", "a[2:3]@1", "b@0"));
  EXPECT_THAT(placement.segmentsOf(placement.parts[0]),
              ElementsAre(Segment{0, 0, 8}, Segment{0, 12, 20}));
  EXPECT_THAT(placement.segmentsOf(placement.parts[1]),
              ElementsAre(Segment{0, 8, 12}, Segment{0, 20, 24}));
}

// min_max_variable_partitioner: ceil(bytes / min), at most max and at most the axis.
TEST(MinMax, NumberOfParts) {
  v1::PlacementSpec spec = strategy("MinMax");
  spec.mutable_min_max()->set_max_shards(4);
  spec.mutable_min_max()->set_min_bytes(100);
  const auto parts = [&](std::vector<std::int64_t> shape) {
    return placed(spec, {variable("a", std::move(shape))}, 2).parts.size();
  };
  EXPECT_EQ(parts({25}), 1u);       // 100 bytes
  EXPECT_EQ(parts({26}), 2u);       // 104
  EXPECT_EQ(parts({75}), 3u);       // 300
  EXPECT_EQ(parts({1000}), 4u);     // max_shards
  EXPECT_EQ(parts({2, 1000}), 2u);  // the axis
}

// variable_axis_size_partitioner: whole slices per part, evened out over the parts.
TEST(MaxBytes, NumberOfParts) {
  v1::PlacementSpec spec = strategy("MaxBytes");
  spec.mutable_max_bytes()->set_bytes(100);
  EXPECT_THAT(partsOf(placed(spec, {variable("a", {60})}, 2)),
              ElementsAre("a[0:20]@0", "a[20:40]@1", "a[40:60]@0"));
  // Slices of 40 bytes: two fit.
  EXPECT_THAT(partsOf(placed(spec, {variable("a", {5, 10})}, 2)),
              ElementsAre("a[0:2]@0", "a[2:4]@1", "a[4:5]@0"));
  // Slices of 400 bytes: none fits, one each.
  EXPECT_THAT(partsOf(placed(spec, {variable("a", {2, 100})}, 2)),
              ElementsAre("a[0:1]@0", "a[1:2]@1"));
}

TEST(Balanced, CutsTheConcatenationAtAlignedPlaces) {
  const Placement placement =
      placed(strategy("Balanced"), {globalStep(), variable("a", {1000}), variable("b", {3001})}, 2);
  EXPECT_THAT(partsOf(placement),
              ElementsAre("global_step@0", "a@0", "b[0:1008]@0", "b[1008:3001]@1"));
  EXPECT_EQ(placement.parts[2].axis, kFlatAxis);
}

TEST(Balanced, LeavesASmallVariableAtTheEdgeWhole) {
  const Placement placement =
      placed(strategy("Balanced"),
             {variable("a", {9990}), variable("bias", {30}), variable("c", {9980})}, 2);
  EXPECT_THAT(partsOf(placement), ElementsAre("a@0", "bias@1", "c@1"));
}

TEST(Balanced, HandlesFewerElementsThanPs) {
  const Placement placement = placed(strategy("Balanced"), {variable("a", {3})}, 5);
  EXPECT_EQ(std::accumulate(placement.bytes_per_ps.begin(), placement.bytes_per_ps.end(), 0), 12);
}

TEST(Rules, TheFirstThatMatchesDecidesAndTheStrategyDoesNotSeeTheRuled) {
  v1::PlacementSpec spec = strategy("RoundRobin");
  addRule(spec, "fc1_*")->mutable_fixed_size()->set_shards(2);
  addRule(spec, "fc?_wei")->set_ps(1);
  const Placement placement =
      placed(spec,
             {globalStep(), variable("fc1_wei", {4}), variable("c1", {1}), variable("fc2_wei", {4}),
              variable("c2", {1}), variable("fc1_bia", {2})},
             2);
  EXPECT_THAT(partsOf(placement),
              ElementsAre("global_step@0", "fc1_wei[0:2]@0", "fc1_wei[2:4]@1", "c1@1", "fc2_wei@1",
                          "c2@0", "fc1_bia[0:1]@0", "fc1_bia[1:2]@1"));
}

TEST(Rules, GlobalStepCanBeSentElsewhere) {
  v1::PlacementSpec spec = strategy("Balanced");
  addRule(spec, "global_step")->set_ps(2);
  EXPECT_EQ(placed(spec, {globalStep(), variable("a", {100})}, 3).globalStepPs(), 2);
}

TEST(GlobalStep, AbsentWithoutOne) {
  EXPECT_EQ(placed(strategy("Balanced"), {variable("a", {100})}, 3).globalStepPs(), -1);
}

std::string failure(const std::function<void(v1::PlacementSpec&)>& edit, int num_ps = 2,
                    int max_ps = 0) {
  v1::PlacementSpec spec = strategy("RoundRobin");
  edit(spec);
  const auto placement =
      place(spec, {globalStep(), variable("a", {100, 4}), variable("b", {100})}, num_ps, max_ps);
  EXPECT_EQ(placement.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(placement.status().message());
}

TEST(Errors, NameTheField) {
  using Spec = v1::PlacementSpec;
  EXPECT_EQ(failure([](Spec& s) {
              addRule(s, "a")->set_ps(0);
              addRule(s, "b")->set_ps(3);
            }),
            "placement.rules[1].ps: 3 is not below ps.replicas 2");
  EXPECT_THAT(failure([](Spec& s) { addRule(s, "fc9_*")->set_ps(0); }),
              HasSubstr("placement.rules[0].match: \"fc9_*\" matches no variable"));
  EXPECT_THAT(failure([](Spec& s) { addRule(s, "a"); }), HasSubstr("placement.rules[0]: 0 of"));
  EXPECT_THAT(failure([](Spec& s) { addRule(s, "")->set_ps(0); }),
              HasSubstr("rules[0].match: empty"));
  EXPECT_THAT(failure([](Spec& s) { addRule(s, "a")->mutable_min_max()->set_min_bytes(0); }),
              HasSubstr("placement.rules[0].minMax.minBytes: 0 is below 1"));
  EXPECT_THAT(failure([](Spec& s) { addRule(s, "b")->mutable_fixed_size()->set_axis(1); }),
              HasSubstr("placement.rules[0]: axis 1 is an axis of no variable"));
  EXPECT_THAT(failure([](Spec& s) { s.set_strategy("Fair"); }),
              HasSubstr("placement.strategy: \"Fair\" is none of"));
  EXPECT_THAT(failure([](Spec& s) { s.set_strategy("MaxBytes"); }),
              HasSubstr("placement.maxBytes.bytes: missing"));
  EXPECT_THAT(failure([](Spec& s) {
                s.set_strategy("FixedSize");
                s.mutable_fixed_size()->set_shards(0);
              }),
              HasSubstr("placement.fixedSize.shards: 0 is below 1"));
  EXPECT_THAT(failure([](Spec&) {}, 0), HasSubstr("ps.replicas: 0"));
  EXPECT_THAT(failure([](Spec&) {}, 3, 2), HasSubstr("ps.maxReplicas: 2 is below ps.replicas 3"));
}

TEST(Errors, RefusesDustAndBadVariables) {
  v1::PlacementSpec spec = strategy("FixedSize");
  spec.mutable_fixed_size()->set_axis(1);
  spec.mutable_fixed_size()->set_shards(1000);
  EXPECT_THAT(std::string(place(spec, {variable("w", {25088, 1000})}, 2).status().message()),
              HasSubstr("w would fall into 25,088,000 pieces along axis 1"));
  const v1::PlacementSpec plain = strategy("RoundRobin");
  EXPECT_THAT(
      std::string(place(plain, {variable("w", {1}), variable("w", {1})}, 1).status().message()),
      HasSubstr("variable w: two variables"));
  EXPECT_THAT(std::string(place(plain, {variable("w", {0})}, 1).status().message()),
              HasSubstr("variable w: dimension 0"));
}

TEST(Chunks, SmallPartsShareOneAndLargeOnesAreCutInTurnsOverThePs) {
  // Target: 8 MiB / (8 * 2) = 512 KiB.
  const std::vector<Variable> variables = {variable("first", {10}), variable("big", {2 << 20}),
                                           variable("last_w", {30'000}), variable("last_b", {100})};
  const Placement placement = placed(strategy("Balanced"), variables, 2);
  ASSERT_GE(placement.chunks.size(), 4u);
  // The last layer comes first, in one chunk; then big's, ps by ps; the first variable's is the
  // last.
  EXPECT_THAT(placement.chunks[0].segments, ElementsAre(Segment{2, 0, 30'000}, Segment{3, 0, 100}));
  EXPECT_EQ(placement.chunks[1].ps, 0);
  EXPECT_EQ(placement.chunks[2].ps, 1);
  EXPECT_EQ(placement.chunks[3].ps, 0);
  EXPECT_EQ(placement.chunks.back().segments.front(), (Segment{0, 0, 10}));
  EXPECT_EQ(placement.chunksOf(0).size() + placement.chunksOf(1).size(), placement.chunks.size());
}

TEST(Chunks, TheGridFollowsMaxPs) {
  const std::vector<Variable> variables = {variable("w", {4 << 20})};
  const std::size_t for_two = placed(strategy("Balanced"), variables, 2).chunks.size();
  EXPECT_GT(placed(strategy("Balanced"), variables, 2, 16).chunks.size(), 4 * for_two);
}

// KiB of the largest chunk of one variable.
std::int64_t largestChunk(std::int64_t elements, int servers) {
  const Placement placement =
      placed(strategy("Balanced"), {variable("w", {elements})}, servers, servers);
  std::int64_t most = 0;
  for (const Chunk& chunk : placement.chunks) most = std::max(most, chunk.elements * 4);
  return most >> 10;
}

TEST(Chunks, ManyServersHaveSmallerOnes) {
  EXPECT_EQ(largestChunk(14 << 20, 7), 128) << "56 MiB / (64 * 7)";
  EXPECT_EQ(largestChunk(64 << 20, 8), 128) << "no longer more";
  EXPECT_EQ(largestChunk(64 << 20, 16), 64) << "three times sixteen are 3 MiB";
  EXPECT_EQ(largestChunk(64 << 20, 32), 64) << "the least";
}

TEST(Chunks, AFewServersHaveHalvesOfLargeOnes) {
  EXPECT_EQ(largestChunk(2 << 20, 4), 128) << "8 MiB / (16 * 4)";
  EXPECT_EQ(largestChunk(3 << 20, 2), 384) << "12 MiB / (16 * 2)";
  EXPECT_EQ(largestChunk(6 << 20, 2), 384) << "24 MiB / (32 * 2)";
  EXPECT_EQ(largestChunk(16 << 20, 4), 512) << "64 MiB / (32 * 4)";
  EXPECT_EQ(largestChunk(31 << 20, 4), 992) << "124 MiB / (32 * 4)";
  EXPECT_EQ(largestChunk(24 << 20, 6), 512) << "96 MiB / (32 * 6): six are a few";
  EXPECT_THAT(largestChunk(64 << 20, 4), AllOf(Gt(992), Le(1024))) << "the most";
}

TEST(Chunks, NothingThatIsNotTrained) {
  EXPECT_THAT(placed(strategy("RoundRobin"), {globalStep()}, 2).chunks, IsEmpty());
}

// As TensorBoard shows it.
TEST(PlacementTable, AVectorOfAThousandIsTwoOfFiveHundred) {
  v1::PlacementSpec spec = strategy("FixedSize");
  spec.mutable_fixed_size()->set_shards(2);
  const std::string table =
      placementTable(placed(spec, {globalStep(), variable("fc8_bia", {1000})}, 2));
  EXPECT_THAT(table, HasSubstr("- ps-0: 2,004 bytes\n- ps-1: 2,000 bytes\n"));
  EXPECT_THAT(table, HasSubstr("| global_step | all | ps-0 | 4 |\n"
                               "| fc8_bia | 0 to 500 of 1,000, axis 0 | ps-1 | 2,000 |\n"
                               "| fc8_bia | 500 to 1,000 of 1,000, axis 0 | ps-0 | 2,000 |\n"));
}

TEST(PlacementTable, LongTablesEnd) {
  std::vector<Variable> variables;
  for (int i = 0; i < 1003; ++i) variables.push_back(variable("v" + std::to_string(i), {2}));
  const std::string table = placementTable(placed(strategy("RoundRobin"), variables, 2));
  EXPECT_THAT(table, HasSubstr("| v999 |"));
  EXPECT_THAT(table, testing::Not(HasSubstr("| v1000 |")));
  EXPECT_THAT(table, HasSubstr("and 3 more"));
}

}  // namespace
}  // namespace trainyard::runtime
