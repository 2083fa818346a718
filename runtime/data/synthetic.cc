#include "runtime/data/internal/synthetic.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/core/rng.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/data/internal/pixels.h"

namespace trainyard::runtime::internal {
namespace {

constexpr int kBlock = 4;  // side of a pattern's block, in pixels
constexpr std::uint64_t kPatternKey = 0x7472'6169'6e79'6172;
constexpr std::uint64_t kNoiseKey = 0x6e6f'6973'655f'6b65;

// The bytes of philox(key, 0, number), philox(key, 1, number), ...
void randomBytes(std::uint64_t key, std::uint64_t number, std::span<std::uint8_t> out) {
  std::size_t done = 0;
  for (std::uint64_t block = 0; done < out.size(); ++block) {
    const Philox4 words = philox(key, block, number);
    const std::size_t count = std::min(out.size() - done, sizeof(words.v));
    std::memcpy(out.data() + done, words.v, count);
    done += count;
  }
}

int blocks(int pixels) {
  return (pixels + kBlock - 1) / kBlock;
}

// A class's pattern: for each row of blocks, the values along the width (each block's repeated).
void drawPattern(std::uint64_t label, std::array<int, 3> shape, std::span<std::uint8_t> out) {
  const auto [height, width, channels] = shape;
  const std::size_t row_cells = std::size_t{1} * blocks(width) * channels;
  std::vector<std::uint8_t> cells(blocks(height) * row_cells);
  randomBytes(kPatternKey, label, cells);
  std::uint8_t* to = out.data();
  for (int block_row = 0; block_row < blocks(height); ++block_row) {
    const std::uint8_t* row = cells.data() + block_row * row_cells;
    for (int x = 0; x < width; ++x) {
      to = std::copy_n(row + (x / kBlock) * channels, channels, to);
    }
  }
}

class SyntheticDataset : public Dataset {
 public:
  explicit SyntheticDataset(const SyntheticSpec& spec) : spec_(spec) {
    const auto [height, width, channels] = spec.shape;
    row_bytes_ = std::int64_t{1} * width * channels;
    pattern_bytes_ = blocks(height) * row_bytes_;
    patterns_.resize(pattern_bytes_ * spec.classes);
    for (int c = 0; c < spec.classes; ++c) {
      drawPattern(static_cast<std::uint64_t>(c), spec.shape,
                  std::span(patterns_).subspan(c * pattern_bytes_, pattern_bytes_));
    }
    fingerprint_ =
        sha256Hex(fmt::format("trainyard synthetic 1: {}x{}x{}, {} classes, {} from {}\n", height,
                              width, channels, spec.classes, spec.samples, spec.first));
  }

  std::int64_t size() const override { return spec_.samples; }
  std::array<int, 3> shape() const override { return spec_.shape; }
  int classes() const override { return spec_.classes; }
  const std::string& fingerprint() const override { return fingerprint_; }

  void read(std::span<const std::int64_t> samples, std::span<const std::int64_t> keys,
            Batch& out) const override {
    prepareBatch(shape(), samples, keys, size(), out);
    const std::int64_t image = std::int64_t{1} * spec_.shape[0] * spec_.shape[1] * spec_.shape[2];
    std::vector<std::uint8_t> pixels(image);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::int64_t number = spec_.first + samples[i];
      const auto label = static_cast<int>(number % spec_.classes);
      draw(number, label, pixels);
      toUnitFloats(pixels, out.images.data() + static_cast<std::int64_t>(i) * image);
      out.labels[i] = label;
    }
  }

 private:
  void draw(std::int64_t number, int label, std::span<std::uint8_t> pixels) const {
    randomBytes(kNoiseKey, static_cast<std::uint64_t>(number), pixels);
    const auto pattern = std::span(patterns_).subspan(label * pattern_bytes_, pattern_bytes_);
    for (int y = 0; y < spec_.shape[0]; ++y) {
      blendPixels(pattern.subspan((y / kBlock) * row_bytes_, row_bytes_),
                  pixels.data() + y * row_bytes_);
    }
  }

  const SyntheticSpec spec_;
  std::int64_t row_bytes_ = 0;          // of a row of pixels
  std::int64_t pattern_bytes_ = 0;      // of one class
  std::vector<std::uint8_t> patterns_;  // class by class
  std::string fingerprint_;
};

}  // namespace

std::unique_ptr<Dataset> makeSyntheticDataset(const SyntheticSpec& spec) {
  return std::make_unique<SyntheticDataset>(spec);
}

}  // namespace trainyard::runtime::internal
