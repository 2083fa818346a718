// An object that is sent while it is written.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/security/sha256.h"
#include "runtime/storage/s3/client.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime::s3 {

inline constexpr std::size_t kPartBytes = std::size_t{16} << 20;

class ObjectWriter : public WritableFile {
 public:
  ObjectWriter(std::shared_ptr<Client> client, ObjectName name);
  ~ObjectWriter() override;
  ObjectWriter(const ObjectWriter&) = delete;
  ObjectWriter& operator=(const ObjectWriter&) = delete;

  using WritableFile::write;
  Status write(std::span<const std::byte> bytes) override;
  std::uint64_t size() const override { return size_; }
  std::string sha256() const override { return hash_.hexDigest(); }
  // Of a file that fits into one request nothing is sent before the commit.
  Status sync() override;
  Status commit() override { return finish(/*exclusively=*/false); }
  Status commitExclusively() override { return finish(/*exclusively=*/true); }

 private:
  Status sendPart();
  Status awaitParts(std::size_t left);
  Status finish(bool exclusively);

  const std::shared_ptr<Client> client_;
  const ObjectName name_;
  Sha256 hash_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> part_;  // not on its way
  std::string upload_;           // "": nothing was sent so far, or it is done
  std::vector<std::future<StatusOr<std::string>>> sending_;
  std::vector<std::string> tags_;  // of the parts before those
  Status failed_;
};

}  // namespace trainyard::runtime::s3
