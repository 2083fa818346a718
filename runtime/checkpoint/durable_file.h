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

namespace trainyard::runtime {

// Written front to back into PATH.tmp, or the temporary file that is named. Not thread-safe; two
// writers of one temporary file disturb each other. Unless a commit succeeded, the destructor
// removes it. Errors name the path; a full disk or quota is RESOURCE_EXHAUSTED.
class DurableFile {
 public:
  static StatusOr<DurableFile> create(const std::string& path, unsigned mode = 0644,
                                      const std::string& temporary = "");

  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  ~DurableFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);

  std::uint64_t size() const { return size_; }
  std::string sha256() const { return hash_.hexDigest(); }

  // fsync of the file; commit*() do it where it was not done.
  Status sync();
  // Renames over PATH, replacing what is there; fsync of the folder.
  Status commit();
  // Gives it the name PATH only if nothing has it, else ALREADY_EXISTS; fsync of the folder.
  Status commitExclusively();

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
