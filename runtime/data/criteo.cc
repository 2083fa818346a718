#include "runtime/data/internal/criteo.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/catalog/data_columns.h"
#include "runtime/data/internal/csv_records.h"
#include "runtime/data/internal/shown.h"
#include "runtime/data/internal/table_data.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::size_t kFields = 1 + kCriteoIntegers + kCriteoCategories;
constexpr std::size_t kFirstCategory = 1 + kCriteoIntegers;
constexpr std::size_t kHexDigits = 8;

bool addClick(std::string_view text, ValueArray<std::uint8_t>& values) {
  if (text != "0" && text != "1") return false;
  values.push_back(text == "1" ? 1 : 0);
  return true;
}

bool addInteger(std::string_view text, ValueArray<float>& values) {
  const auto integer = parseNumber<std::int64_t>(text.empty() ? "0" : text);
  if (!integer) return false;
  const auto size = static_cast<double>(std::max<std::int64_t>(*integer, 0));
  values.push_back(static_cast<float>(std::log1p(size)));
  return true;
}

// `number`: of the category, from 1.
bool addCategory(std::string_view text, std::uint64_t number, ValueArray<std::uint64_t>& ids) {
  if (text.empty()) {
    ids.push_back(number);
    return true;
  }
  std::uint32_t value = 0;
  const char* const behind = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), behind, value, 16);
  if (error != std::errc() || end != behind || text.size() > kHexDigits) return false;
  ids.push_back(number << 32 | value);
  return true;
}

std::string_view refusalOf(std::size_t field) {
  if (field == 0) return "no label (0 or 1)";
  return field < kFirstCategory ? "no whole number, nor nothing"
                                : "no hexadecimal number of 32 bits, nor nothing";
}

class CriteoReader {
 public:
  CriteoReader(std::string field, std::span<const Column> columns, const Reading& reading)
      : field_(std::move(field)),
        columns_(columns),
        samples_max_(reading.samples_max),
        cache_(reading.cache),
        values_(columns, reading.scratch) {}

  Status readFile(const std::string& path);
  TableValues takeValues() { return std::move(values_); }

 private:
  Status readSample(const std::string& place, const CsvRecords& records);
  bool take(std::size_t field, std::string_view text);

  const std::string field_;
  const std::span<const Column> columns_;
  const std::int64_t samples_max_;
  const std::string cache_;
  TableValues values_;
};

Status CriteoReader::readFile(const std::string& path) {
  const std::string place = fmt::format("{}: {}", field_, path);
  TY_ASSIGN_OR_RETURN(const auto records, CsvRecords::open(place, path, CsvForm::kTabs, cache_));
  for (;;) {
    TY_ASSIGN_OR_RETURN(const bool more, records->next());
    if (!more) return absl::OkStatus();
    TY_RETURN_IF_ERROR(readSample(place, *records));
  }
}

Status CriteoReader::readSample(const std::string& place, const CsvRecords& records) {
  const std::span<const std::string_view> fields = records.fields();
  if (fields.size() != kFields) {
    return invalidInput(
        place,
        fmt::format("line {}: {} fields, expected {} with tabs between: a label, "
                    "{} integers, {} categories",
                    records.line(), fields.size(), kFields, kCriteoIntegers, kCriteoCategories));
  }
  TY_RETURN_IF_ERROR(checkRoom(values_, samples_max_, place, "line", records.line()));
  for (std::size_t f = 0; f < kFields; ++f) {
    if (take(f, fields[f])) continue;
    return invalidInput(place, fmt::format("line {}, column {}: {} is {}", records.line(),
                                           columns_[f].name, shown(fields[f]), refusalOf(f)));
  }
  return absl::OkStatus();
}

bool CriteoReader::take(std::size_t field, std::string_view text) {
  if (field == 0) return addClick(text, values_.labels);
  if (field < kFirstCategory) return addInteger(text, values_.numbers[field - 1]);
  const std::size_t category = field - kFirstCategory;
  return addCategory(text, category + 1, values_.features[category].ids);
}

}  // namespace

StatusOr<std::unique_ptr<Dataset>> readCriteo(const std::string& field,
                                              std::span<const std::string> paths,
                                              std::span<const Column> columns,
                                              const Reading& reading) {
  CriteoReader reader(field, columns, reading);
  for (const std::string& path : paths) TY_RETURN_IF_ERROR(reader.readFile(path));
  return finishTable(field, paths, columns, reader.takeValues(), "lines of 40 fields");
}

}  // namespace trainyard::runtime::internal
