#include "runtime/data/internal/input_file.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "runtime/data/internal/byte_source.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::size_t kBufferBytes = 1 << 18;
constexpr std::size_t kInflateBytesMax = 1 << 30;  // ISA-L counts in 32 bits
constexpr std::int64_t kDeflateRatioMax = 1032;
constexpr std::uint8_t kGzipMagic[] = {0x1f, 0x8b};  // RFC 1952, 2.3.1

std::string_view reasonOf(int code) {
  switch (code) {
    case ISAL_INVALID_BLOCK:
      return "invalid block";
    case ISAL_INVALID_SYMBOL:
      return "invalid symbol";
    case ISAL_INVALID_LOOKBACK:
      return "refers to what is before its beginning";
    case ISAL_INVALID_WRAPPER:
      return "invalid header";
    case ISAL_UNSUPPORTED_METHOD:
      return "unknown method of compression";
    case ISAL_INCORRECT_CHECKSUM:
      return "wrong checksum";
    default:
      return "unknown error";
  }
}

}  // namespace

// What was read of the file and not yet handed out.
struct InputFile::Handle {
  explicit Handle(std::unique_ptr<ByteSource> from)
      : source(std::move(from)), buffer(kBufferBytes) {}

  std::size_t held() const { return end - begin; }
  bool holdsGzip() const {
    return held() >= sizeof(kGzipMagic) &&
           std::memcmp(buffer.data() + begin, kGzipMagic, sizeof(kGzipMagic)) == 0;
  }

  // False at the end of the file.
  StatusOr<bool> fill() {
    std::copy(buffer.begin() + std::ptrdiff_t(begin), buffer.begin() + std::ptrdiff_t(end),
              buffer.begin());
    end -= std::exchange(begin, 0);
    TY_ASSIGN_OR_RETURN(const std::size_t got, source->read(std::span(buffer).subspan(end)));
    end += got;
    return got > 0;
  }

  void expectMember() {
    isal_inflate_init(&stream);
    stream.crc_flag = ISAL_GZIP;
  }

  const std::unique_ptr<ByteSource> source;
  std::vector<std::uint8_t> buffer;
  std::size_t begin = 0, end = 0;
  inflate_state stream;  // of a compressed file
  bool over = false;     // ... whose last member has been read
};

InputFile::InputFile(std::string place, std::unique_ptr<Handle> handle, std::int64_t file_bytes,
                     bool compressed)
    : place_(std::move(place)),
      handle_(std::move(handle)),
      file_bytes_(file_bytes),
      compressed_(compressed) {}

InputFile::~InputFile() = default;

StatusOr<std::unique_ptr<InputFile>> InputFile::open(const std::string& place,
                                                     const std::string& path,
                                                     std::int64_t bytes_max,
                                                     const std::string& cache) {
  TY_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, openSource(place, path, cache));
  const std::int64_t bytes = source->size();
  if (bytes > bytes_max)
    return invalidInput(place, fmt::format("{} bytes, expected at most {}", bytes, bytes_max));
  auto handle = std::make_unique<Handle>(std::move(source));
  TY_RETURN_IF_ERROR(annotate(handle->fill().status(), place));
  const bool compressed = handle->holdsGzip();
  if (compressed) handle->expectMember();
  return std::make_unique<InputFile>(place, std::move(handle), bytes, compressed);
}

std::int64_t InputFile::contentBytesMax() const {
  return compressed_ ? file_bytes_ * kDeflateRatioMax : file_bytes_;
}

StatusOr<std::int64_t> InputFile::read(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto some = compressed_ ? inflate(out.subspan(done)) : copy(out.subspan(done));
    TY_RETURN_IF_ERROR(annotate(some.status(), place_));
    if (*some == 0) break;
    done += *some;
  }
  return static_cast<std::int64_t>(done);
}

StatusOr<std::size_t> InputFile::copy(std::span<std::uint8_t> out) {
  Handle& file = *handle_;
  if (file.held() == 0) {
    if (out.size() >= kBufferBytes) return file.source->read(out);
    TY_RETURN_IF_ERROR(file.fill().status());
  }
  const std::size_t bytes = std::min(out.size(), file.held());
  std::copy_n(file.buffer.data() + file.begin, bytes, out.data());
  file.begin += bytes;
  return bytes;
}

// Members follow each other (RFC 1952, 2.2); what comes after them and is none is passed over, as
// gzip(1) does.
StatusOr<std::size_t> InputFile::inflate(std::span<std::uint8_t> out) {
  Handle& file = *handle_;
  while (!file.over) {
    inflate_state& stream = file.stream;
    stream.next_in = file.buffer.data() + file.begin;
    stream.avail_in = static_cast<std::uint32_t>(file.held());
    stream.next_out = out.data();
    stream.avail_out = static_cast<std::uint32_t>(std::min(out.size(), kInflateBytesMax));
    const std::uint32_t room = stream.avail_out;
    const int code = isal_inflate(&stream);
    const bool moved = stream.avail_in < file.held();
    file.begin = file.end - stream.avail_in;
    if (code < 0)
      return absl::InvalidArgumentError(fmt::format("damaged gzip stream: {}", reasonOf(code)));
    const std::size_t bytes = room - stream.avail_out;
    const bool ended = stream.block_state == ISAL_BLOCK_FINISH;
    if (ended) TY_RETURN_IF_ERROR(nextMember());
    if (bytes > 0) return bytes;
    if (ended || moved) continue;
    TY_ASSIGN_OR_RETURN(const bool more, file.fill());
    if (!more) return absl::InvalidArgumentError("truncated: the gzip stream has no end");
  }
  return 0;
}

Status InputFile::nextMember() {
  Handle& file = *handle_;
  while (file.held() < sizeof(kGzipMagic)) {
    TY_ASSIGN_OR_RETURN(const bool more, file.fill());
    if (!more) break;
  }
  file.over = !file.holdsGzip();
  if (!file.over) file.expectMember();
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::internal
