#include "runtime/data/internal/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/retry_interrupted.h"
#include "base/process/unique_fd.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime::internal {
namespace {

class FileSource : public ByteSource {
 public:
  FileSource(UniqueFd fd, std::int64_t size) : fd_(std::move(fd)), size_(size) {}

  StatusOr<std::size_t> read(std::span<std::uint8_t> out) override {
    const ssize_t got = retryInterrupted([&] { return ::read(fd_.get(), out.data(), out.size()); });
    if (got < 0) return errnoStatus(errno, "read");
    return static_cast<std::size_t>(got);
  }
  std::int64_t size() const override { return size_; }

 private:
  const UniqueFd fd_;
  const std::int64_t size_;
};

StatusOr<std::unique_ptr<ByteSource>> openFile(const std::string& place, const std::string& path) {
  // Non-blocking, so that a named pipe is refused below instead of waited for.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return errnoStatus(errno, fmt::format("{}: cannot open", place));
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return errnoStatus(errno, fmt::format("{}: cannot read its size", place));
  }
  if (!S_ISREG(info.st_mode)) return invalidInput(place, "no regular file");
  return std::make_unique<FileSource>(std::move(fd), info.st_size);
}

// What a storage says, without the path that it names: places do.
Status unnamed(const Status& status, const std::string& path) {
  const std::string prefix = path + ": ";
  const std::string message(status.message());
  if (!message.starts_with(prefix)) return status;
  Status bare(status.code(), message.substr(prefix.size()));
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { bare.SetPayload(type, payload); });
  return bare;
}

// A copy that appears under its name once it is whole. Whoever reads does without where it fails.
class Copy {
 public:
  Copy(std::string name, std::string path) : name_(std::move(name)), path_(std::move(path)) {
    auto file = createStored(name_, Writers::kSeveral);
    if (file.ok()) {
      file_ = *std::move(file);
    } else {
      giveUp(file.status());
    }
  }

  void take(std::span<const std::byte> bytes) {
    if (file_ == nullptr) return;
    if (const Status written = file_->write(bytes); !written.ok()) giveUp(written);
  }
  void finish() {
    if (file_ == nullptr) return;
    if (const Status kept = file_->commit(); !kept.ok()) return giveUp(kept);
    TY_INFO("{} is kept as {}", path_, name_);
    file_.reset();
  }

 private:
  void giveUp(const Status& why) {
    TY_WARN("{}: no copy is kept: {}", path_, fromAbsl(why.message()));
    file_.reset();
  }

  const std::string name_;
  const std::string path_;  // of the object
  std::unique_ptr<WritableFile> file_;
};

class ObjectSource : public ByteSource {
 public:
  ObjectSource(std::shared_ptr<const ReadableFile> object, std::unique_ptr<Copy> copy)
      : object_(std::move(object)), stream_(object_->stream()), copy_(std::move(copy)) {}

  StatusOr<std::size_t> read(std::span<std::uint8_t> out) override {
    const StatusOr<std::size_t> bytes = stream_->next(std::as_writable_bytes(out));
    if (!bytes.ok()) return unnamed(bytes.status(), object_->path());
    const std::size_t got = *bytes;
    read_ += static_cast<std::int64_t>(got);
    if (copy_ != nullptr) copy_->take(std::as_bytes(out.first(got)));
    // Readers may stop at the last byte that means something to them.
    if (read_ == size()) finishCopy();
    return got;
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(object_->size()); }

 private:
  void finishCopy() {
    if (const auto copy = std::exchange(copy_, nullptr)) copy->finish();
  }

  const std::shared_ptr<const ReadableFile> object_;
  const std::unique_ptr<ByteStream> stream_;
  std::unique_ptr<Copy> copy_;  // null: none is made
  std::int64_t read_ = 0;
};

// Of this path, version and size.
std::string copyName(const std::string& cache, const ReadableFile& object) {
  return fmt::format(
      "{}/{}", cache,
      sha256Hex(fmt::format("{}\n{}\n{}", object.path(), object.version(), object.size())));
}

StatusOr<std::unique_ptr<ByteSource>> openObject(const std::string& place, const std::string& path,
                                                 const std::string& cache) {
  auto object = openStored(path);
  if (!object.ok()) return annotate(unnamed(object.status(), path), place);
  std::unique_ptr<Copy> copy;
  if (!cache.empty() && !(*object)->version().empty()) {
    const std::string name = copyName(cache, **object);
    auto kept = openFile(place, name);
    if (kept.ok() && (*kept)->size() == static_cast<std::int64_t>((*object)->size())) {
      TY_INFO("{} is read from {}", path, name);
      return kept;
    }
    copy = std::make_unique<Copy>(name, path);
  }
  return std::make_unique<ObjectSource>(*std::move(object), std::move(copy));
}

}  // namespace

StatusOr<std::unique_ptr<ByteSource>> openSource(const std::string& place, const std::string& path,
                                                 const std::string& cache) {
  return isRemote(path) ? openObject(place, path, cache) : openFile(place, path);
}

}  // namespace trainyard::runtime::internal
