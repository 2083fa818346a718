#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"
#include "runtime/data/internal/criteo.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;
using testing::StartsWith;

constexpr int kIntegers = 13;
constexpr int kCategories = 26;

// A line of this label, with `integer` as I1, `category` as C1, and nothing more.
std::string clickOf(const std::string& label, const std::string& integer = "",
                    const std::string& category = "") {
  return label + '\t' + integer + std::string(kIntegers, '\t') + category +
         std::string(kCategories - 1, '\t');
}

class CriteoData : public testing::Test {
 protected:
  CriteoData() {
    spec_.set_format("criteo");
    spec_.add_files(path("day_0"));
  }

  std::string path(const std::string& name) const { return dir_.path() / name; }
  void write(const std::string& name, const std::string& content) {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  DataSplits open() {
    auto splits = openData(spec_);
    EXPECT_TRUE(splits.ok()) << splits.status();
    return splits.ok() ? std::move(*splits) : DataSplits{};
  }
  // All samples of a file of this content.
  Batch whole(const std::string& content) {
    write("day_0", content);
    const DataSplits data = open();
    if (data.train == nullptr) return {};
    std::vector<std::int64_t> all(data.train->size());
    std::iota(all.begin(), all.end(), 0);
    Batch batch;
    data.train->read(all, all, batch);
    return batch;
  }

  TempDir dir_;
  v1::DataSpec spec_;
};

TEST_F(CriteoData, HasTheColumnsOfItsFiles) {
  write("day_0", clickOf("1") + "\n" + clickOf("0"));
  write("day_1", clickOf("0") + "\n");
  spec_.add_eval_files(path("day_?"));
  const DataSplits data = open();
  ASSERT_NE(data.train, nullptr);
  EXPECT_EQ(data.train->size(), 2);
  EXPECT_EQ(data.eval->size(), 3);
  EXPECT_EQ(data.train->classes(), 2);
  EXPECT_EQ(data.train->shape(), (std::array<int, 3>{1, 1, kIntegers}));
  const Columns& columns = data.train->columns();
  ASSERT_THAT(columns.numbers, SizeIs(kIntegers));
  ASSERT_THAT(columns.features, SizeIs(kCategories));
  EXPECT_EQ(columns.numbers.front(), "I1");
  EXPECT_EQ(columns.numbers.back(), "I13");
  EXPECT_EQ(columns.features.front(), "C1");
  EXPECT_EQ(columns.features.back(), "C26");
}

// Each field at its place: integers 1 to 13, categories 0x101 to 0x11a.
TEST_F(CriteoData, FieldsAreReadInTheirOrder) {
  std::string line = "1";
  for (int i = 1; i <= kIntegers; ++i) line += fmt::format("\t{}", i);
  for (int c = 1; c <= kCategories; ++c) line += fmt::format("\t{:08x}", 0x100 + c);
  const Batch batch = whole(line + "\n");
  EXPECT_THAT(batch.labels, ElementsAre(1));
  ASSERT_THAT(batch.numbers, SizeIs(kIntegers));
  for (int i = 0; i < kIntegers; ++i) EXPECT_FLOAT_EQ(batch.numbers[i], std::log(i + 2.0f));
  ASSERT_THAT(batch.features, SizeIs(kCategories));
  for (std::uint64_t c = 1; c <= kCategories; ++c)
    EXPECT_THAT(batch.features[c - 1].ids, ElementsAre((c << 32) + 0x100 + c));
}

// facebookresearch/dlrm sets negative and missing ones to 0, and takes log(x + 1).
TEST_F(CriteoData, IntegersAreLogarithmsOfWhatIsAboveZero) {
  const Batch batch = whole(clickOf("0", "0") + "\n" + clickOf("0") + "\n" + clickOf("0", "-3") +
                            "\n" + clickOf("0", "1") + "\n" + clickOf("0", "65535") + "\n" +
                            clickOf("0", "9223372036854775807") + "\n");
  std::vector<float> first;
  for (int i = 0; i < batch.size(); ++i) first.push_back(batch.numbers[i * kIntegers]);
  EXPECT_THAT(first, ElementsAre(0, 0, 0, 0.6931472f, 11.0903549f, 43.6682724f));
}

TEST_F(CriteoData, IdsOfCategoriesAreApartAndSoAreMissingOnes) {
  const Batch batch = whole(clickOf("0", "", "0") + "\n" + clickOf("0", "", "05db9164") + "\n" +
                            clickOf("0", "", "FFFFFFFF") + "\n" + clickOf("0", "", "5DB9164") +
                            "\n" + clickOf("0"));
  EXPECT_THAT(batch.features[0].ids, ElementsAre(0x100000000, 0x105db9164, 0x1ffffffff,  //
                                                 0x105db9164, 1));
  for (std::uint64_t c = 2; c <= kCategories; ++c)
    EXPECT_THAT(batch.features[c - 1].ids, Each(c)) << "C" << c << " is missing";
}

TEST_F(CriteoData, LineEndsChangeNothingAndQuotesMeanNothing) {
  std::set<std::string> prints;
  for (const std::string& content : {clickOf("1", "2", "a") + "\n" + clickOf("0") + "\n",
                                     clickOf("1", "2", "a") + "\n" + clickOf("0"),
                                     clickOf("1", "2", "0a") + "\r\n\n" + clickOf("0") + "\r\n"}) {
    whole(content);
    prints.insert(open().train->fingerprint());
  }
  EXPECT_THAT(prints, SizeIs(1));
  write("day_0", clickOf("1", "2", "\"a\"") + "\n");
  EXPECT_THAT(std::string(openData(spec_).status().message()),
              StartsWith("training.data.files: " + path("day_0") +
                         ": line 1, column C1: \"\\\"a\\\"\" is no hexadecimal number"));
}

TEST_F(CriteoData, ErrorsNameFileLineAndColumn) {
  struct Case {
    std::string line;  // the second one
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {clickOf("2"), "line 2, column label: \"2\" is no label (0 or 1)"},
           {clickOf(""), "line 2, column label: \"\" is no label (0 or 1)"},
           {clickOf("0.0"), "line 2, column label: \"0.0\" is no label (0 or 1)"},
           {clickOf("0", "1.5"), "line 2, column I1: \"1.5\" is no whole number, nor nothing"},
           {clickOf("0", "+1"), "line 2, column I1: \"+1\" is no whole number, nor nothing"},
           {clickOf("0", "99999999999999999999"), "line 2, column I1: \"99999999999999999999\" is"},
           {clickOf("0", "", "xyz"),
            "line 2, column C1: \"xyz\" is no hexadecimal number of 32 bi"},
           {clickOf("0", "", "-1"),
            "line 2, column C1: \"-1\" is no hexadecimal number of 32 bits"},
           {clickOf("0", "", "0x1f"), "line 2, column C1: \"0x1f\" is no hexadecimal number of 32"},
           {clickOf("0", "", "123456789"),
            "line 2, column C1: \"123456789\" is no hexadecimal num"},
           {clickOf("0") + "1 ", "line 2, column C26: \"1 \" is no hexadecimal number of 32 bits"},
           {clickOf("0") + "\t",
            "line 2: 41 fields, expected 40 with tabs between: a label, 13 in"},
           {clickOf("0").substr(1 + 1), "line 2: 39 fields, expected 40 with tabs between"},
           {"0,1,2", "line 2: 1 fields, expected 40 with tabs between"},
           {clickOf("0") + "\r1", "line 2: a carriage return, expected a line feed behind it"},
       }) {
    write("day_0", clickOf("0") + "\n" + c.line + "\n");
    const Status status = openData(spec_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                StartsWith("training.data.files: " + path("day_0") + ": " + c.message));
  }
}

TEST_F(CriteoData, NoSamplesAndTooManyAreRefused) {
  write("day_0", "\n");
  EXPECT_EQ(std::string(openData(spec_).status().message()),
            "training.data.files: " + path("day_0") + ": no samples, expected lines of 40 fields");
  write("day_0", clickOf("0") + "\n" + clickOf("1"));
  const std::vector<std::string> paths = {path("day_0")};
  const auto columns = internal::readColumns(spec_);
  ASSERT_TRUE(columns.ok()) << columns.status();
  EXPECT_TRUE(internal::readCriteo("data.files", paths, *columns, {.samples_max = 2}).ok());
  EXPECT_EQ(
      std::string(internal::readCriteo("data.files", paths, *columns, {.samples_max = 1})
                      .status()
                      .message()),
      "data.files: " + path("day_0") + ": line 2: more samples than 1, the most of all files");
  spec_.clear_files();
  EXPECT_THAT(std::string(openData(spec_).status().message()),
              StartsWith("training.data.files: missing"));
}

}  // namespace
}  // namespace trainyard::runtime
