#include "runtime/model/kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/core/rng.h"

namespace trainyard::runtime {
namespace {

// Copies the taps of every pixel of one image from its zero-framed copy. `Row` is kernel * channels
// when the compiler may know it (a copy of fixed size is two moves), else 0.
template <std::int64_t Row>
void gatherTaps(const float* framed, const ImageGrid& grid, int kernel, float* out) {
  const std::int64_t row = Row > 0 ? Row : kernel * grid.channels;
  const std::int64_t pitch = (grid.width + kernel - 1) * grid.channels;
  for (std::int64_t y = 0; y < grid.height; ++y) {
    for (std::int64_t x = 0; x < grid.width; ++x) {
      const float* tap = framed + y * pitch + x * grid.channels;
      for (int ky = 0; ky < kernel; ++ky, tap += pitch, out += row) {
        std::memcpy(out, tap, static_cast<std::size_t>(row) * sizeof(float));
      }
    }
  }
}

// One window of a 2x2 pool: its (up to) four elements' offsets in floats from the image's start.
// Where the window hangs over the edge, `inside` is false and the offset repeats the first
// element's, which can never beat itself.
struct Window {
  std::array<std::int64_t, 4> offset;
  std::array<bool, 4> inside;
};

Window windowAt(const ImageGrid& grid, std::int64_t row, std::int64_t column) {
  Window window;
  for (int q = 0; q < 4; ++q) {
    const std::int64_t y = 2 * row + q / 2;
    const std::int64_t x = 2 * column + q % 2;
    window.inside[q] = y < grid.height && x < grid.width;
    window.offset[q] = window.inside[q] ? (y * grid.width + x) * grid.channels : window.offset[0];
  }
  return window;
}

// The largest of a window's four in channel c, and its number: the first of equal ones. Negated
// comparisons, because NaN has to win: with `b > v` a NaN would never be taken.
struct Largest {
  float value;
  std::int32_t number;
};
inline Largest largest(const float* const (&in)[4], std::int64_t c) {
  float v = in[0][c];
  std::int32_t number = 0;
  number = !(in[1][c] <= v) ? 1 : number;
  v = !(in[1][c] <= v) ? in[1][c] : v;
  number = !(in[2][c] <= v) ? 2 : number;
  v = !(in[2][c] <= v) ? in[2][c] : v;
  number = !(in[3][c] <= v) ? 3 : number;
  v = !(in[3][c] <= v) ? in[3][c] : v;
  return {v, number};
}

void poolPixel(const float* const (&in)[4], std::int64_t channels, const float* bias, float* out) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const float v = largest(in, c).value + bias[c];
    out[c] = !(v <= 0.0f) ? v : 0.0f;
  }
}

void poolPixelWinners(const float* const (&in)[4], std::int64_t channels, const float* bias,
                      float* out, std::int32_t* winners) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const Largest window = largest(in, c);
    const float v = window.value + bias[c];
    out[c] = !(v <= 0.0f) ? v : 0.0f;
    winners[c] = !(v <= 0.0f) ? window.number : -1;
  }
}

// In the next two the value is read before the condition: a load that only one side needs would
// keep the loop from being vectorised.
void scatterPixel(const float* __restrict grad, const std::int32_t* __restrict winners,
                  std::int32_t number, std::int64_t channels, float* __restrict out) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const float g = grad[c];
    out[c] = winners[c] == number ? g : 0.0f;
  }
}

void addPassed(const float* __restrict grad, const std::int32_t* __restrict winners,
               std::int64_t channels, float* __restrict sum) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const float g = grad[c];
    sum[c] += winners[c] >= 0 ? g : 0.0f;
  }
}

void maxPixel(const float* const (&in)[4], std::int64_t channels, float* out) {
  for (std::int64_t c = 0; c < channels; ++c) out[c] = largest(in, c).value;
}

void maxPixelWinners(const float* const (&in)[4], std::int64_t channels, float* out,
                     std::int32_t* winners) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const Largest window = largest(in, c);
    out[c] = window.value;
    winners[c] = window.number;
  }
}

void addValues(const float* __restrict values, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

// Nothing reaches an odd last row or column of one image.
void clearLeftOut(const ImageGrid& grid, float* image) {
  const std::int64_t line = grid.width * grid.channels;
  if (grid.height % 2 != 0) std::fill_n(image + (grid.height - 1) * line, line, 0.0f);
  if (grid.width % 2 == 0) return;
  for (std::int64_t y = 0; y < grid.height; ++y)
    std::fill_n(image + (y + 1) * line - grid.channels, grid.channels, 0.0f);
}

std::uint64_t dropoutKey(const Dropout& dropout) {
  return mixKey(mixKey(dropout.seed, "dropout"), static_cast<std::uint64_t>(dropout.layer));
}

}  // namespace

void extractPatches(const float* images, const ImageGrid& grid, int kernel, float* out) {
  const std::int64_t margin = kernel / 2;
  const std::int64_t line = grid.width * grid.channels;
  const std::int64_t pitch = (grid.width + kernel - 1) * grid.channels;
  const std::int64_t row = kernel * grid.channels;
  std::vector<float> framed(static_cast<std::size_t>((grid.height + kernel - 1) * pitch), 0.0f);
  for (std::int64_t n = 0; n < grid.count; ++n) {
    for (std::int64_t y = 0; y < grid.height; ++y) {
      std::copy_n(images, line, framed.data() + (y + margin) * pitch + margin * grid.channels);
      images += line;
    }
    if (row == 5) {
      gatherTaps<5>(framed.data(), grid, kernel, out);
    } else {
      gatherTaps<0>(framed.data(), grid, kernel, out);
    }
    out += grid.height * grid.width * kernel * row;
  }
}

void poolBiasRelu(const float* in, const ImageGrid& grid, const float* bias, float* out,
                  std::int32_t* winners) {
  const ImageGrid pooled = grid.pooled();
  for (std::int64_t n = 0; n < grid.count; ++n) {
    for (std::int64_t row = 0; row < pooled.height; ++row) {
      for (std::int64_t column = 0; column < pooled.width; ++column) {
        const Window window = windowAt(grid, row, column);
        const float* const elements[4] = {in + window.offset[0], in + window.offset[1],
                                          in + window.offset[2], in + window.offset[3]};
        if (winners == nullptr) {
          poolPixel(elements, grid.channels, bias, out);
        } else {
          poolPixelWinners(elements, grid.channels, bias, out, winners);
          winners += grid.channels;
        }
        out += grid.channels;
      }
    }
    in += grid.height * grid.width * grid.channels;
  }
}

void poolBiasReluBackward(const float* out_grad, const std::int32_t* winners, const ImageGrid& grid,
                          float* in_grad, float* bias_grad) {
  const ImageGrid pooled = grid.pooled();
  // Summed per image first: adding 25,000 pixels to one float would lose digits.
  std::vector<float> image_bias(static_cast<std::size_t>(grid.channels));
  for (std::int64_t n = 0; n < grid.count; ++n) {
    std::fill(image_bias.begin(), image_bias.end(), 0.0f);
    for (std::int64_t row = 0; row < pooled.height; ++row) {
      for (std::int64_t column = 0; column < pooled.width; ++column) {
        const Window window = windowAt(grid, row, column);
        for (int q = 0; q < 4; ++q) {
          if (!window.inside[q]) continue;
          scatterPixel(out_grad, winners, q, grid.channels, in_grad + window.offset[q]);
        }
        addPassed(out_grad, winners, grid.channels, image_bias.data());
        out_grad += grid.channels;
        winners += grid.channels;
      }
    }
    for (std::int64_t c = 0; c < grid.channels; ++c) bias_grad[c] += image_bias[c];
    in_grad += grid.height * grid.width * grid.channels;
  }
}

void maxPool(const float* in, const ImageGrid& grid, float* out, std::int32_t* winners) {
  const ImageGrid pooled = grid.pooledWhole();
  for (std::int64_t n = 0; n < grid.count; ++n, in += grid.valuesPerImage()) {
    for (std::int64_t row = 0; row < pooled.height; ++row) {
      for (std::int64_t column = 0; column < pooled.width; ++column, out += grid.channels) {
        const float* const first = in + (2 * row * grid.width + 2 * column) * grid.channels;
        const float* const below = first + grid.width * grid.channels;
        const float* const elements[4] = {first, first + grid.channels, below,
                                          below + grid.channels};
        if (winners == nullptr) {
          maxPixel(elements, grid.channels, out);
        } else {
          maxPixelWinners(elements, grid.channels, out, winners);
          winners += grid.channels;
        }
      }
    }
  }
}

void maxPoolBackward(const float* out_grad, const std::int32_t* winners, const ImageGrid& grid,
                     float* in_grad) {
  const ImageGrid pooled = grid.pooledWhole();
  for (std::int64_t n = 0; n < grid.count; ++n, in_grad += grid.valuesPerImage()) {
    clearLeftOut(grid, in_grad);
    for (std::int64_t row = 0; row < pooled.height; ++row) {
      for (std::int64_t column = 0; column < pooled.width; ++column) {
        for (int q = 0; q < 4; ++q) {
          const std::int64_t pixel = (2 * row + q / 2) * grid.width + 2 * column + q % 2;
          scatterPixel(out_grad, winners, q, grid.channels, in_grad + pixel * grid.channels);
        }
        out_grad += grid.channels;
        winners += grid.channels;
      }
    }
  }
}

void fillPixels(const float* bias, const ImageGrid& grid, float* out) {
  for (std::int64_t i = 0; i < grid.pixels(); ++i, out += grid.channels)
    std::copy_n(bias, grid.channels, out);
}

// By rows and images first: adding 50,000 pixels to one float would lose digits.
void sumPixels(const float* values, const ImageGrid& grid, float* out) {
  std::vector<float> line(static_cast<std::size_t>(grid.channels));
  std::vector<float> image(static_cast<std::size_t>(grid.channels));
  std::fill_n(out, grid.channels, 0.0f);
  for (std::int64_t n = 0; n < grid.count; ++n) {
    std::fill(image.begin(), image.end(), 0.0f);
    for (std::int64_t y = 0; y < grid.height; ++y) {
      std::fill(line.begin(), line.end(), 0.0f);
      for (std::int64_t x = 0; x < grid.width; ++x, values += grid.channels)
        addValues(values, grid.channels, line.data());
      addValues(line.data(), grid.channels, image.data());
    }
    addValues(image.data(), grid.channels, out);
  }
}

float dropoutScale(double rate) {
  return static_cast<float>(1.0 / (1.0 - rate));
}

void reluDropout(float* values, std::int64_t units, std::span<const std::int64_t> keys,
                 const Dropout& dropout) {
  const std::uint64_t key = dropoutKey(dropout);
  const float rate = static_cast<float>(dropout.rate);
  const float scale = dropoutScale(dropout.rate);
  for (const std::int64_t sample : keys) {
    for (std::int64_t u = 0; u < units; u += 4) {
      const Philox4 draw =
          philox(key, static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(u / 4));
      const std::int64_t end = std::min<std::int64_t>(4, units - u);
      for (std::int64_t i = 0; i < end; ++i) {
        const float v = values[u + i];
        const bool keep = toUnitFloat(draw.v[i]) >= rate;
        values[u + i] = keep && !(v <= 0.0f) ? v * scale : 0.0f;
      }
    }
    values += units;
  }
}

void relu(std::span<float> values) {
  for (float& v : values) v = !(v <= 0.0f) ? v : 0.0f;
}

void reluBackward(std::span<float> grad, const float* output, float scale) {
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const float g = grad[i] * scale;
    grad[i] = !(output[i] <= 0.0f) ? g : 0.0f;
  }
}

LossSum softmaxCrossEntropy(const float* logits, std::int64_t classes,
                            std::span<const std::int64_t> labels, float* grad) {
  LossSum sum;
  std::vector<double> weight(static_cast<std::size_t>(classes));
  for (const std::int64_t label : labels) {
    const float* largest = std::max_element(logits, logits + classes);
    double total = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      weight[c] = std::exp(static_cast<double>(logits[c]) - *largest);
      total += weight[c];
    }
    sum.loss += std::log(total) - (static_cast<double>(logits[label]) - *largest);
    if (largest - logits == label) ++sum.hits;
    if (grad != nullptr) {
      for (std::int64_t c = 0; c < classes; ++c) {
        grad[c] = static_cast<float>(weight[c] / total - (c == label ? 1.0 : 0.0));
      }
      grad += classes;
    }
    logits += classes;
  }
  return sum;
}

LossSum sigmoidCrossEntropy(const float* logits, std::span<const std::int64_t> labels, float* grad,
                            std::span<const float> weights) {
  LossSum sum;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double logit = logits[i];
    const double weight = weights.empty() ? 1 : weights[i];
    const double sign = labels[i] == 1 ? 1 : -1;
    const double against = -sign * logit;                // the loss is log(1 + exp(against))
    const double power = std::exp(-std::fabs(against));  // at most 1: nothing overflows
    sum.loss += weight * (std::max(against, 0.0) + std::log1p(power));
    if ((logit > 0) == (labels[i] == 1)) ++sum.hits;
    if (grad != nullptr)
      grad[i] = static_cast<float>(weight * -sign * (against >= 0 ? 1 : power) / (1 + power));
  }
  return sum;
}

}  // namespace trainyard::runtime
