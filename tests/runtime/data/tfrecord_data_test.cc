#include <zlib.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"
#include "runtime/data/internal/tfrecord.h"
#include "runtime/events/event_records.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/data/tensorflow_examples.h"
#include "tests/runtime/data/wire_bytes.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::StartsWith;
using wire::entry;
using wire::example;
using wire::field;
using wire::ofBytes;
using wire::ofFloats;
using wire::ofInts;
using wire::varint;

// Of each kind one column.
constexpr std::array<std::pair<const char*, const char*>, 5> kColumns = {
    {{"user", "Id"}, {"tags", "Ids"}, {"city", "Text"}, {"age", "Number"}, {"click", "Label"}}};

using Entries = std::map<std::string, std::string>;

// An example that is as it should be, but for what `other` says of its features.
std::string exampleOf(const Entries& other = {}) {
  Entries entries = {{"user", ofInts({7})},
                     {"tags", ofInts({3, 4})},
                     {"city", ofBytes({"Hello"})},
                     {"age", ofFloats({1.5f})},
                     {"click", ofInts({1})}};
  for (const auto& [name, feature] : other) entries[name] = feature;
  std::string all;
  for (const auto& [name, feature] : entries) all += entry(name, feature);
  return example(all);
}

class TfRecordData : public testing::Test {
 protected:
  TfRecordData() {
    spec_.set_format("tfrecord");
    spec_.add_files(path("a.tfrecord"));
    for (const auto& [name, kind] : kColumns) {
      v1::ColumnSpec* const column = spec_.add_columns();
      column->set_name(name);
      column->set_kind(kind);
    }
  }

  std::string path(const std::string& name) const { return dir_.path() / name; }
  void write(const std::string& bytes) {
    std::ofstream(path("a.tfrecord"), std::ios::binary) << bytes;
  }
  DataSplits open() {
    auto splits = openData(spec_);
    EXPECT_TRUE(splits.ok()) << splits.status();
    return splits.ok() ? std::move(*splits) : DataSplits{};
  }
  Batch whole() {
    const DataSplits data = open();
    if (data.train == nullptr) return {};
    std::vector<std::int64_t> all(data.train->size());
    std::iota(all.begin(), all.end(), 0);
    Batch batch;
    data.train->read(all, all, batch);
    return batch;
  }
  // Of a file of these bytes; behind the file's path.
  std::string refusal(const std::string& bytes) {
    write(bytes);
    const Status status = openData(spec_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    const std::string place = "training.data.files: " + path("a.tfrecord") + ": ";
    const std::string message(status.message());
    EXPECT_THAT(message, StartsWith(place));
    return message.substr(std::min(place.size(), message.size()));
  }

  TempDir dir_;
  v1::DataSpec spec_;
};

// Written by TensorFlow 2 (write_examples.py beside this file).
TEST_F(TfRecordData, ReadsWhatTensorFlowHasWritten) {
  std::ofstream(path("a.tfrecord"), std::ios::binary) << tensorFlowExamples();
  const DataSplits data = open();
  ASSERT_NE(data.train, nullptr);
  EXPECT_EQ(data.train->size(), 4);
  EXPECT_EQ(data.train->classes(), 2);
  EXPECT_THAT(data.train->columns().features, ElementsAre("user", "tags", "city"));
  EXPECT_THAT(data.train->columns().numbers, ElementsAre("age"));
  const Batch batch = whole();
  EXPECT_THAT(batch.labels, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(batch.numbers, ElementsAre(1.5f, -300.0f, -3.25f, 16777216.0f));
  ASSERT_EQ(batch.features.size(), 3u);
  EXPECT_THAT(batch.features[0].ids,
              ElementsAre(7, 0xffff'ffff'ffff'ffff, 0x7fff'ffff'ffff'ffff, 0));
  EXPECT_THAT(batch.features[1].ids, ElementsAre(3, 4, 5, 0x8000'0000'0000'0000));
  EXPECT_THAT(batch.features[1].ends, ElementsAre(3, 3, 3, 4));
  // TensorFlow's manual has the buckets of the words (to_hash_bucket_fast with 3 buckets).
  EXPECT_EQ(batch.features[2].ids[0] % 3, 0u);
  EXPECT_EQ(batch.features[2].ids[1], 0x9ae16a3b2f90404fu);
  EXPECT_EQ(batch.features[2].ids[2] % 3, 2u);
}

TEST_F(TfRecordData, IsTheSameSetAsItsTextPackedOrNot) {
  const std::string bytes =
      frameRecord(exampleOf()) +
      frameRecord(exampleOf({{"tags", ofInts({})}, {"click", ofFloats({0})}}));
  write(bytes);
  const std::string print = open().train->fingerprint();
  const gzFile file = gzopen(path("a.tfrecord").c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  EXPECT_EQ(open().train->fingerprint(), print);
  std::ofstream(path("a.csv")) << "user,tags,city,age,click\n7,3 4,Hello,1.5,1\n7,,Hello,1.5,0\n";
  spec_.set_format("csv");
  spec_.set_files(0, path("a.csv"));
  EXPECT_EQ(open().train->fingerprint(), print);
}

// What other writers of protobuf's wire format may do.
TEST_F(TfRecordData, NumbersOneByOneUnknownFieldsAndRepeatedNames) {
  const auto unpacked = [](std::int64_t value) {
    return varint(1 << 3) + varint(static_cast<std::uint64_t>(value));
  };
  const std::string floats = field(2, varint(1 << 3 | 5) + wire::fixed(0x3fc00000, 4));  // 1.5
  const std::string unknown =
      field(9, "x") + varint(10 << 3) + varint(1) + varint(11 << 3 | 1) + wire::fixed(0, 8);
  const std::string other = entry("user", ofBytes({"not read"})) + entry("tags", ofInts({9}));
  write(frameRecord(unknown + example(other + unknown) +
                    example(entry("user", ofInts({7}) + unknown) + entry("other", "\xff") +
                            entry("tags", field(3, unpacked(3) + unknown) + field(3, unpacked(4))) +
                            field(1, field(2, ofBytes({"Hello"})) + field(1, "city")) +
                            entry("age", floats) + entry("click", ofFloats({0}) + ofInts({1})))));
  const std::string print = open().train->fingerprint();
  write(frameRecord(exampleOf()));
  EXPECT_EQ(open().train->fingerprint(), print);
}

TEST_F(TfRecordData, AFileThatIsCutAnywhereIsRefused) {
  const std::string first = frameRecord(exampleOf());
  const std::string both = first + frameRecord(exampleOf({{"user", ofInts({8})}}));
  for (std::size_t size = 0; size < both.size(); ++size) {
    const std::string cut = both.substr(0, size);
    if (size == 0) {
      EXPECT_EQ(refusal(cut), "no samples, expected records");
    } else if (size == first.size()) {
      write(cut);
      EXPECT_EQ(open().train->size(), 1);
    } else {
      const int record = size < first.size() ? 1 : 2;
      EXPECT_THAT(refusal(cut), StartsWith(fmt::format("record {}: truncated", record))) << size;
    }
  }
  write(both);
  EXPECT_THAT(whole().features[0].ids, ElementsAre(7, 8));
}

TEST_F(TfRecordData, AByteThatIsWrongIsRefused) {
  const std::string first = frameRecord(exampleOf());
  for (std::size_t at = 0; at < first.size(); ++at) {
    std::string damaged = first + first;
    damaged[first.size() + at] ^= 0x10;
    EXPECT_THAT(refusal(damaged),
                StartsWith(at < 12 ? "record 2: its length has the wrong checksum: is this a TFRec"
                                   : "record 2: its bytes have the wrong checksum"))
        << at;
  }
}

TEST_F(TfRecordData, ErrorsNameRecordAndColumn) {
  struct Case {
    Entries other;
    std::string message;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Case& c : std::vector<Case>{
           {{{"user", ofFloats({1})}}, "column user: the float 1, expected one int64"},
           {{{"user", ofBytes({"7"})}}, "column user: 1 bytes, expected one int64"},
           {{{"user", ofInts({})}}, "column user: 0 int64, expected one int64"},
           {{{"user", ofInts({1, 2})}}, "column user: 2 int64, expected one int64"},
           {{{"user", ""}}, "column user: no value, expected one int64"},
           {{{"tags", ofFloats({1})}}, "column tags: the float 1, expected at most 65536 int64"},
           {{{"tags", ofInts(std::vector<std::int64_t>(65'537, 1))}},
            "column tags: 65537 int64, expected at most 65536 int64"},
           {{{"city", ofInts({1})}}, "column city: the int64 1, expected one bytes"},
           {{{"city", ofBytes({"a", "b"})}}, "column city: 2 bytes, expected one bytes"},
           {{{"age", ofBytes({"1.5"})}}, "column age: 1 bytes, expected one finite float or int64"},
           {{{"age", ofFloats({})}}, "column age: 0 float, expected one finite float or int64"},
           {{{"age", ofFloats({nan})}}, "column age: the float nan, expected one finite float"},
           {{{"age", ofFloats({1, 2})}}, "column age: 2 float, expected one finite float or int64"},
           {{{"click", ofInts({2})}},
            "column click: the int64 2, expected one float or int64 that is 0 or 1"},
           {{{"click", ofFloats({0.5f})}}, "column click: the float 0.5, expected one float or"},
           {{{"click", ofBytes({"1"})}}, "column click: 1 bytes, expected one float or int64"},
       }) {
    EXPECT_THAT(refusal(frameRecord(exampleOf()) + frameRecord(exampleOf(c.other))),
                StartsWith("record 2, " + c.message));
  }
  for (const auto& [name, kind] : kColumns) {
    std::string others;
    for (const auto& [other, kind_of_it] : kColumns)
      if (std::string(other) != name) others += entry(other, ofInts({1}));
    spec_.mutable_columns(2)->set_kind("Id");  // city, for which an int64 is no text
    EXPECT_THAT(refusal(frameRecord(example(others))),
                StartsWith(fmt::format("record 1, column {}: no such feature, expected ", name)));
  }
}

TEST_F(TfRecordData, WhatIsNoExampleIsRefused) {
  const std::string whole_one = exampleOf();
  for (const std::string& record :
       {whole_one.substr(0, whole_one.size() - 1), std::string("\x0b"), std::string("\x00\x01", 2),
        std::string("\x0d\x00\x00\x00\x00", 5), std::string(11, '\xff'), std::string("an event"),
        example("\xff"), example(entry("user", "\xff")), example(entry("user", field(3, "\xff"))),
        example(entry("user", field(3, field(1, "\xff")))),
        example(entry("age", field(2, field(1, "12345"))))}) {
    EXPECT_EQ(refusal(frameRecord(record)), "record 1: no tf.Example");
  }
  EXPECT_THAT(refusal(frameRecord("")), StartsWith("record 1, column user: no such feature"));
  EXPECT_THAT(refusal("click,user\n0,1\n"),
              StartsWith("record 1: its length has the wrong checksum: is this a TFRecord file?"));
  EXPECT_EQ(refusal(frameRecord(std::string((16 << 20) + 1, 'x'))),
            "record 1: 16777217 bytes, expected at most 16777216");
}

TEST_F(TfRecordData, MoreSamplesThanAStreamMayHaveAreRefused) {
  write(frameRecord(exampleOf()) + frameRecord(exampleOf()) + frameRecord(exampleOf()));
  const std::vector<std::string> paths = {path("a.tfrecord")};
  const auto columns = internal::readColumns(spec_);
  ASSERT_TRUE(columns.ok()) << columns.status();
  EXPECT_TRUE(internal::readTfRecord("data.files", paths, *columns, {.samples_max = 3}).ok());
  EXPECT_EQ(std::string(internal::readTfRecord("data.files", paths, *columns, {.samples_max = 2})
                            .status()
                            .message()),
            "data.files: " + path("a.tfrecord") +
                ": record 3: more samples than 2, the most of all files");
}

}  // namespace
}  // namespace trainyard::runtime
