// A file read front to back, unpacked on the way when it is gzip.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/core/status.h"

namespace trainyard::runtime::internal {

// Not thread-safe. Errors begin with the file's place.
class InputFile {
  struct Handle;

 public:
  // Refuses what is no regular file or larger than `bytes_max`. `place` goes before every error;
  // `cache` as of openSource().
  static StatusOr<std::unique_ptr<InputFile>> open(const std::string& place,
                                                   const std::string& path, std::int64_t bytes_max,
                                                   const std::string& cache = "");
  // For open() alone: nobody else has a Handle.
  InputFile(std::string place, std::unique_ptr<Handle> handle, std::int64_t file_bytes,
            bool compressed);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Fills `out`, or less at the end of the content; returns how many bytes. A damaged or truncated
  // gzip stream is INVALID_ARGUMENT.
  StatusOr<std::int64_t> read(std::span<std::uint8_t> out);

  bool compressed() const { return compressed_; }
  // Most bytes that the content can have: the file's size, or gzip's limit of 1032 to 1.
  std::int64_t contentBytesMax() const;

 private:
  // Into the beginning of `out`, which is not empty; 0: the content has ended.
  StatusOr<std::size_t> copy(std::span<std::uint8_t> out);
  StatusOr<std::size_t> inflate(std::span<std::uint8_t> out);
  Status nextMember();

  std::string place_;
  std::unique_ptr<Handle> handle_;
  std::int64_t file_bytes_;
  bool compressed_;
};

}  // namespace trainyard::runtime::internal
