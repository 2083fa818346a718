// Files of checkpoints by their paths: of a folder of this machine, of an object store
// ("s3://BUCKET/PREFIX/NAME", runtime/storage/s3), or of the task that has the disk
// ("task://checkpoints/NAME", runtime/files). Whoever reads and writes checkpoints does not
// know which. A file appears whole or not at all, and its content never changes; folders are flat.
//
// All calls block for the disk or the network and may be made from any thread. Errors name the
// path. Of an object store what passes by itself was tried again for some seconds, and is
// UNAVAILABLE then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"

namespace trainyard::runtime {

struct StoredFile {
  std::string name;  // within its folder
  std::uint64_t size = 0;
  std::int64_t modified_ns =
      0;  // since 1970 by the clock of who keeps it; of objects whole seconds
};

// The bytes of a file, front to back. Not thread-safe.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Puts the next ones at the beginning of `out`, which is not empty, and returns how many; 0: the
  // file is at its end. DATA_LOSS: it ends before it should.
  virtual StatusOr<std::size_t> next(std::span<std::byte> out) = 0;
};

// Open for reading. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  // All of `out` from byte `offset` on. DATA_LOSS: the file ends before.
  virtual Status read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  // Hands over all of it, front to back, in pieces. What is read() afterwards may come from a copy
  // that was kept of it.
  virtual Status readThrough(const std::function<void(std::span<const std::byte>)>& sink) const = 0;
  // All of it again, read ahead where that helps. Must not outlive the file.
  virtual std::unique_ptr<ByteStream> stream() const;
  // Differs from that of other content under the same name; "": nothing tells them apart.
  virtual std::string version() const { return {}; }

 protected:
  ReadableFile(std::string path, std::uint64_t size) : path_(std::move(path)), size_(size) {}

 private:
  const std::string path_;
  const std::uint64_t size_;
};

// Written front to back. Unless a commit succeeded nothing of it stays once this is gone. Not
// thread-safe.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // RESOURCE_EXHAUSTED: no space is left.
  virtual Status write(std::span<const std::byte> bytes) = 0;
  Status write(std::string_view text);
  virtual std::uint64_t size() const = 0;
  virtual std::string sha256() const = 0;
  // What was written is kept, without a name so far; commit*() do it where it was not done.
  virtual Status sync() = 0;
  // It has its name, durably, in place of what had it.
  virtual Status commit() = 0;
  // The same only if nothing has the name, else ALREADY_EXISTS.
  virtual Status commitExclusively() = 0;
};

// Who may write a file of one name at the same time.
enum class Writers { kOne, kSeveral };

// The files of one kind of place. Paths are those of its kind.
class Storage {
 public:
  virtual ~Storage() = default;
  // Without order. A folder that is not there has none.
  virtual StatusOr<std::vector<StoredFile>> list(const std::string& folder) = 0;
  // NOT_FOUND where nothing has the name, DATA_LOSS where it is no regular file.
  virtual StatusOr<std::shared_ptr<const ReadableFile>> open(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                         Writers writers) = 0;
  // OK where nothing has the name.
  virtual Status remove(const std::string& path) = 0;
  // A folder that tasks share is there.
  virtual Status makeFolder(const std::string& folder) = 0;
  // Removals stay so even after a power cut.
  virtual Status settle(const std::string& folder) = 0;
  // What it took was checked against a SHA-256 then, and it vouches for it since: whether a file is
  // there and has its size says whether it is whole.
  virtual bool vouches() const = 0;
};

inline constexpr std::string_view kTaskScheme = "task://";

// Of a path: "s3://..." is an object's (INVALID_ARGUMENT where the environment does not say how to
// get there, runtime/storage/s3/config.h), "task://..." another task's (FAILED_PRECONDITION where
// there is none), anything else a file of this machine. Lives as long as the process.
StatusOr<Storage*> storageOf(std::string_view path);
// Whether what lies there is of an object store or another task, so that looking at it costs a
// request.
bool isRemote(std::string_view path);
// Of a failure to read what lies there: an object store, or another task, may answer again. (A disk
// that cannot be read does not mend itself by waiting.) False for OK.
bool mayPass(std::string_view path, const Status& status);

// The value of a variable of the environment; "": it is not set.
using Environment = std::function<std::string(const char* name)>;
// By which object stores are reached from now on (runtime/storage/s3/config.h); `scratch` is where
// copies are kept of what is read as a whole, "": what the environment says. For main files, before
// the first path of an object store; without, those are refused.
void useObjectStores(Environment environment, std::string scratch = "");
// Of all paths of another task's from now on: for main files, before the first of them.
void useFilesOfTask(std::unique_ptr<Storage> storage);
// Of all paths of object stores from now on, in place of that: for tests. Null: no more.
void useInPlaceOfObjectStores(std::unique_ptr<Storage> storage);

// The verbs of storageOf(path).
StatusOr<std::vector<StoredFile>> listStored(const std::string& folder);
StatusOr<std::shared_ptr<const ReadableFile>> openStored(const std::string& path);
StatusOr<std::unique_ptr<WritableFile>> createStored(const std::string& path,
                                                     Writers writers = Writers::kOne);
Status removeStored(const std::string& path);
Status makeStoredFolder(const std::string& folder);

// The whole file. NOT_FOUND when there is none, INVALID_ARGUMENT when it holds more than
// `max_bytes`.
StatusOr<std::string> readStored(const std::string& path, std::size_t max_bytes);
// The whole content of a new file, in place of what has the name.
Status writeStored(const std::string& path, std::string_view bytes);

}  // namespace trainyard::runtime
