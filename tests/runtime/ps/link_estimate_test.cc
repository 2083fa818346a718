// How much is to be under way, from what was measured.
#include "runtime/ps/link_estimate.h"

#include "gtest/gtest.h"

namespace trainyard::runtime::ps {
namespace {

constexpr Duration kTenMillis = std::chrono::milliseconds(10);

TEST(LinkEstimate, IsNothingBeforeSomethingWasMeasured) {
  const LinkEstimate link;
  EXPECT_EQ(link.windowBytes(), 0u);
  EXPECT_EQ(link.bytesPerSecond(), 0);
  EXPECT_EQ(link.delay(), Duration{});
}

TEST(LinkEstimate, IsTwiceBandwidthTimesDelay) {
  LinkEstimate link;
  link.observe(0, 125e6, kTenMillis);
  EXPECT_EQ(link.windowBytes(), 2'500'000u);
}

TEST(LinkEstimate, LanesAddUpAndTheShortestDelayCounts) {
  LinkEstimate link;
  link.observe(0, 100e6, 2 * kTenMillis);
  link.observe(3, 25e6, kTenMillis);
  EXPECT_EQ(link.bytesPerSecond(), 125e6);
  EXPECT_EQ(link.delay(), kTenMillis);
  EXPECT_EQ(link.windowBytes(), 2'500'000u);
  link.observe(3, 25e6, 3 * kTenMillis);
  EXPECT_EQ(link.delay(), 2 * kTenMillis) << "the way may have become longer";
}

TEST(LinkEstimate, OneRateIsAnEighthOfIt) {
  LinkEstimate link;
  link.observe(0, 80e6, kTenMillis);
  link.observe(0, 160e6, kTenMillis);
  EXPECT_DOUBLE_EQ(link.bytesPerSecond(), 90e6);
  for (int i = 0; i < 100; ++i) link.observe(0, 160e6, kTenMillis);
  EXPECT_NEAR(link.bytesPerSecond(), 160e6, 1e3);
}

// A window that is too small limits what is measured; it grows until the link does.
TEST(LinkEstimate, FindsWhatALinkCanCarry) {
  constexpr double kLink = 125e6;
  LinkEstimate link;
  double window = 1 << 20;
  for (int i = 0; i < 200; ++i) {
    link.observe(0, std::min(kLink, window / toSeconds(2 * kTenMillis)), 2 * kTenMillis);
    window = static_cast<double>(link.windowBytes());
  }
  EXPECT_NEAR(window, 2 * kLink * 0.02, 1e4);
}

}  // namespace
}  // namespace trainyard::runtime::ps
