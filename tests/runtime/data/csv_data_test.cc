#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"
#include "runtime/data/internal/csv.h"
#include "tests/base/process/file_size_limit.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kHeader = "click,user,age,tags,city\n";

class CsvData : public testing::Test {
 protected:
  CsvData() {
    spec_.set_format("csv");
    for (const auto& [name, kind] :
         std::vector<std::pair<std::string, std::string>>{{"user", "Id"},
                                                          {"click", "Label"},
                                                          {"tags", "Ids"},
                                                          {"age", "Number"},
                                                          {"city", "Text"}}) {
      v1::ColumnSpec* const column = spec_.add_columns();
      column->set_name(name);
      column->set_kind(kind);
    }
  }

  std::string path(const std::string& name) const { return dir_.path() / name; }
  void write(const std::string& name, const std::string& content) {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  void pack(const std::string& name, const std::string& content) {
    const gzFile file = gzopen(path(name).c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
  }
  std::string bytesOf(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The job reads these.
  void name(const std::vector<std::string>& files) {
    spec_.clear_files();
    for (const std::string& file : files) spec_.add_files(path(file));
  }
  DataSplits open() {
    auto splits = openData(spec_);
    EXPECT_TRUE(splits.ok()) << splits.status();
    return splits.ok() ? std::move(*splits) : DataSplits{};
  }
  // All samples of a file a.csv of this content.
  Batch whole(const std::string& content) {
    write("a.csv", content);
    name({"a.csv"});
    const DataSplits data = open();
    return data.train == nullptr ? Batch{} : wholeBatch(*data.train);
  }
  static Batch wholeBatch(const Dataset& data) {
    std::vector<std::int64_t> all(data.size());
    std::iota(all.begin(), all.end(), 0);
    Batch batch;
    data.read(all, all, batch);
    return batch;
  }
  Status refusal() { return openData(spec_).status(); }

  TempDir dir_;
  v1::DataSpec spec_;
};

TEST_F(CsvData, ReadsEachKindByTheNamesOfTheFirstLine) {
  write("a.csv", std::string(kHeader) +
                     "0,7,1.5,3 4 5,Hello\n"
                     "1,18446744073709551615,,,\n"
                     "1,0,-2e3,9,TensorFlow\n");
  name({"a.csv"});
  const DataSplits data = open();
  ASSERT_NE(data.train, nullptr);
  EXPECT_EQ(data.eval, nullptr);
  EXPECT_EQ(data.train->size(), 3);
  EXPECT_EQ(data.train->classes(), 2);
  EXPECT_EQ(data.train->shape(), (std::array<int, 3>{1, 1, 1}));
  EXPECT_THAT(data.train->columns().features, ElementsAre("user", "tags", "city"));
  EXPECT_THAT(data.train->columns().numbers, ElementsAre("age"));
  const Batch batch = wholeBatch(*data.train);
  EXPECT_THAT(batch.labels, ElementsAre(0, 1, 1));
  EXPECT_THAT(batch.numbers, ElementsAre(1.5f, 0.0f, -2000.0f));
  ASSERT_EQ(batch.features.size(), 3u);
  EXPECT_THAT(batch.features[0].ids, ElementsAre(7, 18446744073709551615u, 0));
  EXPECT_THAT(batch.features[0].ends, ElementsAre(1, 2, 3));
  EXPECT_THAT(batch.features[1].ids, ElementsAre(3, 4, 5, 9));
  EXPECT_THAT(batch.features[1].ends, ElementsAre(3, 3, 4));
  EXPECT_THAT(batch.features[2].ends, ElementsAre(1, 2, 3));
}

TEST_F(CsvData, ABatchHasItsSamplesInItsOrder) {
  write("a.csv", std::string(kHeader) + "0,7,1,3 4,a\n1,8,2,,b\n0,9,3,5,c\n");
  name({"a.csv"});
  const DataSplits data = open();
  const Batch all = wholeBatch(*data.train);
  Batch batch;
  batch.images.assign(10, 1.0f);
  batch.features.resize(7);
  const std::vector<std::int64_t> samples = {2, 1, 0, 2};
  const std::vector<std::int64_t> keys = {10, 20, 30, 40};
  data.train->read(samples, keys, batch);
  EXPECT_EQ(batch.shape, (std::array<int, 3>{1, 1, 1}));
  EXPECT_TRUE(batch.images.empty());
  EXPECT_EQ(batch.keys, keys);
  EXPECT_THAT(batch.labels, ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(batch.numbers, ElementsAre(3, 2, 1, 3));
  EXPECT_THAT(batch.features[0].ids, ElementsAre(9, 8, 7, 9));
  EXPECT_THAT(batch.features[1].ids, ElementsAre(5, 3, 4, 5));
  EXPECT_THAT(batch.features[1].ends, ElementsAre(1, 1, 3, 4));
  EXPECT_EQ(batch.features[2].ids[2], all.features[2].ids[0]);
  std::vector<FeatureIds> features(1);
  data.train->readFeatures(samples, features);
  ASSERT_EQ(features.size(), 3u);
  for (int f = 0; f < 3; ++f) {
    EXPECT_EQ(features[f].ids, batch.features[f].ids);
    EXPECT_EQ(features[f].ends, batch.features[f].ends);
  }
}

// BigQuery's manual has the first three (FARM_FINGERPRINT), as signed numbers; TensorFlow's has the
// buckets of the others (to_hash_bucket_fast with 3 buckets).
TEST_F(CsvData, TextHasTheIdOfFarmhash) {
  const Batch batch = whole(std::string(kHeader) +
                            "0,1,0,,1footrue\n0,1,0,,2applefalse\n0,1,0,,3true\n"
                            "0,1,0,,Hello\n0,1,0,,TensorFlow\n0,1,0,,2.x\n0,1,0,,\n");
  const std::vector<std::uint64_t>& ids = batch.features.at(2).ids;
  ASSERT_EQ(ids.size(), 7u);
  EXPECT_EQ(static_cast<std::int64_t>(ids[0]), -1541654101129638711);
  EXPECT_EQ(static_cast<std::int64_t>(ids[1]), 2794438866806483259);
  EXPECT_EQ(static_cast<std::int64_t>(ids[2]), -4880158226897771312);
  EXPECT_EQ(ids[3] % 3, 0u);
  EXPECT_EQ(ids[4] % 3, 2u);
  EXPECT_EQ(ids[5] % 3, 2u);
  EXPECT_EQ(ids[6], 0x9ae16a3b2f90404fu);  // of nothing
}

// What RFC 4180 and its users allow, all of it the same samples.
TEST_F(CsvData, LineEndsQuotesAndOrderChangeNothing) {
  const Batch plain = whole(std::string(kHeader) + "0,7,1,3 4,a\n1,8,,,b\n");
  const std::string print = open().train->fingerprint();
  EXPECT_THAT(plain.labels, ElementsAre(0, 1));
  for (const std::string& content : {
           std::string("click,user,age,tags,city\n0,7,1,3 4,a\n1,8,,,b"),
           std::string("click,user,age,tags,city\r\n0,7,1,3 4,a\r\n1,8,,,b\r\n"),
           std::string("\xef\xbb\xbf"
                       "click,user,age,tags,city\n0,7,1,3 4,a\n1,8,,,b\n"),
           std::string("\n\nclick,user,age,tags,city\n\r\n0,7,1,3 4,a\n1,8,,,b\n\n\n"),
           std::string(
               "\"click\",\"user\",age,tags,city\n\"0\",\"7\",1,\"3 4\",a\n1,8,\"\",,\"b\""),
           std::string("user,city,tags,age,click\n7,a,3 4,1,0\n8,b,,,1\n"),
           std::string("user,x,city,x,tags,age,click\n7,,a,\"2,\n\"\"\",3 4,1,0\n8,,b,?,,,1\n"),
           std::string("click,user,age,tags,city\n0.0,007,1.0, 3  4 ,a\n1.0,8,0e5,   ,b\n"),
       }) {
    whole(content);
    EXPECT_EQ(open().train->fingerprint(), print) << content;
  }
  pack("a.csv", std::string(kHeader) + "0,7,1,3 4,a\n1,8,,,b\n");
  EXPECT_EQ(open().train->fingerprint(), print);
}

TEST_F(CsvData, QuotedTextMayHoldAnything) {
  const Batch quoted =
      whole(std::string(kHeader) + "0,7,1,,\"a \"\"b\"\", c\r\nd\"\n1,8,1,,\"\"\n");
  const Batch empty = whole(std::string(kHeader) + "1,8,1,,\n");
  EXPECT_EQ(quoted.features[2].ids[1], empty.features[2].ids[0]);
  // The same text, doubled quotes at its ends too.
  const Batch ends = whole(std::string(kHeader) + "0,7,1,,\"\"\"\"\n0,7,1,,\"\"\"a\"\"\"\n");
  EXPECT_NE(ends.features[2].ids[0], ends.features[2].ids[1]);
  EXPECT_NE(ends.features[2].ids[0], empty.features[2].ids[0]);
}

TEST_F(CsvData, NumbersAreTheNearestFloats) {
  const Batch batch = whole(std::string(kHeader) +
                            "0,1,0.1,,\n0,1,16777217,,\n0,1,-3.4028235e38,,\n0,1,1e-400,,\n"
                            "0,1,1e-45,,\n0,1,.5,,\n0,1,5.,,\n0,1,-0,,\n");
  EXPECT_THAT(batch.numbers,
              ElementsAre(0.1f, 16777216.0f, std::numeric_limits<float>::lowest(), 0.0f,
                          std::numeric_limits<float>::denorm_min(), 0.5f, 5.0f, 0.0f));
}

// Records that begin and end anywhere in the buffer, one of them longer than it.
TEST_F(CsvData, ManyLinesOfEveryLength) {
  constexpr std::int64_t kLines = 20'000;
  constexpr std::int64_t kLong = 7'777;
  std::string content = kHeader;
  std::string ids;
  for (int i = 0; i < 60'000; ++i) ids += fmt::format("{} ", 100'000'000 + i);
  for (std::int64_t i = 0; i < kLines; ++i) {
    content += fmt::format("{},{},{},{},\"{}\"\r\n", i % 2, i, i / 8.0, i == kLong ? ids : "",
                           std::string(i % 97, i % 3 == 0 ? '\n' : 'x'));
  }
  const Batch batch = whole(content);
  ASSERT_EQ(batch.size(), kLines);
  for (std::int64_t i = 0; i < kLines; ++i) {
    ASSERT_EQ(batch.labels[i], i % 2);
    ASSERT_EQ(batch.features[0].ids[i], static_cast<std::uint64_t>(i));
    ASSERT_EQ(batch.numbers[i], static_cast<float>(i) / 8);
    ASSERT_EQ(batch.features[1].ends[i], i < kLong ? 0 : 60'000);
  }
  EXPECT_EQ(batch.features[1].ids.back(), 100'059'999u);
  // The number of a line counts line ends within quotes.
  write("a.csv", content + "2,1,1,1,1\n");
  const auto lines = std::count(content.begin(), content.end(), '\n');
  EXPECT_THAT(std::string(refusal().message()),
              HasSubstr(fmt::format("line {}, column click: \"2\" is no label", lines + 1)));
}

TEST_F(CsvData, SeveralFilesAreOneAfterTheOther) {
  write("part-2.csv", std::string(kHeader) + "1,20,0,,b\n");
  write("part-1.csv", "city,age,click,user,tags\na,0,0,10,\na,0,0,11,\n");
  write("part-3.csv", kHeader);
  pack("more.csv.gz", std::string(kHeader) + "0,30,0,,c\n");
  write("eval.csv", std::string(kHeader) + "1,40,0,1 2,d\n");
  name({"part-?.csv", "*.gz"});
  spec_.add_eval_files(path("eval.csv"));
  const DataSplits data = open();
  ASSERT_NE(data.eval, nullptr);
  EXPECT_THAT(wholeBatch(*data.train).features[0].ids, ElementsAre(10, 11, 20, 30));
  EXPECT_THAT(wholeBatch(*data.eval).features[0].ids, ElementsAre(40));
  EXPECT_EQ(data.eval->columns().features, data.train->columns().features);
  EXPECT_NE(data.eval->fingerprint(), data.train->fingerprint());
  // Where files end does not matter.
  const std::string print = data.train->fingerprint();
  write("all.csv", std::string(kHeader) + "0,10,0,,a\n0,11,0,,a\n1,20,0,,b\n0,30,0,,c\n");
  name({"all.csv"});
  EXPECT_EQ(open().train->fingerprint(), print);
}

std::string manyLines() {
  std::string text = kHeader;
  for (int i = 0; i < 30'000; ++i)
    text += fmt::format("{},{},{}.5,{} {},city {}\n", i % 2, i, i % 90, i % 7, i % 11, i % 13);
  return text;
}

TEST_F(CsvData, InScratchSamplesAreTheSame) {
  std::filesystem::create_directory(path("scratch"));
  write("a.csv", manyLines());
  name({"a.csv"});
  spec_.add_eval_files(path("a.csv"));
  const DataSplits in_memory = open();
  spec_.set_scratch(path("scratch"));
  const DataSplits data = open();
  ASSERT_NE(data.train, nullptr);
  EXPECT_EQ(data.train->size(), 30'000);
  EXPECT_EQ(data.train->fingerprint(), in_memory.train->fingerprint());
  EXPECT_EQ(data.eval->fingerprint(), in_memory.eval->fingerprint());
  const Batch batch = wholeBatch(*data.train), expected = wholeBatch(*in_memory.train);
  for (std::size_t f = 0; f < expected.features.size(); ++f) {
    EXPECT_EQ(batch.features[f].ids, expected.features[f].ids);
    EXPECT_EQ(batch.features[f].ends, expected.features[f].ends);
  }
  EXPECT_EQ(batch.numbers, expected.numbers);
  EXPECT_EQ(batch.labels, expected.labels);
  EXPECT_TRUE(std::filesystem::is_empty(path("scratch")));
  spec_.set_scratch(path("nowhere"));
  EXPECT_EQ(openData(spec_).status(),
            invalidInput("training.data.scratch: " + path("nowhere"), "no such folder"));
}

TEST_F(CsvData, SaysWhereThereIsNoRoomForSamples) {
  std::filesystem::create_directory(path("scratch"));
  write("a.csv", manyLines());
  name({"a.csv"});
  spec_.set_scratch(path("scratch"));
  const FileSizeLimit limit(200'000);
  const Status status = openData(spec_).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("training.data.scratch: " + path("scratch") + ": take "));
}

TEST_F(CsvData, FingerprintSeesValuesNamesAndKinds) {
  std::set<std::string> seen;
  const auto add = [&] { seen.insert(open().train->fingerprint()); };
  for (const char* lines :
       {"0,7,1,3 4,5\n1,8,1,,5\n", "0,7,1,3,5\n1,8,1,4,5\n", "0,6,1,3 4,5\n1,8,1,,5\n",
        "0,7,1,3 4,5\n0,8,1,,5\n", "0,7,2,3 4,5\n1,8,1,,5\n", "0,7,1,3 4,6\n1,8,1,,5\n"}) {
    whole(std::string(kHeader) + lines);
    add();
  }
  whole(std::string(kHeader) + "0,7,1,3,5\n");
  add();
  spec_.mutable_columns(4)->set_kind("Id");
  add();
  spec_.mutable_columns(4)->set_name("age");
  spec_.mutable_columns(3)->set_name("city");
  whole(std::string(kHeader) + "0,7,5,3,1\n");
  add();
  EXPECT_EQ(seen.size(), 9u);
}

TEST_F(CsvData, ErrorsNameFileLineAndColumn) {
  struct Case {
    std::string content;  // of a.csv
    std::string message;  // behind the file's path
  };
  const std::string h = kHeader;
  for (const Case& c : std::vector<Case>{
           {"", "empty, expected a first line that names the columns"},
           {"\n\r\n", "empty, expected a first line"},
           {h, "no samples, expected lines behind the one that names the columns"},
           {"click,age,tags,city\n",
            "line 1: no column user, expected it beside \"click, age, "
            "tags, city\""},
           {"click,USER,age,tags,city\n", "line 1: no column user, expected it beside"},
           {"click,user,age,user,tags,city\n", "line 1: column user twice, expected it once"},
           {h + "0,bob,1,,a\n",
            "line 2, column user: \"bob\" is no id (a whole number from 0 to "
            "18446744073709551615)"},
           {h + "0,1,1,,a\n0,-1.5,1,,a\n", "line 3, column user: \"-1.5\" is no id ("},
           {h + "0,-1,1,,a\n", "line 2, column user: \"-1\" is no id ("},
           {h + "0,+1,1,,a\n", "line 2, column user: \"+1\" is no id ("},
           {h + "0,1.0,1,,a\n", "line 2, column user: \"1.0\" is no id ("},
           {h + "0, 1,1,,a\n", "line 2, column user: \" 1\" is no id ("},
           {h + "0,,1,,a\n", "line 2, column user: \"\" is no id ("},
           {h + "0,18446744073709551616,1,,a\n",
            "line 2, column user: \"18446744073709551616\" is no id ("},
           {h + "0,1,1,3 x 4,a\n",
            "line 2, column tags: \"3 x 4\" is no ids (at most 65536 whole "
            "numbers from 0 to 18446744073709551615, with spaces between"},
           {h + "0,1,1,\"3,4\",a\n", "line 2, column tags: \"3,4\" is no ids ("},
           {h + "0,1,1\n", "line 2: 3 fields, expected 5 as in the first line"},
           {h + "0,1,1,,a,b\n", "line 2: 6 fields, expected 5 as in the first line"},
           {h + "0,1,1,,a\n \n", "line 3: 1 fields, expected 5"},
           {h + "\"\"\n", "line 2: 1 fields, expected 5"},
           {h + "2,1,1,,a\n", "line 2, column click: \"2\" is no label (0 or 1)"},
           {h + "0.5,1,1,,a\n", "line 2, column click: \"0.5\" is no label (0 or 1)"},
           {h + ",1,1,,a\n", "line 2, column click: \"\" is no label (0 or 1)"},
           {h + "true,1,1,,a\n", "line 2, column click: \"true\" is no label (0 or 1)"},
           {h + "0,1,abc,,a\n",
            "line 2, column age: \"abc\" is no number (a finite decimal, or nothing for 0)"},
           {h + "0,1,NaN,,a\n", "line 2, column age: \"NaN\" is no number ("},
           {h + "0,1,inf,,a\n", "line 2, column age: \"inf\" is no number ("},
           {h + "0,1,-Infinity,,a\n", "line 2, column age: \"-Infinity\" is no number ("},
           {h + "0,1,1e39,,a\n", "line 2, column age: \"1e39\" is no number ("},
           {h + "0,1,1e400,,a\n", "line 2, column age: \"1e400\" is no number ("},
           {h + "0,1,0x10,,a\n", "line 2, column age: \"0x10\" is no number ("},
           {h + "0,1,1 000,,a\n", "line 2, column age: \"1 000\" is no number ("},
           {h + "0,1,\xff\x01\",,a\n", "line 2: a quote in a field that does not begin with one"},
           {h + "0,1,\xff\x01,,a\n", "line 2, column age: \"\\xff\\x01\" is no number ("},
           {h + "0,1,1,,\"a\n0,1,1,,a\n", "line 2: a quote that nothing closes"},
           {h + "0,1,1,,\"a\nb\"\n0,1,\"1\n,,a\n", "line 4: a quote that nothing closes"},
           {h + "0,1,1,,\"", "line 2: a quote that nothing closes"},
           {h + "0,1,1,,\"a\"b\n", "line 2: text behind a closing quote, expected a comma"},
           {h + "0,1,1,,\"a\nb\"c\n", "line 3: text behind a closing quote"},
           {h + "0,1,1,,a\rb\n", "line 2: a carriage return, expected a line feed behind it"},
           {h + "0,1,1,,a\r", "line 2: a carriage return, expected a line feed behind it"},
           {"click,user\r0,1\r", "line 1: a carriage return, expected a line feed behind it"},
           {h + "0,1," + std::string(200, '9') + "x,,a\n",
            "line 2, column age: \"" + std::string(80, '9') + "...\" is no number ("},
       }) {
    write("a.csv", c.content);
    name({"a.csv"});
    const Status status = refusal();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::StartsWith("training.data.files: " + path("a.csv") + ": " + c.message));
  }
}

TEST_F(CsvData, ErrorsOfFilesAndFields) {
  const std::string good = std::string(kHeader) + "0,1,1,,a\n";
  struct Case {
    std::function<void()> spoil;
    absl::StatusCode code;
    std::string message;
  };
  using enum absl::StatusCode;
  const auto files = "training.data.files: ";
  const std::vector<Case> cases = {
      {[&] { spec_.clear_files(); }, kInvalidArgument, "training.data.files: missing, expected"},
      {[&] { spec_.clear_columns(); }, kInvalidArgument,
       "training.data.columns: 0 columns of kind Label, expected one"},
      {[&] { spec_.mutable_columns(0)->set_kind("Key"); }, kInvalidArgument,
       "training.data.columns[0].kind: \"Key\", expected Id, Ids, Number, Text, Label or Weight"},
      {[&] { name({"*.txt"}); }, kNotFound, files + path("*.txt") + ": no file has such a name"},
      {[&] { name({"gone/*.csv"}); }, kNotFound,
       files + path("gone/*.csv") + ": cannot list its folder: No such file or directory"},
      {[&] { name({"gone.csv"}); }, kNotFound,
       files + path("gone.csv") + ": cannot open: No such file or directory"},
      {[&] { name({""}); }, kInvalidArgument, files + path("") + ": no regular file"},
      {[&] {
         pack("a.csv", good);
         write("a.csv", bytesOf("a.csv").substr(0, 40));
       },
       kInvalidArgument, files + path("a.csv") + ": truncated: the gzip stream has no end"},
      {[&] {
         pack("a.csv", good);
         std::string bytes = bytesOf("a.csv");
         bytes[bytes.size() - 7] ^= 0x55;
         write("a.csv", bytes);
       },
       kInvalidArgument, files + path("a.csv") + ": damaged gzip stream: "},
      {[&] {
         write("b.csv", "click,user,age,tags\n");
         name({"a.csv", "b.csv"});
       },
       kInvalidArgument, files + path("b.csv") + ": line 1: no column city, expected it beside"},
      {[&] {
         for (const char* file : {"a.csv", "b.csv", "c.csv"}) write(file, kHeader);
         name({"*.csv"});
       },
       kInvalidArgument,
       files + path("a.csv") + ": no samples here nor in 2 other files, expected"},
      {[&] {
         write("e.csv", kHeader);
         spec_.add_eval_files(path("e.csv"));
       },
       kInvalidArgument, "training.data.evalFiles: " + path("e.csv") + ": no samples, expected"},
      {[&] { write("a.csv", good + "0,1,1,,\"" + std::string(17 << 20, 'x') + "\"\n"); },
       kInvalidArgument,
       files + path("a.csv") + ": line 3: a record of more than 16777216 bytes: is a quote not"},
      {[&] {
         std::string ids;
         for (int i = 0; i < 65'537; ++i) ids += "1 ";
         write("a.csv", std::string(kHeader) + "0,1,1," + ids + ",a\n");
       },
       kInvalidArgument, files + path("a.csv") + ": line 2, column tags: \"1 1 1 "},
  };
  const v1::DataSpec before = spec_;
  for (const Case& c : cases) {
    spec_ = before;
    write("a.csv", good);
    name({"a.csv"});
    c.spoil();
    const Status status = refusal();
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(c.message));
  }
}

TEST_F(CsvData, MoreSamplesThanAStreamMayHaveAreRefused) {
  write("a.csv", "click,age\n0,1\n1,2\n");
  write("b.csv", "click,age\n0,1\n1,2\n");
  const std::vector<internal::Column> columns = {
      {.name = "click", .kind = internal::ColumnKind::kLabel, .ids = 0},
      {.name = "age", .kind = internal::ColumnKind::kNumber, .ids = 0}};
  const std::vector<std::string> paths = {path("a.csv"), path("b.csv")};
  EXPECT_TRUE(internal::readCsv("data.files", paths, columns, {.samples_max = 4}).ok());
  EXPECT_EQ(
      std::string(
          internal::readCsv("data.files", paths, columns, {.samples_max = 3}).status().message()),
      "data.files: " + path("b.csv") + ": line 3: more samples than 3, the most of all files");
}

}  // namespace
}  // namespace trainyard::runtime
