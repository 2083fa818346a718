// Files of this machine, or of what is mounted in it.
#pragma once

#include "runtime/storage/storage.h"

namespace trainyard::runtime {

class LocalStorage : public Storage {
 public:
  StatusOr<std::vector<StoredFile>> list(const std::string& folder) override;
  StatusOr<std::shared_ptr<const ReadableFile>> open(const std::string& path) override;
  // As durable_file.h has it.
  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path, Writers writers) override;
  Status remove(const std::string& path) override;
  Status makeFolder(const std::string& folder) override;
  Status settle(const std::string& folder) override;
  bool vouches() const override { return false; }
};

// All of `out` from byte `offset` of an open file on. DATA_LOSS: it ends before. Errors name
// `path`.
Status readFully(int fd, const std::string& path, std::uint64_t offset, std::span<std::byte> out);

}  // namespace trainyard::runtime
