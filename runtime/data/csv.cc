#include "runtime/data/internal/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/charconv.h"
#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/data/internal/csv_records.h"
#include "runtime/data/internal/shown.h"
#include "runtime/data/internal/table_data.h"
#include "runtime/data/internal/text_id.h"

namespace trainyard::runtime::internal {
namespace {

// The nearest float; nothing for what is no decimal, or not finite.
std::optional<float> floatOf(std::string_view text) {
  if (text.find_first_of("xX") != std::string_view::npos) return std::nullopt;  // hexadecimal
  float value = 0;
  const auto [end, error] = absl::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  // Out of range is also what is too small, and 0 then.
  const bool overflow = error == std::errc::result_out_of_range && std::abs(value) > 1;
  if (overflow || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool takeId(std::string_view text, IdValues& values) {
  const std::optional<std::uint64_t> id = parseNumber<std::uint64_t>(text);
  if (id) values.ids.push_back(*id);
  return id.has_value();
}

bool takeIds(std::string_view text, IdValues& values) {
  const std::size_t before = values.ids.size();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at && !takeId(text.substr(at, end - at), values)) return false;
    at = end + 1;
  }
  values.ends.push_back(static_cast<std::int64_t>(values.ids.size()));
  return values.ids.size() - before <= kMaxIdsOfSample;
}

bool takeText(std::string_view text, IdValues& values) {
  values.ids.push_back(textId(text));
  return true;
}

bool takeNumber(std::string_view text, ValueArray<float>& values) {
  const std::optional<float> number = text.empty() ? 0.0f : floatOf(text);
  if (number) values.push_back(*number);
  return number.has_value();
}

bool takeLabel(std::string_view text, ValueArray<std::uint8_t>& values) {
  const std::optional<float> label = floatOf(text);
  if (label != 0.0f && label != 1.0f) return false;
  values.push_back(*label == 1.0f ? 1 : 0);
  return true;
}

bool takeWeight(std::string_view text, ValueArray<float>& values) {
  const std::optional<float> weight = floatOf(text);
  if (!weight || *weight < 0) return false;
  values.push_back(*weight);
  return true;
}

std::string noValue(ColumnKind kind) {
  const auto most = std::numeric_limits<std::uint64_t>::max();
  switch (kind) {
    case ColumnKind::kId:
      return fmt::format("no id (a whole number from 0 to {})", most);
    case ColumnKind::kIds:
      return fmt::format("no ids (at most {} whole numbers from 0 to {}, with spaces between them)",
                         kMaxIdsOfSample, most);
    case ColumnKind::kNumber:
      return "no number (a finite decimal, or nothing for 0)";
    case ColumnKind::kLabel:
      return "no label (0 or 1)";
    case ColumnKind::kWeight:
      return "no weight (a finite decimal, at least 0)";
    case ColumnKind::kText:
      break;
  }
  TY_CHECK(false, "any text is a value");
  return "";
}

class CsvReader {
 public:
  CsvReader(std::string field, std::span<const Column> columns, const Reading& reading)
      : field_(std::move(field)),
        columns_(columns),
        samples_max_(reading.samples_max),
        cache_(reading.cache),
        values_(columns, reading.scratch) {}

  Status readFile(const std::string& path);
  TableValues takeValues() { return std::move(values_); }

 private:
  Status readHeader(CsvRecords& records);
  Status readSample(const CsvRecords& records);
  bool take(const Column& column, std::string_view text);
  // Of the file that is being read.
  std::string place() const { return fmt::format("{}: {}", field_, path_); }

  const std::string field_;
  const std::span<const Column> columns_;
  const std::int64_t samples_max_;
  const std::string cache_;
  TableValues values_;
  std::string path_;
  std::size_t width_ = 0;              // fields of a line
  std::vector<std::size_t> field_of_;  // by column: which field of a line it is
  std::size_t feature_ = 0;            // of take(): which of them is next in this line
  std::size_t number_ = 0;
};

Status CsvReader::readFile(const std::string& path) {
  path_ = path;
  TY_ASSIGN_OR_RETURN(const auto records,
                      CsvRecords::open(place(), path, CsvForm::kCommas, cache_));
  TY_RETURN_IF_ERROR(readHeader(*records));
  for (;;) {
    TY_ASSIGN_OR_RETURN(const bool more, records->next());
    if (!more) return absl::OkStatus();
    TY_RETURN_IF_ERROR(readSample(*records));
  }
}

Status CsvReader::readHeader(CsvRecords& records) {
  TY_ASSIGN_OR_RETURN(const bool any, records.next());
  if (!any) return invalidInput(place(), "empty, expected a first line that names the columns");
  const std::span<const std::string_view> names = records.fields();
  width_ = names.size();
  field_of_.clear();
  for (const Column& column : columns_) {
    const auto found = std::find(names.begin(), names.end(), column.name);
    if (found == names.end()) {
      const std::vector<std::string> there(names.begin(), names.end());
      return invalidInput(
          place(), fmt::format("line {}: no column {}, expected it beside {}", records.line(),
                               column.name, shown(join(there, ", "))));
    }
    if (std::find(found + 1, names.end(), column.name) != names.end()) {
      return invalidInput(place(), fmt::format("line {}: column {} twice, expected it once",
                                               records.line(), column.name));
    }
    field_of_.push_back(static_cast<std::size_t>(found - names.begin()));
  }
  return absl::OkStatus();
}

Status CsvReader::readSample(const CsvRecords& records) {
  const std::span<const std::string_view> fields = records.fields();
  if (fields.size() != width_) {
    return invalidInput(place(), fmt::format("line {}: {} fields, expected {} as in the first line",
                                             records.line(), fields.size(), width_));
  }
  TY_RETURN_IF_ERROR(checkRoom(values_, samples_max_, place(), "line", records.line()));
  feature_ = 0;
  number_ = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c];
    const std::string_view text = fields[field_of_[c]];
    if (take(column, text)) continue;
    return invalidInput(place(), fmt::format("line {}, column {}: {} is {}", records.line(),
                                             column.name, shown(text), noValue(column.kind)));
  }
  return absl::OkStatus();
}

bool CsvReader::take(const Column& column, std::string_view text) {
  switch (column.kind) {
    case ColumnKind::kId:
      return takeId(text, values_.features[feature_++]);
    case ColumnKind::kIds:
      return takeIds(text, values_.features[feature_++]);
    case ColumnKind::kText:
      return takeText(text, values_.features[feature_++]);
    case ColumnKind::kNumber:
      return takeNumber(text, values_.numbers[number_++]);
    case ColumnKind::kLabel:
      return takeLabel(text, values_.labels);
    case ColumnKind::kWeight:
      return takeWeight(text, values_.weights);
  }
  return false;
}

}  // namespace

StatusOr<std::unique_ptr<Dataset>> readCsv(const std::string& field,
                                           std::span<const std::string> paths,
                                           std::span<const Column> columns,
                                           const Reading& reading) {
  CsvReader reader(field, columns, reading);
  for (const std::string& path : paths) TY_RETURN_IF_ERROR(reader.readFile(path));
  return finishTable(field, paths, columns, reader.takeValues(),
                     "lines behind the one that names the columns");
}

}  // namespace trainyard::runtime::internal
