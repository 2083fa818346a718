// Samples from an object store, and the copies that are kept of its files.
#include <filesystem>
#include <fstream>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/dataset.h"
#include "tests/base/process/file_size_limit.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/storage/folder_store.h"

namespace trainyard::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

std::string lines(int first, int count) {
  std::string text = "click,user\n";
  for (int i = first; i < first + count; ++i) text += fmt::format("{},{}\n", i % 2, i);
  return text;
}

class ObjectData : public testing::Test {
 protected:
  ObjectData() {
    useInPlaceOfObjectStores(std::make_unique<FolderStore>(store_.path(), stage_));
    spec_.set_format("csv");
    for (const auto& [name, kind] :
         std::vector<std::pair<std::string, std::string>>{{"click", "Label"}, {"user", "Id"}}) {
      v1::ColumnSpec* const column = spec_.add_columns();
      column->set_name(name);
      column->set_kind(kind);
    }
    write("part-1.csv", lines(0, 20'000));
    write("part-2.csv", lines(20'000, 20'000));
    write("other.txt", "no samples");
    spec_.add_files(std::string(kFolderStore) + "/part-*.csv");
  }
  ~ObjectData() override { useInPlaceOfObjectStores(nullptr); }

  void write(const std::string& name, const std::string& content) {
    std::ofstream(store_.path() / name, std::ios::binary) << content;
  }
  std::vector<std::string> copies() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(cache_.path()))
      names.push_back(entry.path());
    return names;
  }
  // What tells the samples apart; the words of a failure.
  std::string opened() const {
    const StatusOr<DataSplits> data = openData(spec_);
    return data.ok() ? data->train->fingerprint() : std::string(data.status().message());
  }
  std::string fromDisk() {
    v1::DataSpec spec = spec_;
    spec.clear_files();
    spec.clear_cache();
    spec.add_files(store_.path() / "part-*.csv");
    const StatusOr<DataSplits> data = openData(spec);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? data->train->fingerprint() : "";
  }

  TempDir store_, cache_;
  FolderStoreStage stage_;
  v1::DataSpec spec_;
};

TEST_F(ObjectData, SamplesAreThoseOfTheSameFilesOnADisk) {
  EXPECT_EQ(opened(), fromDisk());
  EXPECT_EQ(stage_.streams, 2);
  EXPECT_EQ(opened(), fromDisk());
  EXPECT_EQ(stage_.streams, 4) << "fetched again";
}

TEST_F(ObjectData, CopiesAreReadInPlaceOfTheStoresFiles) {
  spec_.set_cache(cache_.path());
  EXPECT_EQ(opened(), fromDisk());
  EXPECT_THAT(copies(), SizeIs(2));
  EXPECT_EQ(stage_.streams, 2);
  EXPECT_EQ(opened(), fromDisk());
  EXPECT_EQ(stage_.streams, 2);
}

TEST_F(ObjectData, AnotherVersionIsFetchedAndOneThatWasCutIsToo) {
  spec_.set_cache(cache_.path());
  EXPECT_EQ(opened(), fromDisk());
  std::filesystem::resize_file(copies().front(), 1000);
  EXPECT_EQ(opened(), fromDisk());
  EXPECT_EQ(stage_.streams, 3);
  write("part-2.csv", lines(70'000, 20'000));
  stage_.version = "2";
  EXPECT_EQ(opened(), fromDisk());
  EXPECT_EQ(stage_.streams, 5);
  EXPECT_THAT(copies(), SizeIs(4));
}

TEST_F(ObjectData, AReaderThatFailsLeavesNoPartOfACopy) {
  spec_.set_cache(cache_.path());
  write("part-1.csv", lines(0, 20'000) + "2,3\n");
  EXPECT_THAT(opened(), AllOf(HasSubstr("s3://lab/job/part-1.csv"), HasSubstr("20002")));
  for (const std::string& copy : copies())
    EXPECT_EQ(std::filesystem::file_size(copy),
              std::filesystem::file_size(store_.path() / "part-1.csv"));
}

TEST_F(ObjectData, WhereNoCopyFindsRoomSamplesComeFromTheStore) {
  const std::string expected = fromDisk();
  spec_.set_cache(cache_.path());
  {
    const FileSizeLimit limit(100'000);
    EXPECT_EQ(opened(), expected);
  }
  EXPECT_THAT(copies(), SizeIs(0));
  spec_.set_cache(cache_.path() / "nowhere");
  EXPECT_EQ(opened(), "training.data.cache: " + spec_.cache() + ": no such folder");
}

TEST_F(ObjectData, NamesAFileOnceInWhatItSays) {
  spec_.set_files(0, std::string(kFolderStore) + "/nothing.csv");
  const std::string said = opened();
  EXPECT_THAT(said, HasSubstr("training.data.files: s3://lab/job/nothing.csv: "));
  stage_.away = "part-2";
  spec_.set_files(0, std::string(kFolderStore) + "/part-*.csv");
  EXPECT_EQ(opened(), "training.data.files: s3://lab/job/part-2.csv: away");
  spec_.set_files(0, std::string(kFolderStore) + "/none-*.csv");
  EXPECT_EQ(opened(), "training.data.files: s3://lab/job/none-*.csv: no file has such a name");
  stage_.away = "list";
  EXPECT_THAT(opened(), HasSubstr("training.data.files: s3://lab/job/none-*.csv: away"));
}

TEST_F(ObjectData, PicturesToo) {
  const auto idx = [](std::string head, std::size_t bytes) { return head + std::string(bytes, 1); };
  using std::string_literals::operator""s;
  write("images", idx("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02"s, 8));
  write("labels", idx("\0\0\x08\x01\0\0\0\x02"s, 2));
  v1::DataSpec spec;
  spec.set_format("idx");
  spec.set_images(std::string(kFolderStore) + "/images");
  spec.set_labels(std::string(kFolderStore) + "/labels");
  spec.set_cache(cache_.path());
  for (int pass = 0; pass < 2; ++pass) {
    const StatusOr<DataSplits> data = openData(spec);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->train->size(), 2);
  }
  EXPECT_EQ(stage_.streams, 2);
}

}  // namespace
}  // namespace trainyard::runtime
