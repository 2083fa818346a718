// A file of TensorFlow's records. The first byte says whether the rest is such a file, or one
// record whose checksums are right; and whether it is packed before it is read.
#include <cmath>

#include "base/core/check.h"
#include "runtime/data/internal/tfrecord.h"
#include "runtime/events/event_records.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/gzip.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"
#include "tests/runtime/data/wire_bytes.h"

namespace trainyard::fuzz {
namespace {

using runtime::Dataset;
using runtime::frameRecord;
using runtime::internal::Column;
using runtime::internal::ColumnKind;
namespace wire = runtime::wire;

const std::vector<Column>& columnsOfExamples() {
  static const std::vector<Column> columns = {{.name = "l", .kind = ColumnKind::kLabel, .ids = 0},
                                              {.name = "i", .kind = ColumnKind::kId, .ids = 0},
                                              {.name = "s", .kind = ColumnKind::kIds, .ids = 0},
                                              {.name = "n", .kind = ColumnKind::kNumber, .ids = 0},
                                              {.name = "t", .kind = ColumnKind::kText, .ids = 0},
                                              {.name = "w", .kind = ColumnKind::kWeight, .ids = 0}};
  return columns;
}

void readAllExamples(const Dataset& data) {
  TY_CHECK(data.size() > 0, "no dataset is empty");
  runtime::Batch batch;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    data.read({&i, 1}, {&i, 1}, batch);
    TY_CHECK(batch.labels[0] == 0 || batch.labels[0] == 1, "a label");
    TY_CHECK(std::isfinite(batch.numbers[0]), "numbers are finite");
    TY_CHECK(std::isfinite(batch.weights[0]) && batch.weights[0] >= 0, "a weight");
    TY_CHECK(batch.features[0].ids.size() == 1, "one id");
    TY_CHECK(batch.features[2].ids.size() == 1, "one text");
  }
}

}  // namespace

void runTfRecord(std::string_view input) {
  Choices choices(input);
  const int choice = choices.byte();
  const std::string_view rest = choices.rest();
  const std::string content = (choice & 2) != 0 ? frameRecord(rest) : std::string(rest);
  const MemoryFile file((choice & 1) != 0 ? packed(content) : content);
  const std::vector<std::string> paths = {file.path()};
  const auto data = runtime::internal::readTfRecord("data.files", paths, columnsOfExamples());
  if (data.ok()) {
    readAllExamples(**data);
    const auto again = runtime::internal::readTfRecord("data.files", paths, columnsOfExamples());
    TY_CHECK(again.ok() && (*again)->fingerprint() == (*data)->fingerprint(), "a file is a file");
    return;
  }
  TY_CHECK(absl::IsInvalidArgument(data.status()), "a file that is wrong is named so");
  TY_CHECK(std::string(data.status().message()).starts_with("data.files: " + file.path() + ": "),
           "an error has its place");
}

std::vector<std::string> tfRecordSeeds() {
  const std::string label = wire::entry("l", wire::ofInts({1}));
  const std::string id = wire::entry("i", wire::ofInts({-7}));
  const std::string ids = wire::entry("s", wire::ofInts({3, 1'000'000, 5}));
  const std::string number = wire::entry("n", wire::ofFloats({1.5f}));
  const std::string text = wire::entry("t", wire::ofBytes({"a"}));
  const std::string weight = wire::entry("w", wire::ofFloats({0.5f}));
  const std::string one = wire::varint(1 << 3) + wire::varint(300);
  const std::string unknown = wire::varint(9 << 3) + wire::varint(1) + wire::varint(9 << 3 | 1) +
                              wire::fixed(1, 8) + wire::varint(9 << 3 | 5) + wire::fixed(1, 4);
  const std::string whole = wire::example(label + id + ids + number + text + weight);
  std::vector<std::string> seeds = {"", std::string(1, '\0'), std::string(1, '\1')};
  for (const std::string& record :
       {whole, std::string(), label, wire::example(label + id + ids + number),
        unknown +
            wire::example(label + id + number + text + weight + wire::entry("s", "") + unknown),
        whole + wire::example(wire::entry("s", wire::field(3, one + one + unknown) + unknown)),
        wire::example(
            wire::entry("l", wire::ofFloats({0})) + id + ids + text + weight +
            wire::entry("n", wire::field(2, wire::varint(1 << 3 | 5) + wire::fixed(0, 4)))),
        whole + wire::example(wire::entry("w", wire::ofFloats({-1}))),
        wire::example(label + label + wire::entry("i", wire::ofBytes({"b", "c"}))),
        whole.substr(0, whole.size() - 3), std::string("\x0b\x0c", 2)}) {
    seeds.push_back('\2' + record);
    seeds.push_back('\3' + record);
    seeds.push_back('\0' + frameRecord(record) + frameRecord(whole));
  }
  const std::string file = frameRecord(whole);
  seeds.push_back('\0' + file.substr(0, 7));
  seeds.push_back('\0' + file.substr(0, file.size() - 2));
  seeds.push_back('\0' + std::string(8, '\xff') + wire::fixed(0, 4));
  seeds.push_back('\0' + packed(file));
  return seeds;
}

}  // namespace trainyard::fuzz
