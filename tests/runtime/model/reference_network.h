// The networks once more, in double precision and as slowly as they can be read: what the models
// are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "runtime/data/dataset.h"
#include "runtime/model/network.h"

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

// SAME, then ReLU.
inline Image conv(const Image& in, std::int64_t side, const Values& hwio, const Values& bias) {
  const std::int64_t outputs = static_cast<std::int64_t>(bias.size());
  Image out{in.height, in.width, outputs, {}};
  out.values.reserve(in.height * in.width * outputs);
  for (std::int64_t y = 0; y < in.height; ++y) {
    for (std::int64_t x = 0; x < in.width; ++x) {
      Values sum = bias;
      for (std::int64_t tap = 0; tap < side * side * in.channels; ++tap) {
        const std::int64_t pixel = tap / in.channels;
        const double value =
            in.at(y + pixel / side - side / 2, x + pixel % side - side / 2, tap % in.channels);
        const double* weights = hwio.data() + tap * outputs;
        for (std::int64_t o = 0; o < outputs; ++o) sum[o] += value * weights[o];
      }
      for (const double v : sum) out.values.push_back(std::max(0.0, v));
    }
  }
  return out;
}

// The largest of each 2x2 window. What lies outside is zero, which is neutral after ReLU.
inline Image pool(const Image& in, std::int64_t height, std::int64_t width) {
  Image out{height, width, in.channels, {}};
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < in.channels; ++c) {
        const double above = std::max(in.at(2 * y, 2 * x, c), in.at(2 * y, 2 * x + 1, c));
        const double below = std::max(in.at(2 * y + 1, 2 * x, c), in.at(2 * y + 1, 2 * x + 1, c));
        out.values.push_back(std::max(above, below));
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

struct Network {
  std::vector<LayerSpec> layers;
  std::vector<std::vector<std::int64_t>> shapes;  // of the parameters
  std::uint64_t seed = 0;                         // of dropout
};

inline Image layer(const Network& network, std::size_t number, const std::vector<Values>& weights,
                   Image in, std::int64_t key, bool training) {
  using Kind = LayerSpec::Kind;
  const LayerSpec& spec = network.layers[number];
  if (spec.kind == Kind::kPool) return pool(in, in.height / 2, in.width / 2);
  const Values& kernel = weights[spec.weights];
  const Values& bias = weights[spec.biases];
  if (spec.kind != Kind::kDense) {
    in = conv(in, network.shapes[spec.weights][0], kernel, bias);
    const bool pooled = spec.kind == Kind::kConvPool;
    return pooled ? pool(in, (in.height + 1) / 2, (in.width + 1) / 2) : in;
  }
  Image out{1, 1, static_cast<std::int64_t>(bias.size()), dense(in.values, kernel, bias)};
  if (spec.relu)
    activate(out.values, training ? spec.dropout : 0, network.seed, static_cast<int>(number), key);
  return out;
}

inline Score score(const Network& network, const std::vector<Values>& weights, const Batch& batch,
                   bool training) {
  Score total;
  const std::int64_t size = std::int64_t{batch.shape[0]} * batch.shape[1] * batch.shape[2];
  for (int n = 0; n < batch.size(); ++n) {
    const auto* begin = batch.images.data() + n * size;
    Image image{batch.shape[0], batch.shape[1], batch.shape[2], Values(begin, begin + size)};
    for (std::size_t i = 0; i < network.layers.size(); ++i)
      image = layer(network, i, weights, std::move(image), batch.keys[n], training);
    const Values& values = image.values;
    const auto largest = std::max_element(values.begin(), values.end());
    double sum = 0;
    for (const double v : values) sum += std::exp(v - *largest);
    total.loss += std::log(sum) + *largest - values[batch.labels[n]];
    if (largest - values.begin() == batch.labels[n]) ++total.hits;
  }
  return total;
}

}  // namespace trainyard::runtime::reference
