#include "runtime/data/internal/record_file.h"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "base/core/crc32c.h"
#include "fmt/format.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kChecksumBytes = 4;

std::uint64_t littleEndian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The checksum stands behind what it is of.
bool isWhole(std::string_view bytes) {
  const std::string_view what = bytes.substr(0, bytes.size() - kChecksumBytes);
  return littleEndian(bytes.substr(what.size())) == maskedCrc32c(std::as_bytes(std::span(what)));
}

std::span<std::uint8_t> writable(char* bytes, std::size_t size) {
  return {reinterpret_cast<std::uint8_t*>(bytes), size};
}

}  // namespace

StatusOr<std::unique_ptr<RecordFile>> RecordFile::open(const std::string& place,
                                                       const std::string& path,
                                                       const std::string& cache) {
  TY_ASSIGN_OR_RETURN(auto file, InputFile::open(place, path, kMaxRecordFileBytes, cache));
  return std::make_unique<RecordFile>(place, std::move(file));
}

RecordFile::RecordFile(std::string place, std::unique_ptr<InputFile> file)
    : place_(std::move(place)), file_(std::move(file)) {}

StatusOr<bool> RecordFile::next() {
  std::array<char, kLengthBytes + kChecksumBytes> head;
  TY_ASSIGN_OR_RETURN(const std::int64_t got, file_->read(writable(head.data(), head.size())));
  if (got == 0) return false;
  ++number_;
  const std::string_view seen(head.data(), static_cast<std::size_t>(got));
  if (seen.size() < head.size()) return wrong("truncated in its length");
  if (!isWhole(seen)) return wrong("its length has the wrong checksum: is this a TFRecord file?");
  const std::uint64_t length = littleEndian(seen.substr(0, kLengthBytes));
  if (length > kMaxTfRecordBytes)
    return wrong(fmt::format("{} bytes, expected at most {}", length, kMaxTfRecordBytes));
  size_ = static_cast<std::size_t>(length);
  const std::size_t want = size_ + kChecksumBytes;
  if (bytes_.size() < want) bytes_.resize(want);
  TY_ASSIGN_OR_RETURN(const std::int64_t body, file_->read(writable(bytes_.data(), want)));
  if (static_cast<std::size_t>(body) < want)
    return wrong(fmt::format("truncated: {} of {} bytes", body, want));
  if (!isWhole(std::string_view(bytes_).substr(0, want)))
    return wrong("its bytes have the wrong checksum");
  return true;
}

std::string_view RecordFile::record() const {
  return std::string_view(bytes_).substr(0, size_);
}

Status RecordFile::wrong(std::string_view what) const {
  return invalidInput(place_, fmt::format("record {}: {}", number_, what));
}

}  // namespace trainyard::runtime::internal
