// Where the bytes of a data file come from: a file of this machine or an object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/core/status.h"

namespace trainyard::runtime::internal {

// Read front to back. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Puts bytes at the beginning of `out`, which is not empty, and returns how many; 0: there are no
  // more. Errors do not name the file.
  virtual StatusOr<std::size_t> read(std::span<std::uint8_t> out) = 0;
  virtual std::int64_t size() const = 0;
};

// "s3://..." is an object, read ahead, anything else a file of this machine; INVALID_ARGUMENT where
// that is no regular file. With `cache`, a folder of this machine, an object is read from the copy
// that is there of this very version of it; who finds none makes it while reading, and does without
// where it cannot be written. Copies stay until somebody removes them. `place` goes before every
// error of opening.
StatusOr<std::unique_ptr<ByteSource>> openSource(const std::string& place, const std::string& path,
                                                 const std::string& cache);

}  // namespace trainyard::runtime::internal
