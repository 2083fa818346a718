#include "runtime/data/internal/file_pattern.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime::internal {
namespace {

using testing::ElementsAre;

TEST(FilePattern, AStarStandsForNoDotAtTheBeginning) {
  const TempDir dir;
  for (const char* name : {"a.csv", ".a.csv"}) std::ofstream(dir.path() / name) << name;
  const std::string folder = dir.path();
  EXPECT_THAT(*filesOf("data.files", {folder + "/*.csv"}), ElementsAre(folder + "/a.csv"));
  EXPECT_FALSE(filesOf("data.files", {folder + "/?a.csv"}).ok());
  EXPECT_THAT(*filesOf("data.files", {folder + "/.*.csv"}), ElementsAre(folder + "/.a.csv"));
}

TEST(FilePattern, FilesAreSortedWithinEachPattern) {
  const TempDir dir;
  for (const char* name : {"b-10", "b-2", "b-1", "a-1", ".b-0", "c"}) {
    std::ofstream(dir.path() / name) << name;
  }
  const std::string folder = dir.path();
  const auto files = filesOf("data.files", {folder + "/b-*", folder + "/gone", folder + "/?-1"});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(*files, ElementsAre(folder + "/b-1", folder + "/b-10", folder + "/b-2",
                                  folder + "/gone", folder + "/a-1", folder + "/b-1"));
}

TEST(FilePattern, ErrorsNameFieldAndPattern) {
  const TempDir dir;
  const std::string folder = dir.path();
  const auto none = filesOf("data.files", {folder + "/*.csv"}).status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_EQ(std::string(none.message()),
            "data.files: " + folder + "/*.csv: no file has such a name");
  const auto no_folder = filesOf("data.files", {folder + "/gone/*.csv"}).status();
  EXPECT_TRUE(absl::IsNotFound(no_folder));
  EXPECT_EQ(
      std::string(no_folder.message()),
      "data.files: " + folder + "/gone/*.csv: cannot list its folder: No such file or directory");
  const auto middle = filesOf("data.files", {folder + "/*/a.csv"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(middle));
  EXPECT_THAT(std::string(middle.message()),
              testing::HasSubstr("* and ? stand in a folder's name"));
}

}  // namespace
}  // namespace trainyard::runtime::internal
