// What holds for any variables, any strategy and any number of ps.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "gtest/gtest.h"
#include "runtime/placement/placement.h"

namespace trainyard::runtime {
namespace {

constexpr int kSeeds = 400;

std::vector<Variable> randomVariables(Rng& rng) {
  std::vector<Variable> variables;
  const int count = 1 + int(rng.below(12));
  for (int i = 0; i < count; ++i) {
    Variable v;
    v.name = "v" + std::to_string(i);
    const int rank = int(rng.below(5));
    // Sizes over many magnitudes, 10^6 elements at most.
    const std::uint64_t bound[] = {1, 1'000'000, 1000, 100, 31};
    for (int d = 0; d < rank; ++d) {
      v.shape.push_back(1 + std::int64_t(rng.below(1 + rng.below(bound[rank]))));
    }
    if (rng.below(10) == 0) {
      v.trainable = false;
      v.dtype = DType::kInt32;
    }
    variables.push_back(v);
  }
  return variables;
}

v1::PlacementSpec randomSpec(Rng& rng, int num_ps) {
  v1::PlacementSpec spec;
  const char* const names[] = {"RoundRobin", "FixedSize", "MinMax", "MaxBytes", "Balanced"};
  spec.set_strategy(names[rng.below(5)]);
  const int axis = int(rng.below(3));
  spec.mutable_fixed_size()->set_shards(1 + int(rng.below(2 * num_ps)));
  spec.mutable_fixed_size()->set_axis(axis);
  spec.mutable_min_max()->set_max_shards(1 + int(rng.below(2 * num_ps)));
  spec.mutable_min_max()->set_min_bytes(1 + std::int64_t(rng.below(300'000)));
  spec.mutable_min_max()->set_axis(axis);
  spec.mutable_max_bytes()->set_bytes(1000 + std::int64_t(rng.below(1'000'000)));
  spec.mutable_max_bytes()->set_axis(axis);
  if (rng.below(3) == 0) {
    v1::PlacementRule* rule = spec.add_rules();
    rule->set_match("v0");
    rule->set_ps(int(rng.below(num_ps)));
  }
  return spec;
}

// (variable, element range) -> ps, from parts or chunks; sorted, so that gaps and overlaps show.
using Runs = std::map<int, std::vector<std::tuple<std::int64_t, std::int64_t, int>>>;

// Joins what touches and lies on one ps; fails on overlaps.
Runs joined(Runs runs) {
  for (auto& [variable, list] : runs) {
    std::sort(list.begin(), list.end());
    std::vector<std::tuple<std::int64_t, std::int64_t, int>> out;
    for (const auto& [begin, end, ps] : list) {
      EXPECT_LT(begin, end);
      if (!out.empty()) {
        EXPECT_EQ(std::get<1>(out.back()), begin) << "gap or overlap in variable " << variable;
      }
      if (!out.empty() && std::get<2>(out.back()) == ps) {
        std::get<1>(out.back()) = end;
      } else {
        out.emplace_back(begin, end, ps);
      }
    }
    list = std::move(out);
  }
  return runs;
}

void checkPartsAndChunksAgree(const Placement& p) {
  Runs of_parts, of_chunks;
  std::vector<std::int64_t> bytes(p.num_ps, 0);
  for (const Part& part : p.parts) {
    ASSERT_TRUE(part.ps >= 0 && part.ps < p.num_ps);
    bytes[part.ps] += part.bytes;
    std::int64_t elements = 0;
    for (const Segment& s : p.segmentsOf(part)) {
      elements += s.end - s.begin;
      if (p.variables[part.variable].trainable) {
        of_parts[s.variable].emplace_back(s.begin, s.end, part.ps);
      }
    }
    EXPECT_EQ(elements * 4, part.bytes);
  }
  EXPECT_EQ(bytes, p.bytes_per_ps);
  for (const Chunk& chunk : p.chunks) {
    for (const Segment& s : chunk.segments) {
      of_chunks[s.variable].emplace_back(s.begin, s.end, chunk.ps);
    }
  }
  of_parts = joined(std::move(of_parts));
  EXPECT_EQ(of_parts, joined(std::move(of_chunks)));
  for (std::size_t i = 0; i < p.variables.size(); ++i) {
    if (!p.variables[i].trainable) {
      EXPECT_FALSE(of_parts.contains(int(i)));
      continue;
    }
    ASSERT_TRUE(of_parts.contains(int(i)));
    EXPECT_EQ(std::get<0>(of_parts[int(i)].front()), 0);
    EXPECT_EQ(std::get<1>(of_parts[int(i)].back()), p.variables[i].elements());
  }
}

void checkChunks(const Placement& p) {
  std::vector<int> below_64k(p.num_ps, 0);
  int first_variable = int(p.variables.size());
  for (std::size_t i = 0; i < p.chunks.size(); ++i) {
    const Chunk& chunk = p.chunks[i];
    EXPECT_EQ(chunk.id, i);
    std::int64_t elements = 0;
    for (std::size_t k = 0; k < chunk.segments.size(); ++k) {
      const Segment& s = chunk.segments[k];
      elements += s.end - s.begin;
      if (k == 0) continue;
      const Segment& before = chunk.segments[k - 1];
      EXPECT_TRUE(before.variable < s.variable ||
                  (before.variable == s.variable && before.end < s.begin))
          << "sorted, and runs that touch are joined";
    }
    EXPECT_EQ(elements, chunk.elements);
    EXPECT_LE(elements * 4, 1 << 20);
    below_64k[chunk.ps] += elements * 4 < (64 << 10) - 60;
    EXPECT_LE(chunk.segments.front().variable, first_variable) << "last variables first";
    first_variable = chunk.segments.front().variable;
  }
  for (const int count : below_64k) EXPECT_LE(count, 1);
}

TEST(AnyPlacement, CoversEveryElementOnceWhereItsPartIs) {
  int placed = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const std::vector<Variable> variables = randomVariables(rng);
    const int num_ps = 1 + int(rng.below(64));
    const int max_ps = rng.below(2) == 0 ? 0 : num_ps + int(rng.below(16));
    const v1::PlacementSpec spec = randomSpec(rng, num_ps);
    const auto placement = place(spec, variables, num_ps, max_ps);
    if (!placement.ok()) {  // an axis that no variable of this list has
      EXPECT_NE(placement.status().message().find("axis"), absl::string_view::npos);
      continue;
    }
    ++placed;
    checkPartsAndChunksAgree(*placement);
    checkChunks(*placement);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(placed, kSeeds / 2);
}

TEST(AnyPlacement, BalancedIsWithinOnePercentOfEven) {
  int checked = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const std::vector<Variable> variables = randomVariables(rng);
    std::int64_t bytes = 0;
    for (const Variable& v : variables) bytes += v.trainable ? v.bytes() : 0;
    const int num_ps = 1 + int(rng.below(64));
    if (bytes < num_ps * (256 << 10)) continue;
    ++checked;
    const auto placement = place({}, variables, num_ps);
    ASSERT_TRUE(placement.ok()) << placement.status();
    // What is not trainable is placed whole and does not count here.
    std::vector<std::int64_t> held(num_ps, 0);
    for (const Chunk& chunk : placement->chunks) held[chunk.ps] += chunk.elements * 4;
    EXPECT_LE(double(*std::max_element(held.begin(), held.end())) * num_ps / double(bytes), 1.01);
    for (const Part& part : placement->parts) {
      const bool aligned = part.axis != kFlatAxis || part.begin % 16 == 0;
      EXPECT_TRUE(aligned) << placement->variables[part.variable].name << " " << part.begin;
    }
  }
  EXPECT_GT(checked, kSeeds / 20);
}

TEST(AnyPlacement, IsAFunctionOfItsArguments) {
  Rng rng(5);
  const std::vector<Variable> variables = randomVariables(rng);
  const auto a = place({}, variables, 7);
  const auto b = place({}, variables, 7);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_EQ(a->chunks.size(), b->chunks.size());
  for (std::size_t i = 0; i < a->chunks.size(); ++i) {
    EXPECT_EQ(a->chunks[i].ps, b->chunks[i].ps);
    EXPECT_EQ(a->chunks[i].segments, b->chunks[i].segments);
  }
}

}  // namespace
}  // namespace trainyard::runtime
