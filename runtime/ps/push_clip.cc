#include "runtime/ps/push_clip.h"

#include <memory>

#include "runtime/tensor/square_sum.h"

namespace trainyard::runtime::ps {

double clipPush(double clip_norm, int samples, std::vector<Gradient>& gradients) {
  SquareSum squares;
  for (const Gradient& gradient : gradients) squares.add(gradient.values);
  const double norm = squares.norm() / samples;
  if (norm <= clip_norm) return norm;
  const auto scale = static_cast<float>(clip_norm / norm);
  for (Gradient& gradient : gradients) {
    auto scaled =
        std::make_shared<std::vector<float>>(gradient.values.begin(), gradient.values.end());
    for (float& value : *scaled) value *= scale;
    gradient.values = *scaled;
    gradient.owner = std::move(scaled);
  }
  return norm;
}

}  // namespace trainyard::runtime::ps
