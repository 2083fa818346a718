// Objects as files. A file of more than 16 MiB is sent in parts of that size while it is written,
// up to three at a time; what is read of one comes in such parts, too.
#pragma once

#include <memory>

#include "runtime/storage/s3/client.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime::s3 {

class S3Storage : public Storage {
 public:
  explicit S3Storage(std::shared_ptr<Client> client) : client_(std::move(client)) {}

  StatusOr<std::vector<StoredFile>> list(const std::string& folder) override;
  StatusOr<std::shared_ptr<const ReadableFile>> open(const std::string& path) override;
  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path, Writers writers) override;
  Status remove(const std::string& path) override;
  // Objects need none.
  Status makeFolder(const std::string& folder) override;
  Status settle(const std::string& folder) override;
  // Every request carries the SHA-256 of its body, signed.
  bool vouches() const override { return true; }

 private:
  const std::shared_ptr<Client> client_;
};

// By useObjectStores() of storage.h.
void useEnvironment(Environment environment, std::string scratch);
// The one of this process, made when it is first asked for. Whatever is wrong with the environment
// is said each time.
StatusOr<Storage*> storageByEnvironment();

}  // namespace trainyard::runtime::s3
