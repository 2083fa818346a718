// A file of comma-separated values, or of Criteo's clicks: the first byte says which, and whether
// the rest is packed before it is read.
#include <cmath>

#include "base/core/check.h"
#include "runtime/catalog/data_columns.h"
#include "runtime/data/internal/criteo.h"
#include "runtime/data/internal/csv.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/gzip.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

using runtime::Dataset;
using runtime::internal::Column;
using runtime::internal::ColumnKind;

const std::vector<Column>& allKinds() {
  static const std::vector<Column> columns = {{.name = "l", .kind = ColumnKind::kLabel, .ids = 0},
                                              {.name = "i", .kind = ColumnKind::kId, .ids = 0},
                                              {.name = "s", .kind = ColumnKind::kIds, .ids = 0},
                                              {.name = "n", .kind = ColumnKind::kNumber, .ids = 0},
                                              {.name = "t", .kind = ColumnKind::kText, .ids = 0},
                                              {.name = "w", .kind = ColumnKind::kWeight, .ids = 0}};
  return columns;
}

const std::vector<Column>& criteoColumns() {
  static const std::vector<Column> columns = [] {
    v1::DataSpec spec;
    spec.set_format("criteo");
    return *runtime::internal::readColumns(spec);
  }();
  return columns;
}

runtime::Batch wholeBatch(const Dataset& data) {
  TY_CHECK(data.size() > 0, "no dataset is empty");
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  runtime::Batch batch;
  data.read(all, all, batch);
  for (const std::int64_t label : batch.labels) TY_CHECK(label == 0 || label == 1, "a label");
  TY_CHECK(batch.numbers.size() == all.size() * data.columns().numbers.size(),
           "each sample has its numbers");
  for (const float number : batch.numbers) TY_CHECK(std::isfinite(number), "numbers are finite");
  return batch;
}

void readAllSamples(const Dataset& data) {
  const runtime::Batch batch = wholeBatch(data);
  const std::size_t samples = batch.labels.size();
  TY_CHECK(batch.features.size() == 3, "three columns have ids");
  TY_CHECK(batch.weights.size() == samples, "each sample has its weight");
  for (const float weight : batch.weights)
    TY_CHECK(std::isfinite(weight) && weight >= 0, "weights are finite and not below 0");
  for (const runtime::FeatureIds& feature : batch.features) {
    TY_CHECK(feature.ends.size() == samples, "each sample has an end");
    std::int32_t before = 0;
    for (const std::int32_t end : feature.ends) {
      TY_CHECK(end >= before, "ends do not go back");
      before = end;
    }
    TY_CHECK(static_cast<std::size_t>(before) == feature.ids.size(), "each id is of a sample");
  }
  TY_CHECK(batch.features[0].ids.size() == samples, "one id for each sample");
  TY_CHECK(batch.features[2].ids.size() == samples, "one text for each sample");
}

void readAllClicks(const Dataset& data) {
  const runtime::Batch batch = wholeBatch(data);
  for (const runtime::FeatureIds& feature : batch.features)
    TY_CHECK(feature.ids.size() == batch.labels.size(), "one id for each sample");
}

}  // namespace

void runCsv(std::string_view input) {
  Choices choices(input);
  const int choice = choices.byte();
  const bool pack = (choice & 1) != 0;
  const bool criteo = (choice & 2) != 0;
  const auto read = criteo ? &runtime::internal::readCriteo : &runtime::internal::readCsv;
  const std::vector<Column>& columns = criteo ? criteoColumns() : allKinds();
  const std::string_view content = choices.rest();
  const MemoryFile file(pack ? packed(content) : std::string(content));
  const std::vector<std::string> paths = {file.path()};
  const auto data = read("data.files", paths, columns, runtime::internal::Reading{});
  if (data.ok()) {
    criteo ? readAllClicks(**data) : readAllSamples(**data);
    const auto again = read("data.files", paths, columns, runtime::internal::Reading{});
    TY_CHECK(again.ok() && (*again)->fingerprint() == (*data)->fingerprint(), "a file is a file");
    return;
  }
  TY_CHECK(absl::IsInvalidArgument(data.status()), "a file that is wrong is named so");
  TY_CHECK(std::string(data.status().message()).starts_with("data.files: " + file.path() + ": "),
           "an error has its place");
}

std::vector<std::string> csvSeeds() {
  const std::string header = "w,l,i,s,n,t\n";
  std::vector<std::string> seeds = {"", std::string(1, '\0'), std::string(1, '\1')};
  for (const std::string& content :
       {header,
        header + "2,0,1,2 3,4.5,a\n0.5,1,18446744073709551615,,,\n",
        std::string("\xef\xbb\xbft,x,n,s,i,l,w\r\n\"a \"\"b\"\"\r\n\",,1e5,\" 7  8 \",9,1.0,3\r\n"),
        header + "\n2,0,1,2,3,\"a\"\"\"",
        header + "2,0,1,2,3,\"a",
        header + "2,0,1,2,3,\"a\"b",
        header + "2,0,1,2,3,a\"",
        header + "2,0,1,2,3,a\rb",
        header + "2,0,1,2,3",
        header + "2,0,1,2,3,4,5",
        header + "2,2,1,2,3,a",
        header + "-1,0,1,2,3,a",
        header + ",0,1,2,3,a",
        header + "2,0,-1,2,3,a",
        header + "2,0,1,x,3,a",
        header + "2,0,1,2,1e39,a",
        header + "2,0,1,2,-nan,a",
        header + "2,0,18446744073709551616,2,3,a",
        std::string("l,i,s,n\n"),
        std::string("l,i,s,n,t,t\n"),
        header + std::string(3, '\n')}) {
    seeds.push_back(std::string(1, '\0') + content);
    seeds.push_back(std::string(1, '\1') + content);
  }
  const std::string missing = "1" + std::string(39, '\t');
  std::string click = "0";
  for (int i = 0; i < runtime::kCriteoIntegers; ++i) click += "\t-12";
  for (int i = 0; i < runtime::kCriteoCategories; ++i) click += "\t05db9164";
  for (const std::string& content :
       {missing, click + "\r\n" + missing + "\n", missing + "1", missing + "g",
        missing + "123456789", missing + "\"", missing + "\t", "2" + missing,
        "1\tx" + std::string(38, '\t')}) {
    seeds.push_back(std::string(1, '\2') + content);
    seeds.push_back(std::string(1, '\3') + content);
  }
  const std::string gzip = packed(header + "2,0,1,2 3,4.5,a\n");
  seeds.push_back(std::string(1, '\0') + gzip);
  seeds.push_back(std::string(1, '\0') + gzip.substr(0, gzip.size() - 6));
  return seeds;
}

}  // namespace trainyard::fuzz
