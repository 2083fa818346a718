// An object that is read in parts, or as a whole, of which a copy stays on this machine as long as
// somebody reads it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/process/unique_fd.h"
#include "runtime/storage/s3/client.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime::s3 {

class ObjectReader : public ReadableFile {
 public:
  // Asks for its first bytes: what is small, and the header of a safetensors file, is one request.
  static StatusOr<std::shared_ptr<const ReadableFile>> open(std::shared_ptr<Client> client,
                                                            const std::string& path);

  ObjectReader(std::shared_ptr<Client> client, const std::string& path, ObjectName name,
               ObjectPart head)
      : ReadableFile(path, head.size),
        client_(std::move(client)),
        name_(std::move(name)),
        head_(std::move(head)) {}

  Status read(std::uint64_t offset, std::span<std::byte> out) const override;
  Status readThrough(const std::function<void(std::span<const std::byte>)>& sink) const override;
  std::unique_ptr<ByteStream> stream() const override;
  std::string version() const override { return head_.tag; }

 private:
  class PartsAhead;

  const std::shared_ptr<Client> client_;
  const ObjectName name_;
  const ObjectPart head_;
  mutable std::mutex mutex_;
  mutable UniqueFd copy_;  // without a name; set once it is whole
  mutable std::atomic<bool> copied_ = false;
};

}  // namespace trainyard::runtime::s3
