// A file of comma-separated values. The first byte says whether the rest is packed before it is
// read.
#include <cmath>

#include "base/core/check.h"
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
                                              {.name = "t", .kind = ColumnKind::kText, .ids = 0}};
  return columns;
}

void readAllSamples(const Dataset& data) {
  TY_CHECK(data.size() > 0, "no dataset is empty");
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  runtime::Batch batch;
  data.read(all, all, batch);
  for (const std::int64_t label : batch.labels) TY_CHECK(label == 0 || label == 1, "a label");
  TY_CHECK(batch.numbers.size() == all.size(), "a number for each sample");
  for (const float number : batch.numbers) TY_CHECK(std::isfinite(number), "numbers are finite");
  TY_CHECK(batch.features.size() == 3, "three columns have ids");
  for (const runtime::FeatureIds& feature : batch.features) {
    TY_CHECK(feature.ends.size() == all.size(), "each sample has an end");
    std::int32_t before = 0;
    for (const std::int32_t end : feature.ends) {
      TY_CHECK(end >= before, "ends do not go back");
      before = end;
    }
    TY_CHECK(static_cast<std::size_t>(before) == feature.ids.size(), "each id is of a sample");
  }
  TY_CHECK(batch.features[0].ids.size() == all.size(), "one id for each sample");
  TY_CHECK(batch.features[2].ids.size() == all.size(), "one text for each sample");
}

}  // namespace

void runCsv(std::string_view input) {
  Choices choices(input);
  const bool pack = (choices.byte() & 1) != 0;
  const std::string_view content = choices.rest();
  const MemoryFile file(pack ? packed(content) : std::string(content));
  const std::vector<std::string> paths = {file.path()};
  const auto data = runtime::internal::readCsv("data.files", paths, allKinds());
  if (data.ok()) {
    readAllSamples(**data);
    const auto again = runtime::internal::readCsv("data.files", paths, allKinds());
    TY_CHECK(again.ok() && (*again)->fingerprint() == (*data)->fingerprint(), "a file is a file");
    return;
  }
  TY_CHECK(absl::IsInvalidArgument(data.status()), "a file that is wrong is named so");
  TY_CHECK(std::string(data.status().message()).starts_with("data.files: " + file.path() + ": "),
           "an error has its place");
}

std::vector<std::string> csvSeeds() {
  const std::string header = "l,i,s,n,t\n";
  std::vector<std::string> seeds = {"", std::string(1, '\0'), std::string(1, '\1')};
  for (const std::string& content :
       {header, header + "0,1,2 3,4.5,a\n1,18446744073709551615,,,\n",
        std::string("\xef\xbb\xbft,x,n,s,i,l\r\n\"a \"\"b\"\"\r\n\",,1e5,\" 7  8 \",9,1.0\r\n"),
        header + "\n0,1,2,3,\"a\"\"\"", header + "0,1,2,3,\"a", header + "0,1,2,3,\"a\"b",
        header + "0,1,2,3,a\"", header + "0,1,2,3,a\rb", header + "0,1,2,3", header + "0,1,2,3,4,5",
        header + "2,1,2,3,a", header + "0,-1,2,3,a", header + "0,1,x,3,a", header + "0,1,2,1e39,a",
        header + "0,1,2,-nan,a", header + "0,18446744073709551616,2,3,a", std::string("l,i,s,n\n"),
        std::string("l,i,s,n,t,t\n"), header + std::string(3, '\n')}) {
    seeds.push_back(std::string(1, '\0') + content);
    seeds.push_back(std::string(1, '\1') + content);
  }
  const std::string gzip = packed(header + "0,1,2 3,4.5,a\n");
  seeds.push_back(std::string(1, '\0') + gzip);
  seeds.push_back(std::string(1, '\0') + gzip.substr(0, gzip.size() - 6));
  return seeds;
}

}  // namespace trainyard::fuzz
