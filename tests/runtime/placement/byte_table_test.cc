// Bytes per ps against the published comparison of round-robin and partitioned placement,
// recomputed: 2 ps, global_step first.
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/catalog/catalog.h"
#include "runtime/placement/placement.h"

namespace trainyard::runtime {
namespace {

using ::testing::ElementsAre;

Placement placeModel(const std::string& name, const v1::PlacementSpec& spec, int num_ps = 2) {
  v1::JobSpec job;
  job.mutable_ps()->set_replicas(num_ps);
  job.mutable_training()->mutable_model()->set_name(name);
  *job.mutable_training()->mutable_placement() = spec;
  const auto placement = placeJob(job);
  EXPECT_TRUE(placement.ok()) << placement.status();
  return placement.value_or(Placement());
}

v1::PlacementSpec byStrategy(const std::string& name) {
  v1::PlacementSpec spec;
  spec.set_strategy(name);
  return spec;
}

v1::PlacementSpec fixedSize2() {
  v1::PlacementSpec spec = byStrategy("FixedSize");
  spec.mutable_fixed_size()->set_shards(2);
  spec.mutable_fixed_size()->set_axis(0);
  return spec;
}

v1::PlacementSpec minMax2() {
  v1::PlacementSpec spec = byStrategy("MinMax");
  spec.mutable_min_max()->set_max_shards(2);
  spec.mutable_min_max()->set_min_bytes(256 << 10);
  return spec;
}

TEST(ByteTable, MnistCnn) {
  EXPECT_THAT(placeModel("mnist_cnn", byStrategy("RoundRobin")).bytes_per_ps,
              ElementsAre(4'524, 13'094'016));
  EXPECT_THAT(placeModel("mnist_cnn", fixedSize2()).bytes_per_ps,
              ElementsAre(6'528'472, 6'570'068));
  EXPECT_THAT(placeModel("mnist_cnn", minMax2()).bytes_per_ps, ElementsAre(6'463'876, 6'634'664));
}

TEST(ByteTable, Vgg19) {
  EXPECT_THAT(placeModel("vgg19", byStrategy("RoundRobin")).bytes_per_ps,
              ElementsAre(58'788, 574'610'176));
  EXPECT_THAT(placeModel("vgg19", fixedSize2()).bytes_per_ps,
              ElementsAre(273'988'564, 300'680'400));
  EXPECT_THAT(placeModel("vgg19", minMax2()).bytes_per_ps, ElementsAre(288'287'748, 286'381'216));
}

TEST(ByteTable, MnistCnnFixedSizePerVariable) {
  const Placement placement = placeModel("mnist_cnn", fixedSize2());
  std::vector<std::vector<std::int64_t>> bytes;  // per variable: ps1 (part 0), ps0 (part 1)
  for (const Part& part : placement.parts) {
    bytes.resize(part.variable + 1, {0, 0});
    bytes[part.variable][1 - part.ps] += part.bytes;
  }
  EXPECT_THAT(bytes, ElementsAre(ElementsAre(0, 4), ElementsAre(1'920, 1'280), ElementsAre(64, 64),
                                 ElementsAre(122'880, 81'920), ElementsAre(128, 128),
                                 ElementsAre(6'422'528, 6'422'528), ElementsAre(2'048, 2'048),
                                 ElementsAre(20'480, 20'480), ElementsAre(20, 20)));
}

TEST(ByteTable, BalancedIsWithinOnePercentOfEven) {
  for (const std::string model : {"mnist_cnn", "vgg19"}) {
    for (const int n : {1, 2, 3, 4, 7, 16, 49}) {
      const Placement placement = placeModel(model, byStrategy("Balanced"), n);
      EXPECT_LE(placement.hotShare() * n, 1.01) << model << " on " << n;
    }
  }
}

TEST(ByteTable, HotShares) {
  EXPECT_NEAR(placeModel("mnist_cnn", byStrategy("RoundRobin")).hotShare(), 0.9997, 5e-5);
  EXPECT_NEAR(placeModel("vgg19", fixedSize2()).hotShare(), 0.5232, 5e-5);
}

}  // namespace
}  // namespace trainyard::runtime
