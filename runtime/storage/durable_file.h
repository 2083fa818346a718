// A file that appears under its name only when it is complete and on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "base/process/unique_fd.h"
#include "base/security/sha256.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {

// Written front to back into PATH.tmp, or the temporary file that is named. Not thread-safe; two
// writers of one temporary file disturb each other. Unless a commit succeeded, the destructor
// removes it. Errors name the path; a full disk or quota is RESOURCE_EXHAUSTED.
class DurableFile : public WritableFile {
 public:
  using WritableFile::write;
  static StatusOr<DurableFile> create(const std::string& path, unsigned mode = 0644,
                                      const std::string& temporary = "");

  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile() override;

  Status write(std::span<const std::byte> bytes) override;
  std::uint64_t size() const override { return size_; }
  std::string sha256() const override { return hash_.hexDigest(); }

  // fsync of the file; commit*() do it where it was not done.
  Status sync() override;
  // Renames over PATH, replacing what is there; fsync of the folder.
  Status commit() override;
  // Gives it the name PATH only if nothing has it, else ALREADY_EXISTS; fsync of the folder.
  Status commitExclusively() override;

 private:
  DurableFile(std::string path, std::string temporary, UniqueFd fd);
  Status failed(int error, std::string_view what) const;
  Status syncFolder() const;

  std::string path_;
  std::string temporary_;  // "" once it is gone
  UniqueFd fd_;
  std::uint64_t size_ = 0;
  bool synced_ = false;
  Sha256 hash_;
};

}  // namespace trainyard::runtime
