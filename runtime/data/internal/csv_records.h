// Text files of records whose fields are separated by commas (RFC 4180) or tabs, read front to
// back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/data/internal/input_file.h"

namespace trainyard::runtime::internal {

// Largest accepted file, as it is on disk.
inline constexpr std::int64_t kMaxCsvBytes = std::int64_t{64} << 30;
inline constexpr std::size_t kMaxRecordBytes = 16 << 20;

// What ends a field, and whether quotes mean anything.
enum class CsvForm {
  kCommas,  // RFC 4180
  kTabs,    // without quotes: no field holds a tab or a line end
};

// A record ends with a line feed, with or without a carriage return before it; the last one may do
// without. In the form with commas a field in quotes may hold commas, line ends and quotes, which
// are doubled; quotes begin at the field's first byte. A byte order mark before the first line is
// skipped, and so are empty lines. Bytes are taken as they are, spaces too.
//
// Not thread-safe. Errors begin with the file's place and name the line.
class CsvRecords {
 public:
  static StatusOr<std::unique_ptr<CsvRecords>> open(const std::string& place,
                                                    const std::string& path,
                                                    CsvForm form = CsvForm::kCommas,
                                                    const std::string& cache = "");
  // For open() alone.
  CsvRecords(std::string place, std::unique_ptr<InputFile> file, CsvForm form);

  // The next record; false at the end.
  StatusOr<bool> next();
  // Of the record that next() has read, until the next call.
  std::span<const std::string_view> fields() const { return fields_; }
  // Where it begins, from 1.
  std::int64_t line() const { return line_; }

 private:
  struct Field {
    std::size_t begin;  // in buffer_
    std::size_t size;
    bool doubled;  // quotes within
    bool quoted;
  };
  enum class Found { kRecord, kCut };  // kCut: it goes on behind what the buffer holds

  StatusOr<Found> scan();
  StatusOr<Found> scanQuoted();
  StatusOr<Found> scanPlain();
  StatusOr<Found> scanEnd(bool& more);
  Found cutOrEnd() const { return at_end_ ? Found::kRecord : Found::kCut; }
  Status fill();
  void takeFields();
  Status wrong(std::int64_t line, std::string_view what) const;

  const std::string place_;
  const std::unique_ptr<InputFile> file_;
  const bool quotes_;
  const char separator_;
  std::string buffer_;     // bytes [begin_, end_) are not yet consumed
  std::size_t begin_ = 0;  // of a record
  std::size_t at_ = 0;     // where scan() is
  std::size_t end_ = 0;
  bool started_ = false;
  bool at_end_ = false;         // the file has no more than the buffer
  std::int64_t line_ = 0;       // of the record
  std::int64_t next_line_ = 1;  // where the next one begins
  std::int64_t breaks_ = 0;     // within the record
  std::vector<Field> found_;
  std::vector<std::string_view> fields_;
};

}  // namespace trainyard::runtime::internal
