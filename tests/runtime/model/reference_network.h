// mnist_cnn and mlp once more, in double precision and as slowly as they can be read: what the
// models are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/core/rng.h"
#include "runtime/data/dataset.h"

namespace trainyard::runtime::reference {

using Values = std::vector<double>;

struct Image {
  std::int64_t height, width, channels;
  Values values;  // HWC
  double at(std::int64_t y, std::int64_t x, std::int64_t c) const {
    if (y < 0 || y >= height || x < 0 || x >= width) return 0;
    return values[(y * width + x) * channels + c];
  }
};

// 5x5, SAME, then ReLU, then a 2x2 max pool: the textbook order.
inline Image convPool(const Image& in, const Values& hwio, const Values& bias) {
  const std::int64_t outputs = static_cast<std::int64_t>(bias.size());
  Image conv{in.height, in.width, outputs, {}};
  for (std::int64_t y = 0; y < in.height; ++y)
    for (std::int64_t x = 0; x < in.width; ++x)
      for (std::int64_t o = 0; o < outputs; ++o) {
        double sum = bias[o];
        for (int ky = 0; ky < 5; ++ky)
          for (int kx = 0; kx < 5; ++kx)
            for (std::int64_t c = 0; c < in.channels; ++c)
              sum += in.at(y + ky - 2, x + kx - 2, c) *
                     hwio[((ky * 5 + kx) * in.channels + c) * outputs + o];
        conv.values.push_back(std::max(0.0, sum));
      }
  Image out{(in.height + 1) / 2, (in.width + 1) / 2, outputs, {}};
  for (std::int64_t y = 0; y < out.height; ++y)
    for (std::int64_t x = 0; x < out.width; ++x)
      for (std::int64_t o = 0; o < outputs; ++o) {
        const double above = std::max(conv.at(2 * y, 2 * x, o), conv.at(2 * y, 2 * x + 1, o));
        const double below =
            std::max(conv.at(2 * y + 1, 2 * x, o), conv.at(2 * y + 1, 2 * x + 1, o));
        out.values.push_back(std::max(above, below));  // zeros outside are neutral after ReLU
      }
  return out;
}

inline Values dense(const Values& in, const Values& weights, const Values& bias) {
  Values out = bias;
  for (std::size_t i = 0; i < in.size(); ++i)
    for (std::size_t o = 0; o < out.size(); ++o) out[o] += in[i] * weights[i * out.size() + o];
  return out;
}

// ReLU and, where rate > 0, inverted dropout with the mask of the models' documented key.
inline void activate(Values& values, double rate, std::uint64_t seed, int layer, std::int64_t key) {
  const std::uint64_t mask_key = mixKey(mixKey(seed, "dropout"), static_cast<std::uint64_t>(layer));
  for (std::size_t u = 0; u < values.size(); ++u) {
    values[u] = std::max(0.0, values[u]);
    if (rate == 0) continue;
    const std::uint32_t bits = philox(mask_key, static_cast<std::uint64_t>(key), u / 4).v[u % 4];
    values[u] = toUnitFloat(bits) >= static_cast<float>(rate) ? values[u] / (1 - rate) : 0;
  }
}

struct Score {
  double loss = 0;
  std::int64_t hits = 0;
};

// `weights` in the catalogue's order. rate 0: evaluation.
inline Score score(const std::string& model, const std::vector<Values>& weights, const Batch& batch,
                   double rate, std::uint64_t seed) {
  Score total;
  const std::int64_t size = std::int64_t{batch.shape[0]} * batch.shape[1] * batch.shape[2];
  for (int n = 0; n < batch.size(); ++n) {
    const auto* begin = batch.images.data() + n * size;
    Image image{batch.shape[0], batch.shape[1], batch.shape[2], Values(begin, begin + size)};
    std::size_t layer = 0;
    if (model == "mnist_cnn") {
      for (; layer < 2; ++layer)
        image = convPool(image, weights[2 * layer], weights[2 * layer + 1]);
    }
    Values values = image.values;
    for (; 2 * layer < weights.size(); ++layer) {
      values = dense(values, weights[2 * layer], weights[2 * layer + 1]);
      if (2 * layer + 2 < weights.size())
        activate(values, rate, seed, static_cast<int>(layer), batch.keys[n]);
    }
    const auto largest = std::max_element(values.begin(), values.end());
    double sum = 0;
    for (const double v : values) sum += std::exp(v - *largest);
    total.loss += std::log(sum) + *largest - values[batch.labels[n]];
    if (largest - values.begin() == batch.labels[n]) ++total.hits;
  }
  return total;
}

}  // namespace trainyard::runtime::reference
