#include "runtime/ps/push_clip.h"

#include <gtest/gtest.h>

namespace trainyard::runtime::ps {
namespace {

std::vector<Gradient> gradientsOf(const std::vector<std::vector<float>>& values) {
  std::vector<Gradient> gradients(values.size());
  for (std::size_t v = 0; v < values.size(); ++v) {
    gradients[v].variable = static_cast<int>(v);
    gradients[v].values = values[v];
  }
  return gradients;
}

TEST(PushClip, ALongerMeanIsScaledToTheLimit) {
  const std::vector<std::vector<float>> sums{{6, 0}, {0, 8}};  // of two samples: 3, 4
  auto gradients = gradientsOf(sums);
  EXPECT_EQ(clipPush(1, 2, gradients), 5);
  EXPECT_FLOAT_EQ(gradients[0].values[0], 6 * 0.2f);
  EXPECT_EQ(gradients[0].values[1], 0);
  EXPECT_FLOAT_EQ(gradients[1].values[1], 8 * 0.2f);
  EXPECT_EQ(sums[0][0], 6) << "the model's own memory is not written";
  EXPECT_NE(gradients[1].owner, nullptr);
  EXPECT_NEAR(clipPush(100, 2, gradients), 1, 1e-6);
}

TEST(PushClip, AShorterOneIsNotTouched) {
  const std::vector<std::vector<float>> sums{{3}, {4}};
  auto gradients = gradientsOf(sums);
  EXPECT_EQ(clipPush(5, 1, gradients), 5);
  EXPECT_EQ(gradients[0].values.data(), sums[0].data());
  EXPECT_EQ(gradients[1].values.data(), sums[1].data());
  const std::vector<std::vector<float>> zeros{{0, 0}};
  auto none = gradientsOf(zeros);
  EXPECT_EQ(clipPush(1, 1, none), 0);
}

}  // namespace
}  // namespace trainyard::runtime::ps
