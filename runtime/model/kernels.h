// The parts of a model's pass that are neither convolutions nor matrix products: patches of the
// first convolution, pooling with bias and ReLU, sums of biases, dropout, the loss. Plain
// single-threaded loops over NHWC float32 arrays, no torch; the same input gives the same bits.
// NaN passes through every function, so that a broken weight shows in the loss.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainyard::runtime {

// Images of `count` samples, NHWC.
struct ImageGrid {
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;

  bool operator==(const ImageGrid&) const = default;
  std::int64_t pixels() const { return count * height * width; }
  std::int64_t elements() const { return pixels() * channels; }
  std::int64_t valuesPerImage() const { return height * width * channels; }
  // After a 2x2 pool with stride 2 and SAME padding: an odd last row or column is a window of its
  // own.
  ImageGrid pooled() const { return {count, (height + 1) / 2, (width + 1) / 2, channels}; }
  // After one without padding: an odd last row or column is left out.
  ImageGrid pooledWhole() const { return {count, height / 2, width / 2, channels}; }
};

// out[pixel][ky][kx][channel] = the input under tap (ky, kx) of a convolution with stride 1 and
// SAME padding centred on the pixel; zero outside the image. `kernel` is odd; out holds
// grid.pixels() * kernel * kernel * channels floats. The columns are in the order of an HWIO
// kernel's rows, so that the convolution is one matrix product.
void extractPatches(const float* images, const ImageGrid& grid, int kernel, float* out);

// out = relu(max over each 2x2 window of `in` + bias), which equals pooling relu(in + bias) with a
// quarter of the arithmetic. winners (unless null) gets the number of the window's element,
// row-major, that the gradient belongs to (the first of equal ones), or -1 where ReLU cut it off.
// `in` is `grid`, out and winners are grid.pooled().
void poolBiasRelu(const float* in, const ImageGrid& grid, const float* bias, float* out,
                  std::int32_t* winners);

// The way back: in_grad (all of `grid`, written whole) and the sum over pixels added to bias_grad.
void poolBiasReluBackward(const float* out_grad, const std::int32_t* winners, const ImageGrid& grid,
                          float* in_grad, float* bias_grad);

// out = max over each whole 2x2 window of `in`; winners (unless null) as of poolBiasRelu(). `in` is
// `grid`, out and winners are grid.pooledWhole().
void maxPool(const float* in, const ImageGrid& grid, float* out, std::int32_t* winners);
// The way back: in_grad (all of `grid`, written whole).
void maxPoolBackward(const float* out_grad, const std::int32_t* winners, const ImageGrid& grid,
                     float* in_grad);

// out[pixel][channel] = bias[channel]
void fillPixels(const float* bias, const ImageGrid& grid, float* out);
// out[channel] = the sum over all pixels
void sumPixels(const float* values, const ImageGrid& grid, float* out);

// Which units are dropped. Unit u of the sample with key k in layer l stays when Philox, keyed by
// (seed, l) with counter (k, u / 4), draws word u % 4 at or above `rate` in [0, 1): a function of
// the sample's position alone, whatever batch it is in.
struct Dropout {
  std::uint64_t seed = 0;
  double rate = 0;
  int layer = 0;
};

// values[sample][unit] = relu(value), or 0 where dropped, times 1 / (1 - rate).
// keys: one per sample; keys.size() * units values.
void reluDropout(float* values, std::int64_t units, std::span<const std::int64_t> keys,
                 const Dropout& dropout);
// values = relu(values)
void relu(std::span<float> values);
// grad[i] = output[i] > 0 ? grad[i] * scale : 0, with scale 1 / (1 - rate), or 1 without dropout. A
// unit that ReLU or dropout cut off has output 0.
void reluBackward(std::span<float> grad, const float* output, float scale);
float dropoutScale(double rate);

struct LossSum {
  double loss = 0;        // sum over the samples
  std::int64_t hits = 0;  // samples whose largest logit (the first of equal ones) is their label's
};
// Softmax cross-entropy of logits[sample][class]. grad, unless null, gets softmax - onehot: the
// gradient of the sum. Labels lie in [0, classes).
LossSum softmaxCrossEntropy(const float* logits, std::int64_t classes,
                            std::span<const std::int64_t> labels, float* grad);
// The same of two classes, of which class 1 has logits[sample] and class 0 has none, which counts
// as 0: TensorFlow's sigmoid_cross_entropy_with_logits. grad, unless null, gets sigmoid - label.
// Loss and gradient of a sample are multiplied by its weight, where there are weights.
LossSum sigmoidCrossEntropy(const float* logits, std::span<const std::int64_t> labels, float* grad,
                            std::span<const float> weights = {});

}  // namespace trainyard::runtime
