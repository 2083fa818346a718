#include "runtime/data/internal/csv_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "fmt/format.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::size_t kFirstBufferBytes = 1 << 18;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

using Bytes = std::array<bool, 256>;

constexpr Bytes bytesOf(std::string_view characters) {
  Bytes bytes{};
  for (const char c : characters) bytes[static_cast<unsigned char>(c)] = true;
  return bytes;
}

// What ends a field without quotes, or may not be in it.
constexpr Bytes kEndsByComma = bytesOf(",\n\r\"");
constexpr Bytes kEndsByTab = bytesOf("\t\n\r");

// Each doubled quote becomes one; the new size.
std::size_t undouble(char* text, std::size_t size) {
  std::size_t to = 0;
  for (std::size_t from = 0; from < size; ++from) {
    text[to++] = text[from];
    if (text[from] == '"') ++from;
  }
  return to;
}

}  // namespace

StatusOr<std::unique_ptr<CsvRecords>> CsvRecords::open(const std::string& place,
                                                       const std::string& path, CsvForm form,
                                                       const std::string& cache) {
  TY_ASSIGN_OR_RETURN(auto file, InputFile::open(place, path, kMaxCsvBytes, cache));
  return std::make_unique<CsvRecords>(place, std::move(file), form);
}

CsvRecords::CsvRecords(std::string place, std::unique_ptr<InputFile> file, CsvForm form)
    : place_(std::move(place)),
      file_(std::move(file)),
      quotes_(form == CsvForm::kCommas),
      separator_(quotes_ ? ',' : '\t') {}

StatusOr<bool> CsvRecords::next() {
  for (;;) {
    if (at_end_ && begin_ == end_) return false;
    TY_ASSIGN_OR_RETURN(const Found found, scan());
    if (found == Found::kCut) {
      TY_RETURN_IF_ERROR(fill());
      continue;
    }
    line_ = next_line_;
    next_line_ += breaks_ + 1;
    begin_ = at_;
    const bool empty = found_.size() == 1 && found_[0].size == 0 && !found_[0].quoted;
    if (empty) continue;
    takeFields();
    return true;
  }
}

// From the record's first byte, also when it was cut before: that is rare.
StatusOr<CsvRecords::Found> CsvRecords::scan() {
  at_ = begin_;
  breaks_ = 0;
  found_.clear();
  for (bool more = true; more;) {
    const bool quoted = quotes_ && at_ < end_ && buffer_[at_] == '"';
    TY_ASSIGN_OR_RETURN(const Found field, quoted ? scanQuoted() : scanPlain());
    if (field == Found::kCut) return field;
    TY_ASSIGN_OR_RETURN(const Found end, scanEnd(more));
    if (end == Found::kCut) return end;
  }
  return Found::kRecord;
}

StatusOr<CsvRecords::Found> CsvRecords::scanPlain() {
  const char* const bytes = buffer_.data();
  const Bytes& ends = quotes_ ? kEndsByComma : kEndsByTab;
  std::size_t at = at_;
  while (at < end_ && !ends[static_cast<unsigned char>(bytes[at])]) ++at;
  found_.push_back({.begin = at_, .size = at - at_, .doubled = false, .quoted = false});
  at_ = at;
  if (at == end_) return cutOrEnd();
  if (bytes[at] == '"') {
    return wrong(next_line_ + breaks_, "a quote in a field that does not begin with one");
  }
  return Found::kRecord;
}

StatusOr<CsvRecords::Found> CsvRecords::scanQuoted() {
  const std::size_t begin = ++at_;
  const std::int64_t line = next_line_ + breaks_;
  bool doubled = false;
  for (;;) {
    const auto* const quote =
        static_cast<const char*>(std::memchr(buffer_.data() + at_, '"', end_ - at_));
    if (quote == nullptr) {
      if (at_end_) return wrong(line, "a quote that nothing closes");
      return Found::kCut;
    }
    at_ = static_cast<std::size_t>(quote - buffer_.data()) + 1;
    if (at_ == end_ && !at_end_) return Found::kCut;
    if (at_ == end_ || buffer_[at_] != '"') break;
    doubled = true;
    ++at_;
  }
  const std::size_t size = at_ - 1 - begin;
  const char* const text = buffer_.data() + begin;
  breaks_ += std::count(text, text + size, '\n');
  found_.push_back({.begin = begin, .size = size, .doubled = doubled, .quoted = true});
  return Found::kRecord;
}

// What is behind a field. `more`: another one.
StatusOr<CsvRecords::Found> CsvRecords::scanEnd(bool& more) {
  more = false;
  if (at_ == end_) return cutOrEnd();
  const char c = buffer_[at_++];
  more = c == separator_;
  if (more || c == '\n') return Found::kRecord;
  if (c != '\r') {
    return wrong(next_line_ + breaks_, "text behind a closing quote, expected a comma");
  }
  if (at_ == end_ && !at_end_) return Found::kCut;
  if (at_ == end_ || buffer_[at_] != '\n') {
    return wrong(next_line_ + breaks_, "a carriage return, expected a line feed behind it");
  }
  ++at_;
  return Found::kRecord;
}

Status CsvRecords::fill() {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
  end_ -= begin_;
  begin_ = 0;
  if (end_ >= kMaxRecordBytes) {
    return wrong(next_line_, fmt::format("a record of more than {} bytes{}", kMaxRecordBytes,
                                         quotes_ ? ": is a quote not closed?" : ""));
  }
  if (end_ == buffer_.size()) buffer_.resize(std::max(kFirstBufferBytes, 2 * buffer_.size()));
  const std::span<std::uint8_t> room(reinterpret_cast<std::uint8_t*>(buffer_.data()) + end_,
                                     buffer_.size() - end_);
  TY_ASSIGN_OR_RETURN(const std::int64_t got, file_->read(room));
  end_ += static_cast<std::size_t>(got);
  at_end_ = static_cast<std::size_t>(got) < room.size();
  const bool marked = std::string_view(buffer_).substr(0, end_).starts_with(kByteOrderMark);
  if (!started_ && marked) begin_ = kByteOrderMark.size();
  started_ = true;
  return absl::OkStatus();
}

void CsvRecords::takeFields() {
  fields_.clear();
  for (const Field& field : found_) {
    char* const text = buffer_.data() + field.begin;
    fields_.emplace_back(text, field.doubled ? undouble(text, field.size) : field.size);
  }
}

Status CsvRecords::wrong(std::int64_t line, std::string_view what) const {
  return invalidInput(place_, fmt::format("line {}: {}", line, what));
}

}  // namespace trainyard::runtime::internal
