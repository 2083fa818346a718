#include "runtime/storage/storage.h"

#include <algorithm>

#include "base/core/object_path.h"
#include "fmt/format.h"
#include "runtime/storage/local_storage.h"
#include "runtime/storage/s3/s3_storage.h"

namespace trainyard::runtime {

namespace {

class ReadInOrder : public ByteStream {
 public:
  explicit ReadInOrder(const ReadableFile& file) : file_(file) {}

  StatusOr<std::size_t> next(std::span<std::byte> out) override {
    const auto part = out.first(std::min<std::uint64_t>(out.size(), file_.size() - at_));
    TY_RETURN_IF_ERROR(file_.read(at_, part));
    at_ += part.size();
    return part.size();
  }

 private:
  const ReadableFile& file_;
  std::uint64_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> ReadableFile::stream() const {
  return std::make_unique<ReadInOrder>(*this);
}

Status WritableFile::write(std::string_view text) {
  return write(std::as_bytes(std::span(text.data(), text.size())));
}

bool isRemote(std::string_view path) {
  return isObjectPath(path) || path.starts_with(kTaskScheme);
}

bool mayPass(std::string_view path, const Status& status) {
  return isRemote(path) && !status.ok() && failureClass(status) == FailureClass::kRetry;
}

namespace {

std::unique_ptr<Storage>& inPlaceOfObjectStores() {
  static std::unique_ptr<Storage> storage;
  return storage;
}

std::unique_ptr<Storage>& filesOfTask() {
  static std::unique_ptr<Storage> storage;
  return storage;
}

}  // namespace

void useFilesOfTask(std::unique_ptr<Storage> storage) {
  filesOfTask() = std::move(storage);
}

void useInPlaceOfObjectStores(std::unique_ptr<Storage> storage) {
  inPlaceOfObjectStores() = std::move(storage);
}

StatusOr<Storage*> storageOf(std::string_view path) {
  if (path.starts_with(kTaskScheme)) {
    if (filesOfTask() != nullptr) return filesOfTask().get();
    return absl::FailedPreconditionError("no task has files for this program");
  }
  if (isObjectPath(path)) {
    Storage* const given = inPlaceOfObjectStores().get();
    return given != nullptr ? given : s3::storageByEnvironment();
  }
  static LocalStorage local;
  return &local;
}

void useObjectStores(Environment environment, std::string scratch) {
  s3::useEnvironment(std::move(environment), std::move(scratch));
}

StatusOr<std::vector<StoredFile>> listStored(const std::string& folder) {
  TY_ASSIGN_OR_RETURN(Storage* const storage, storageOf(folder));
  return storage->list(folder);
}

StatusOr<std::shared_ptr<const ReadableFile>> openStored(const std::string& path) {
  TY_ASSIGN_OR_RETURN(Storage* const storage, storageOf(path));
  return storage->open(path);
}

StatusOr<std::unique_ptr<WritableFile>> createStored(const std::string& path, Writers writers) {
  TY_ASSIGN_OR_RETURN(Storage* const storage, storageOf(path));
  return storage->create(path, writers);
}

Status removeStored(const std::string& path) {
  TY_ASSIGN_OR_RETURN(Storage* const storage, storageOf(path));
  return storage->remove(path);
}

Status makeStoredFolder(const std::string& folder) {
  TY_ASSIGN_OR_RETURN(Storage* const storage, storageOf(folder));
  return storage->makeFolder(folder);
}

StatusOr<std::string> readStored(const std::string& path, std::size_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const auto file, openStored(path));
  if (file->size() > max_bytes) {
    return invalidInput(path,
                        fmt::format("{} bytes, at most {} are read", file->size(), max_bytes));
  }
  std::string text(file->size(), '\0');
  TY_RETURN_IF_ERROR(file->read(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

Status writeStored(const std::string& path, std::string_view bytes) {
  TY_ASSIGN_OR_RETURN(const auto file, createStored(path));
  TY_RETURN_IF_ERROR(file->write(bytes));
  return file->commit();
}

}  // namespace trainyard::runtime
