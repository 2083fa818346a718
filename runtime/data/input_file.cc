#include "runtime/data/internal/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/core/check.h"
#include "base/process/unique_fd.h"
#include "fmt/format.h"

namespace trainyard::runtime::internal {
namespace {

constexpr unsigned kBufferBytes = 1 << 18;
constexpr std::size_t kReadBytesMax = 1 << 30;  // gzread counts in int
constexpr std::int64_t kDeflateRatioMax = 1032;

}  // namespace

// zlib's reader, which passes plain content through and knows gzip by its first bytes.
struct InputFile::Handle {
  explicit Handle(gzFile f) : file(f) {}
  ~Handle() { gzclose_r(file); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  gzFile file;
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
                                                     std::int64_t bytes_max) {
  // Non-blocking, so that a named pipe is refused below instead of waited for.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return errnoStatus(errno, fmt::format("{}: cannot open", place));
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return errnoStatus(errno, fmt::format("{}: cannot read its size", place));
  }
  if (!S_ISREG(info.st_mode)) return invalidInput(place, "no regular file");
  if (info.st_size > bytes_max) {
    return invalidInput(place,
                        fmt::format("{} bytes, expected at most {}", info.st_size, bytes_max));
  }
  const gzFile file = gzdopen(fd.get(), "rb");
  TY_CHECK(file != nullptr, "zlib has memory for a reader");
  fd.release();
  auto handle = std::make_unique<Handle>(file);
  gzbuffer(file, kBufferBytes);
  const bool compressed = gzdirect(file) == 0;
  return std::make_unique<InputFile>(place, std::move(handle), info.st_size, compressed);
}

std::int64_t InputFile::contentBytesMax() const {
  return compressed_ ? file_bytes_ * kDeflateRatioMax : file_bytes_;
}

StatusOr<std::int64_t> InputFile::read(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto want = static_cast<unsigned>(std::min(out.size() - done, kReadBytesMax));
    const int got = gzread(handle_->file, out.data() + done, want);
    if (got > 0) done += static_cast<std::size_t>(got);
    if (got == static_cast<int>(want)) continue;
    int error = Z_OK;
    const int system_error = errno;
    const char* text = gzerror(handle_->file, &error);
    if (error == Z_ERRNO) return errnoStatus(system_error, fmt::format("{}: read", place_));
    if (error == Z_BUF_ERROR) return invalidInput(place_, "truncated: the gzip stream has no end");
    if (error != Z_OK && error != Z_STREAM_END) {
      return invalidInput(place_, fmt::format("damaged gzip stream: {}", text));
    }
    break;
  }
  return static_cast<std::int64_t>(done);
}

}  // namespace trainyard::runtime::internal
