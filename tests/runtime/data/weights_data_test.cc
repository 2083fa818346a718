// Weights of samples, of text and of TensorFlow's examples.
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"
#include "runtime/events/event_records.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/data/wire_bytes.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kWeightHeader = "worth,user,click\n";

class WeightsData : public testing::Test {
 protected:
  WeightsData() {
    spec_.set_format("csv");
    spec_.add_files(path());
    for (const auto& [name, kind] :
         {std::pair("user", "Id"), std::pair("click", "Label"), std::pair("worth", "Weight")}) {
      v1::ColumnSpec* const column = spec_.add_columns();
      column->set_name(name);
      column->set_kind(kind);
    }
  }

  std::string path() const { return dir_.path() / "samples"; }
  void write(const std::string& bytes) { std::ofstream(path(), std::ios::binary) << bytes; }
  static std::string record(const std::string& worth) {
    return frameRecord(wire::example(wire::entry("user", wire::ofInts({7})) +
                                     wire::entry("click", wire::ofInts({1})) + worth));
  }
  std::unique_ptr<Dataset> open() {
    auto splits = openData(spec_);
    EXPECT_TRUE(splits.ok()) << splits.status();
    return splits.ok() ? std::move(splits->train) : nullptr;
  }
  Batch whole() {
    const auto data = open();
    if (data == nullptr) return {};
    std::vector<std::int64_t> all(data->size());
    std::iota(all.begin(), all.end(), 0);
    Batch batch;
    data->read(all, all, batch);
    return batch;
  }
  std::string refusal() { return std::string(openData(spec_).status().message()); }

  TempDir dir_;
  v1::DataSpec spec_;
};

TEST_F(WeightsData, OfText) {
  write(std::string(kWeightHeader) + "0.5,7,0\n0,8,1\n10,9,1\n");
  const Batch batch = whole();
  EXPECT_THAT(batch.weights, ElementsAre(0.5f, 0.0f, 10.0f));
  EXPECT_TRUE(batch.numbers.empty());
  EXPECT_TRUE(open()->columns().weighted);
  for (const char* wrong : {"-0.5", "", "nan", "inf", "heavy"}) {
    write(std::string(kWeightHeader) + "1,7,0\n" + wrong + ",8,1\n");
    EXPECT_THAT(refusal(), HasSubstr(fmt::format("line 3, column worth: \"{}\" is no weight (a "
                                                 "finite decimal, at least 0)",
                                                 wrong)));
  }
}

TEST_F(WeightsData, OfExamples) {
  spec_.set_format("tfrecord");
  write(record(wire::entry("worth", wire::ofFloats({0.5f}))) +
        record(wire::entry("worth", wire::ofInts({3}))));
  EXPECT_THAT(whole().weights, ElementsAre(0.5f, 3.0f));
  write(record(wire::entry("worth", wire::ofFloats({-1}))));
  EXPECT_THAT(refusal(), HasSubstr("record 1, column worth: the float -1, expected one finite "
                                   "float or int64 that is at least 0"));
  write(record(""));
  EXPECT_THAT(refusal(), HasSubstr("record 1, column worth: no such feature"));
}

TEST_F(WeightsData, ABatchThatIsReadAgainHasItsOwn) {
  write(std::string(kWeightHeader) + "1,7,0\n2,8,1\n3,9,1\n");
  const auto weighted = open();
  Batch batch;
  const std::vector<std::int64_t> samples = {2, 0, 2};
  weighted->read(samples, samples, batch);
  EXPECT_THAT(batch.weights, ElementsAre(3.0f, 1.0f, 3.0f));
  spec_.mutable_columns()->RemoveLast();
  open()->read(samples, samples, batch);
  EXPECT_TRUE(batch.weights.empty());
}

TEST_F(WeightsData, ArePartOfTheFingerprint) {
  write(std::string(kWeightHeader) + "1,7,0\n2,8,1\n");
  const std::string print = open()->fingerprint();
  write(std::string(kWeightHeader) + "1,7,0\n3,8,1\n");
  EXPECT_NE(open()->fingerprint(), print);
}

TEST_F(WeightsData, AtMostOneColumnOfThem) {
  write(std::string(kWeightHeader) + "1,7,0\n");
  spec_.mutable_columns(0)->set_kind("Weight");
  EXPECT_THAT(refusal(), HasSubstr("2 columns of kind Weight, expected at most one"));
  spec_.mutable_columns()->DeleteSubrange(0, 1);
  EXPECT_THAT(refusal(), HasSubstr("the label alone, expected columns of kind Id"));
}

}  // namespace
}  // namespace trainyard::runtime
