// SHA-256 of memory and files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/core/status.h"

namespace trainyard {

// Hashes what update() is given, in order. Not thread-safe; movable (a moved-from object may only
// be destroyed or assigned to).
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  // 64 lower-case hex digits of everything so far; does not end the hash, more may follow.
  std::string hexDigest() const;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Hex SHA-256 of `bytes`.
std::string sha256Hex(std::span<const std::byte> bytes);
std::string sha256Hex(std::string_view text);

// Hex SHA-256 of a file's content, read in pieces. The code of errno (e.g. NOT_FOUND) with the path
// when it cannot be opened or read.
StatusOr<std::string> sha256File(const std::string& path);

}  // namespace trainyard
