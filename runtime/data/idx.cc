#include "runtime/data/internal/idx.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/data/internal/input_file.h"
#include "runtime/data/internal/pixels.h"
#include "runtime/data/sample_stream.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::uint32_t kUnsignedBytes = 0x00000800;
constexpr std::int64_t kGrowBytes = 16 << 20;
constexpr std::int64_t kReserveBytesMax = 256 << 20;

std::uint32_t bigEndian(const std::uint8_t* b) {
  return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
}

struct Header {
  std::array<std::int64_t, 3> lengths{1, 1, 1};
  std::int64_t content_bytes = 1;  // without the header
};

// Magic and lengths of a file of unsigned bytes in `dimensions` dimensions.
StatusOr<Header> readHeader(const std::string& place, int dimensions, InputFile& file) {
  std::array<std::uint8_t, 16> bytes{};
  const std::int64_t size = 4 + 4 * dimensions;
  TY_ASSIGN_OR_RETURN(const std::int64_t got, file.read(std::span(bytes).first(size)));
  const std::uint32_t expected = kUnsignedBytes + static_cast<std::uint32_t>(dimensions);
  const std::uint32_t magic = bigEndian(bytes.data());
  if (got >= 4 && magic != expected) {
    return invalidInput(place, fmt::format("magic 0x{:08x}, expected 0x{:08x} (unsigned bytes, {} "
                                           "dimension{})",
                                           magic, expected, dimensions, dimensions > 1 ? "s" : ""));
  }
  if (got < size) {
    return invalidInput(place,
                        fmt::format("truncated: {} bytes, expected a header of {}", got, size));
  }
  Header header;
  for (int d = 0; d < dimensions; ++d) {
    const std::int64_t length = bigEndian(bytes.data() + 4 + 4 * d);
    const std::int64_t limit = d == 0 ? kMaxSamples : kMaxIdxSide;
    if (length < 1 || length > limit) {
      return invalidInput(
          place, fmt::format("dimension {} has length {}, expected 1 to {}", d, length, limit));
    }
    header.lengths[d] = length;
    // The limits keep the product below 2^59.
    header.content_bytes *= length;
  }
  if (header.content_bytes > kMaxIdxBytes) {
    return invalidInput(place, fmt::format("{} bytes of content, expected at most {}",
                                           header.content_bytes, kMaxIdxBytes));
  }
  return header;
}

Status truncated(const std::string& place, std::int64_t got, const Header& header,
                 std::string_view what) {
  return invalidInput(place, fmt::format("truncated: {} bytes of content, expected {} ({} {})", got,
                                         header.content_bytes, header.lengths[0], what));
}

// Exactly the content that the header announces, then the end.
StatusOr<std::vector<std::uint8_t>> readContent(const std::string& place, const Header& header,
                                                std::string_view what, InputFile& file) {
  std::vector<std::uint8_t> content;
  // A header that lies costs no more memory than the file can fill.
  content.reserve(std::min({header.content_bytes, file.contentBytesMax(), kReserveBytesMax}));
  std::int64_t have = 0;
  while (have < header.content_bytes) {
    const std::int64_t piece = std::min(header.content_bytes - have, kGrowBytes);
    content.resize(have + piece);
    TY_ASSIGN_OR_RETURN(const std::int64_t got, file.read(std::span(content).subspan(have)));
    have += got;
    if (got < piece) return truncated(place, have, header, what);
  }
  std::array<std::uint8_t, 1> more{};
  TY_ASSIGN_OR_RETURN(const std::int64_t trailing, file.read(more));
  if (trailing != 0) {
    return invalidInput(place, fmt::format("bytes after the end: expected {} bytes of content "
                                           "({} {}) and no more",
                                           header.content_bytes, header.lengths[0], what));
  }
  return content;
}

class IdxDataset : public Dataset {
 public:
  IdxDataset(IdxImages images, std::vector<std::uint8_t> labels, int classes)
      : images_(std::move(images)), labels_(std::move(labels)), classes_(classes) {
    TY_CHECK(images_.count == static_cast<std::int64_t>(labels_.size()),
             "openData has compared the counts");
    Sha256 hash;
    hash.update(fmt::format("trainyard images 1: {} of {}x{}x1, {} classes\n", images_.count,
                            images_.height, images_.width, classes_));
    hash.update(std::as_bytes(std::span(images_.pixels)));
    hash.update(std::as_bytes(std::span(labels_)));
    fingerprint_ = hash.hexDigest();
  }

  std::int64_t size() const override { return images_.count; }
  std::array<int, 3> shape() const override { return {images_.height, images_.width, 1}; }
  int classes() const override { return classes_; }
  const std::string& fingerprint() const override { return fingerprint_; }

  void read(std::span<const std::int64_t> samples, std::span<const std::int64_t> keys,
            Batch& out) const override {
    const std::int64_t image = std::int64_t{images_.height} * images_.width;
    prepareBatch(shape(), samples, keys, size(), out);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::int64_t sample = samples[i];
      toUnitFloats(std::span(images_.pixels).subspan(sample * image, image),
                   out.images.data() + static_cast<std::int64_t>(i) * image);
      out.labels[i] = labels_[sample];
    }
  }

 private:
  const IdxImages images_;
  const std::vector<std::uint8_t> labels_;
  const int classes_;
  std::string fingerprint_;
};

}  // namespace

StatusOr<IdxImages> readIdxImages(const std::string& field, const std::string& path,
                                  const std::string& cache) {
  const std::string place = fmt::format("{}: {}", field, path);
  TY_ASSIGN_OR_RETURN(const auto file, InputFile::open(place, path, kMaxIdxBytes, cache));
  TY_ASSIGN_OR_RETURN(const Header header, readHeader(place, 3, *file));
  const std::string what = fmt::format("images of {}x{}", header.lengths[1], header.lengths[2]);
  IdxImages images;
  images.count = header.lengths[0];
  images.height = static_cast<int>(header.lengths[1]);
  images.width = static_cast<int>(header.lengths[2]);
  TY_ASSIGN_OR_RETURN(images.pixels, readContent(place, header, what, *file));
  return images;
}

StatusOr<std::vector<std::uint8_t>> readIdxLabels(const std::string& field, const std::string& path,
                                                  const std::string& cache) {
  const std::string place = fmt::format("{}: {}", field, path);
  TY_ASSIGN_OR_RETURN(const auto file, InputFile::open(place, path, kMaxIdxBytes, cache));
  TY_ASSIGN_OR_RETURN(const Header header, readHeader(place, 1, *file));
  return readContent(place, header, "labels", *file);
}

std::unique_ptr<Dataset> makeIdxDataset(IdxImages images, std::vector<std::uint8_t> labels,
                                        int classes) {
  return std::make_unique<IdxDataset>(std::move(images), std::move(labels), classes);
}

}  // namespace trainyard::runtime::internal
