#include "runtime/data/internal/tfrecord.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "runtime/data/internal/record_file.h"
#include "runtime/data/internal/table_data.h"
#include "runtime/data/internal/text_id.h"
#include "runtime/data/internal/tf_example.h"

namespace trainyard::runtime::internal {
namespace {

using Kind = TfFeature::Kind;

std::vector<std::string> namesOf(std::span<const Column> columns) {
  std::vector<std::string> names;
  for (const Column& column : columns) names.push_back(column.name);
  return names;
}

bool readId(const TfFeature& feature, IdValues& values) {
  if (feature.ints.size() != 1) return false;
  values.ids.push_back(static_cast<std::uint64_t>(feature.ints.front()));
  return true;
}

bool readIds(const TfFeature& feature, IdValues& values) {
  const bool numbers = feature.kind == Kind::kInts || feature.size() == 0;
  if (!numbers || feature.ints.size() > kMaxIdsOfSample) return false;
  for (const std::int64_t id : feature.ints) values.ids.push_back(static_cast<std::uint64_t>(id));
  values.ends.push_back(static_cast<std::int64_t>(values.ids.size()));
  return true;
}

bool readText(const TfFeature& feature, IdValues& values) {
  if (feature.bytes.size() != 1) return false;
  values.ids.push_back(textId(feature.bytes.front()));
  return true;
}

std::optional<float> oneNumber(const TfFeature& feature) {
  if (feature.size() != 1 || feature.kind == Kind::kBytes) return std::nullopt;
  const float number = feature.kind == Kind::kInts ? static_cast<float>(feature.ints.front())
                                                   : feature.floats.front();
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

bool readNumber(const TfFeature& feature, ValueArray<float>& values) {
  const std::optional<float> number = oneNumber(feature);
  if (number) values.push_back(*number);
  return number.has_value();
}

bool readLabel(const TfFeature& feature, ValueArray<std::uint8_t>& values) {
  const std::optional<float> label = oneNumber(feature);
  if (label != 0.0f && label != 1.0f) return false;
  values.push_back(*label == 1.0f ? 1 : 0);
  return true;
}

bool readWeight(const TfFeature& feature, ValueArray<float>& values) {
  const std::optional<float> weight = oneNumber(feature);
  if (!weight || *weight < 0) return false;
  values.push_back(*weight);
  return true;
}

std::string expectedOf(ColumnKind kind) {
  switch (kind) {
    case ColumnKind::kId:
      return "one int64";
    case ColumnKind::kIds:
      return fmt::format("at most {} int64", kMaxIdsOfSample);
    case ColumnKind::kNumber:
      return "one finite float or int64";
    case ColumnKind::kText:
      return "one bytes";
    case ColumnKind::kWeight:
      return "one finite float or int64 that is at least 0";
    case ColumnKind::kLabel:
      break;
  }
  return "one float or int64 that is 0 or 1";
}

// What a feature has, in the words of tf.Example.
std::string foundIn(const TfFeature& feature) {
  switch (feature.kind) {
    case Kind::kNone:
      return "no value";
    case Kind::kBytes:
      return fmt::format("{} bytes", feature.size());
    case Kind::kFloats:
      return feature.size() == 1 ? fmt::format("the float {}", feature.floats.front())
                                 : fmt::format("{} float", feature.size());
    case Kind::kInts:
      break;
  }
  return feature.size() == 1 ? fmt::format("the int64 {}", feature.ints.front())
                             : fmt::format("{} int64", feature.size());
}

class TfRecordReader {
 public:
  TfRecordReader(std::string field, std::span<const Column> columns, const Reading& reading)
      : field_(std::move(field)),
        columns_(columns),
        samples_max_(reading.samples_max),
        cache_(reading.cache),
        values_(columns, reading.scratch),
        example_(namesOf(columns)) {}

  Status readFile(const std::string& path);
  TableValues takeValues() { return std::move(values_); }

 private:
  Status readSample(const std::string& place, const RecordFile& file);
  bool take(ColumnKind kind, const TfFeature& feature);

  const std::string field_;
  const std::span<const Column> columns_;
  const std::int64_t samples_max_;
  const std::string cache_;
  TableValues values_;
  TfExample example_;
  std::size_t feature_ = 0;  // of take(): which of them is next in this sample
  std::size_t number_ = 0;
};

Status TfRecordReader::readFile(const std::string& path) {
  const std::string place = fmt::format("{}: {}", field_, path);
  TY_ASSIGN_OR_RETURN(const auto file, RecordFile::open(place, path, cache_));
  for (;;) {
    TY_ASSIGN_OR_RETURN(const bool more, file->next());
    if (!more) return absl::OkStatus();
    TY_RETURN_IF_ERROR(readSample(place, *file));
  }
}

Status TfRecordReader::readSample(const std::string& place, const RecordFile& file) {
  TY_RETURN_IF_ERROR(checkRoom(values_, samples_max_, place, "record", file.number()));
  if (!example_.parse(file.record())) {
    return invalidInput(place, fmt::format("record {}: no tf.Example", file.number()));
  }
  feature_ = 0;
  number_ = 0;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const TfFeature& feature = example_.features()[c];
    if (feature.present && take(columns_[c].kind, feature)) continue;
    const std::string found = feature.present ? foundIn(feature) : "no such feature";
    return invalidInput(place, fmt::format("record {}, column {}: {}, expected {}", file.number(),
                                           columns_[c].name, found, expectedOf(columns_[c].kind)));
  }
  return absl::OkStatus();
}

bool TfRecordReader::take(ColumnKind kind, const TfFeature& feature) {
  switch (kind) {
    case ColumnKind::kId:
      return readId(feature, values_.features[feature_++]);
    case ColumnKind::kIds:
      return readIds(feature, values_.features[feature_++]);
    case ColumnKind::kText:
      return readText(feature, values_.features[feature_++]);
    case ColumnKind::kNumber:
      return readNumber(feature, values_.numbers[number_++]);
    case ColumnKind::kLabel:
      return readLabel(feature, values_.labels);
    case ColumnKind::kWeight:
      return readWeight(feature, values_.weights);
  }
  return false;
}

}  // namespace

StatusOr<std::unique_ptr<Dataset>> readTfRecord(const std::string& field,
                                                std::span<const std::string> paths,
                                                std::span<const Column> columns,
                                                const Reading& reading) {
  TfRecordReader reader(field, columns, reading);
  for (const std::string& path : paths) TY_RETURN_IF_ERROR(reader.readFile(path));
  return finishTable(field, paths, columns, reader.takeValues(), "records");
}

}  // namespace trainyard::runtime::internal
