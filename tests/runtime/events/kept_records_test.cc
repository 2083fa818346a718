#include "runtime/events/kept_records.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/storage/storage.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/storage/folder_store.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;

class KeptRecordsTest : public testing::Test {
 protected:
  KeptRecordsTest() {
    fs::create_directories(store_.path() / "records" / "events");
    useInPlaceOfObjectStores(std::make_unique<FolderStore>(store_.path(), stage_));
  }
  ~KeptRecordsTest() override { useInPlaceOfObjectStores(nullptr); }

  // The folder of one life of the chief.
  static void record(const fs::path& job_dir, const std::string& lines, const std::string& event) {
    fs::create_directories(job_dir / "events");
    std::ofstream(job_dir / "metrics.jsonl", std::ios::app) << lines;
    if (!event.empty()) std::ofstream(job_dir / "events" / event, std::ios::app) << "an event";
  }
  static KeptRecords::Options options(const fs::path& job_dir) {
    return {.job_dir = job_dir, .place = "s3://lab/job/records"};
  }
  std::string stored(const std::string& name) const {
    const auto text = readStored(store_.path() / "records" / name, 1 << 20);
    return text.ok() ? *text : std::string(text.status().message());
  }

  TempDir store_;
  TempDir first_, second_;
  FolderStoreStage stage_;
};

TEST_F(KeptRecordsTest, AFormerLifesLinesComeFirst) {
  {
    KeptRecords kept(options(first_.path()));
    record(first_.path(), "{1}\n{2}\n", "a");
    kept.finish();
  }
  EXPECT_EQ(stored("metrics.jsonl"), "{1}\n{2}\n");
  EXPECT_EQ(stored("events/a"), "an event");
  // In the folder of its first life the chief goes on, in another one it begins with nothing.
  record(first_.path(), "{3}\n", "b");
  KeptRecords(options(first_.path())).finish();
  EXPECT_EQ(stored("metrics.jsonl"), "{1}\n{2}\n{3}\n");
  record(second_.path(), "{4}\n", "c");
  KeptRecords(options(second_.path())).finish();
  EXPECT_EQ(stored("metrics.jsonl"), "{1}\n{2}\n{3}\n{4}\n");
  for (const char* name : {"events/a", "events/b", "events/c"}) EXPECT_EQ(stored(name), "an event");
}

TEST_F(KeptRecordsTest, ALineThatWasCutOffIsNotContinued) {
  std::ofstream(store_.path() / "records" / "metrics.jsonl") << "{1}\n{2";
  record(first_.path(), "{3}\n", "");
  KeptRecords(options(first_.path())).finish();
  EXPECT_EQ(stored("metrics.jsonl"), "{1}\n{3}\n");
}

// As long as nobody knows what is there, nothing takes its place.
TEST_F(KeptRecordsTest, AStoreThatIsAwayKeepsWhatItHas) {
  std::ofstream(store_.path() / "records" / "metrics.jsonl") << "{1}\n";
  record(first_.path(), "{2}\n", "a");
  stage_.away = "metrics.jsonl";
  KeptRecords(options(first_.path())).finish();
  EXPECT_EQ(stored("metrics.jsonl"), "{1}\n");
  stage_.away = "";
  KeptRecords(options(first_.path())).finish();
  EXPECT_EQ(stored("metrics.jsonl"), "{1}\n{2}\n");
}

TEST_F(KeptRecordsTest, WithoutRecordsNothingIsCopied) {
  std::ofstream(store_.path() / "records" / "metrics.jsonl") << "{1}\n";
  KeptRecords(options(first_.path())).finish();
  EXPECT_EQ(stored("metrics.jsonl"), "{1}\n");
  EXPECT_TRUE(fs::is_empty(first_.path()));
}

TEST_F(KeptRecordsTest, CopiesComeByThemselves) {
  KeptRecords::Options often = options(first_.path());
  often.first = std::chrono::milliseconds(1);
  often.every = std::chrono::milliseconds(2);
  record(first_.path(), "{1}\n", "a");
  const KeptRecords kept(often);
  EXPECT_TRUE(eventually([&] { return stored("metrics.jsonl") == "{1}\n"; }));
  record(first_.path(), "{2}\n", "a");
  EXPECT_TRUE(eventually([&] { return stored("metrics.jsonl") == "{1}\n{2}\n"; }));
  EXPECT_TRUE(eventually([&] { return stored("events/a") == "an eventan event"; }));
}

}  // namespace
}  // namespace trainyard::runtime
