// Files of TensorFlow's records, read front to back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "runtime/data/internal/input_file.h"

namespace trainyard::runtime::internal {

// Largest accepted file, as it is on disk.
inline constexpr std::int64_t kMaxRecordFileBytes = std::int64_t{64} << 30;
inline constexpr std::uint64_t kMaxTfRecordBytes = 16 << 20;

// TFRecord (tensorflow/core/lib/io/record_writer.h): of each record its length (64 bits), the
// masked CRC of the length, the bytes, their masked CRC; numbers are little-endian. The whole file
// may be gzip. (A plain one whose first record has 35,615 bytes, or a multiple of 65,536 more,
// begins as gzip does, and is refused as damaged.)
//
// Not thread-safe. Errors begin with the file's place and name the record.
class RecordFile {
 public:
  static StatusOr<std::unique_ptr<RecordFile>> open(const std::string& place,
                                                    const std::string& path,
                                                    const std::string& cache = "");
  // For open() alone.
  RecordFile(std::string place, std::unique_ptr<InputFile> file);

  // The next record; false at the end.
  StatusOr<bool> next();
  // That next() has read, until the next call.
  std::string_view record() const;
  // From 1.
  std::int64_t number() const { return number_; }

 private:
  Status wrong(std::string_view what) const;

  const std::string place_;
  const std::unique_ptr<InputFile> file_;
  std::string bytes_;  // of the record, then its checksum; may be longer
  std::size_t size_ = 0;
  std::int64_t number_ = 0;
};

}  // namespace trainyard::runtime::internal
