// An object store of a test: the files of a folder under names below "s3://lab/job".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/storage/local_storage.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {

inline constexpr char kFolderStore[] = "s3://lab/job";

// What a test says of the store, and reads back.
struct FolderStoreStage {
  std::string away;           // what contains it cannot be read
  std::string version = "1";  // of all files
  int streams = 0;            // that were begun
};

class FolderStore : public Storage {
 public:
  // `stage` outlives it.
  FolderStore(std::string folder, FolderStoreStage& stage)
      : folder_(std::move(folder)), stage_(stage) {}

  StatusOr<std::vector<StoredFile>> list(const std::string& folder) override {
    TY_RETURN_IF_ERROR(reach("list"));
    return local_.list(at(folder));
  }
  StatusOr<std::shared_ptr<const ReadableFile>> open(const std::string& path) override {
    TY_RETURN_IF_ERROR(reach(path));
    TY_ASSIGN_OR_RETURN(auto file, local_.open(at(path)));
    return std::make_shared<const File>(path, std::move(file), stage_);
  }
  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                 Writers writers) override {
    return local_.create(at(path), writers);
  }
  Status remove(const std::string& path) override { return local_.remove(at(path)); }
  Status makeFolder(const std::string& folder) override { return local_.makeFolder(at(folder)); }
  Status settle(const std::string& folder) override { return local_.settle(at(folder)); }
  bool vouches() const override { return true; }

 private:
  class File : public ReadableFile {
   public:
    File(std::string path, std::shared_ptr<const ReadableFile> file, FolderStoreStage& stage)
        : ReadableFile(std::move(path), file->size()), file_(std::move(file)), stage_(stage) {}
    Status read(std::uint64_t offset, std::span<std::byte> out) const override {
      return file_->read(offset, out);
    }
    Status readThrough(const std::function<void(std::span<const std::byte>)>& sink) const override {
      return file_->readThrough(sink);
    }
    std::unique_ptr<ByteStream> stream() const override {
      ++stage_.streams;
      return ReadableFile::stream();
    }
    std::string version() const override { return stage_.version; }

   private:
    const std::shared_ptr<const ReadableFile> file_;
    FolderStoreStage& stage_;
  };

  std::string at(const std::string& path) const {
    return folder_ + path.substr(std::string_view(kFolderStore).size());
  }
  Status reach(const std::string& what) const {
    if (stage_.away.empty() || what.find(stage_.away) == std::string::npos) return absl::OkStatus();
    return absl::UnavailableError("away");
  }

  LocalStorage local_;
  const std::string folder_;
  FolderStoreStage& stage_;
};

}  // namespace trainyard::runtime
