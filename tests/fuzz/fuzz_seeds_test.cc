// What is fuzzed, without a fuzzer: all seeds, and the seeds with simple damage, the same each
// time.
#include <algorithm>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

// One kind of damage, at place k of so many.
struct Damage {
  std::size_t places;
  std::string (*make)(std::string seed, std::size_t k);
};

std::vector<Damage> damagesOf(const std::string& seed) {
  const std::size_t n = seed.size();
  return {
      {n, [](std::string s, std::size_t k) { return s.substr(0, k); }},
      {n, [](std::string s, std::size_t k) { return s.erase(k, 1); }},
      {n, [](std::string s, std::size_t k) { return s.insert(k, 1, s[k]); }},
      {8 * n,
       [](std::string s, std::size_t k) {
         s[k / 8] = static_cast<char>(s[k / 8] ^ 1 << k % 8);
         return s;
       }},
      {n,
       [](std::string s, std::size_t k) {
         s[k] = '\0';
         return s;
       }},
      // A length or a number that is far too large.
      {n,
       [](std::string s, std::size_t k) {
         std::fill_n(s.begin() + static_cast<std::ptrdiff_t>(k),
                     std::min<std::size_t>(4, s.size() - k), '\xff');
         return s;
       }},
      {n, [](std::string s, std::size_t k) { return s.insert(k, s); }},
  };
}

class FuzzSeedsTest : public testing::TestWithParam<Target> {
 protected:
  // Protobuf would print a line for each text that is not UTF-8.
  static void SetUpTestSuite() { google::protobuf::SetLogHandler(nullptr); }
};

TEST_P(FuzzSeedsTest, SeedsAreHandledAsPromised) {
  const std::vector<std::string> seeds = GetParam().seeds();
  EXPECT_FALSE(seeds.empty());
  for (const std::string& seed : seeds) GetParam().run(seed);
}

// Places are spread evenly over all seeds and kinds of damage.
TEST_P(FuzzSeedsTest, DamagedSeedsAreHandledAsPromised) {
  if (GetParam().damaged == 0) return;  // the planted parser: damage is what it falls for
  const std::vector<std::string> seeds = GetParam().seeds();
  std::size_t places = 0;
  for (const std::string& seed : seeds) {
    for (const Damage& damage : damagesOf(seed)) places += damage.places;
  }
  const auto wanted = static_cast<std::size_t>(GetParam().damaged);
  const std::size_t stride = std::max<std::size_t>(1, places / wanted);
  std::size_t next = 0;
  std::size_t before = 0;
  std::size_t run = 0;
  for (const std::string& seed : seeds) {
    for (const Damage& damage : damagesOf(seed)) {
      for (; next < before + damage.places; next += stride) {
        GetParam().run(damage.make(seed, next - before));
        ++run;
      }
      before += damage.places;
    }
  }
  EXPECT_GE(run, std::min(wanted, places));
}

std::string nameOf(const testing::TestParamInfo<Target>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Parsers, FuzzSeedsTest, testing::ValuesIn(targets()), nameOf);
INSTANTIATE_TEST_SUITE_P(Planted, FuzzSeedsTest, testing::Values(plantedTarget()), nameOf);

}  // namespace
}  // namespace trainyard::fuzz
