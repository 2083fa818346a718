// A file of images or labels. The first byte says whether the rest is packed before it is read.
#include <limits>

#include "base/core/check.h"
#include "runtime/data/internal/idx.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/gzip.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

constexpr int kClasses = 10;

void check(const Status& status, const std::string& path) {
  TY_CHECK(absl::IsInvalidArgument(status), "a file that is wrong is named so");
  TY_CHECK(std::string(status.message()).find(path) != std::string::npos, "an error has its place");
}

void readFirstAndLast(runtime::internal::IdxImages images) {
  const auto count = static_cast<std::size_t>(images.count);
  TY_CHECK(images.count > 0 && images.height > 0 && images.width > 0, "no dataset is empty");
  TY_CHECK(images.pixels.size() == count * static_cast<std::size_t>(images.height) *
                                       static_cast<std::size_t>(images.width),
           "the pixels are those of all images");
  const auto dataset = runtime::internal::makeIdxDataset(
      std::move(images), std::vector<std::uint8_t>(count), kClasses);
  const std::int64_t samples[] = {0, dataset->size() - 1};
  runtime::Batch batch;
  dataset->read(samples, samples, batch);
}

std::string header(std::initializer_list<std::uint32_t> words) {
  std::string bytes;
  for (const std::uint32_t word : words) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(word >> shift);
  }
  return bytes;
}

}  // namespace

void runIdx(std::string_view input) {
  Choices choices(input);
  const bool pack = (choices.byte() & 1) != 0;
  const std::string_view content = choices.rest();
  const MemoryFile file(pack ? packed(content) : std::string(content));
  auto images = runtime::internal::readIdxImages("data.images", file.path());
  if (!images.ok()) check(images.status(), file.path());
  const auto labels = runtime::internal::readIdxLabels("data.labels", file.path());
  if (!labels.ok()) check(labels.status(), file.path());
  TY_CHECK(!images.ok() || !labels.ok(), "no file is both");
  if (images.ok()) readFirstAndLast(*std::move(images));
}

std::vector<std::string> idxSeeds() {
  const std::string images = header({0x803, 2, 3, 2}) + std::string(12, '\x7f');
  const std::string labels = header({0x801, 5}) + std::string("\0\1\2\3\4", 5);
  std::vector<std::string> seeds = {"", std::string(1, '\0'), std::string(1, '\1')};
  for (const std::string& content :
       {images, labels, labels + "x", header({0x803, 0, 3, 2}), header({0x803, 0xffffffff, 1, 1}),
        header({0x803, 1, 65537, 1}), header({0x803, 0x7fffffff, 65536, 65536}), header({0x801}),
        header({0x802, 5}), header({0x801, 100'000'000})}) {
    seeds.push_back(std::string(1, '\0') + content);
    seeds.push_back(std::string(1, '\1') + content);
  }
  std::string gzip = packed(images);
  seeds.push_back(std::string(1, '\0') + gzip);
  seeds.push_back(std::string(1, '\0') + gzip.substr(0, gzip.size() - 6));
  gzip[gzip.size() - 5] ^= 1;  // of the checksum
  seeds.push_back(std::string(1, '\0') + gzip);
  return seeds;
}

}  // namespace trainyard::fuzz
