// MNIST's file format: a big-endian magic number (0, 0, type, dimensions), one 32-bit length for
// each dimension, then the elements; http://yann.lecun.com/exdb/mnist.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/data/dataset.h"

namespace trainyard::runtime::internal {

// Largest accepted file and content.
inline constexpr std::int64_t kMaxIdxBytes = std::int64_t{16} << 30;
inline constexpr std::int64_t kMaxIdxSide = 65536;

struct IdxImages {
  std::int64_t count = 0;
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> pixels;
};

// Reads a whole file, plain or gzip by its first bytes. `field` is what errors begin with, e.g.
// "data.images".
StatusOr<IdxImages> readIdxImages(const std::string& field, const std::string& path,
                                  const std::string& cache = "");
StatusOr<std::vector<std::uint8_t>> readIdxLabels(const std::string& field, const std::string& path,
                                                  const std::string& cache = "");

// A Dataset over `images` and equally many labels, each below `classes`.
std::unique_ptr<Dataset> makeIdxDataset(IdxImages images, std::vector<std::uint8_t> labels,
                                        int classes);

}  // namespace trainyard::runtime::internal
