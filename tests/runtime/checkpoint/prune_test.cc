#include <chrono>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

class Prune : public testing::Test {
 protected:
  // Each file is a minute younger than the one before.
  void age(const std::string& name) {
    fs::last_write_time(dir_ / name, start_ + std::chrono::minutes(++minutes_));
  }
  void checkpoint(std::int64_t step, std::int64_t epoch) {
    const auto manifest = writeSample(dir_.path(), 1, step, epoch);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    age(manifest->files[0].name);
    age(manifest->fileName());
  }
  void file(const std::string& name, const std::string& text = "") {
    writeText(dir_ / name, text);
    age(name);
  }
  void prune(int keep) { ASSERT_EQ(runtime::prune(dir_.path(), keep), absl::OkStatus()); }
  std::vector<std::string> names() { return fileNames(dir_.path()); }

  SampleDir dir_;
  fs::file_time_type start_ = fs::file_time_type::clock::now() - std::chrono::hours(10);
  int minutes_ = 0;
};

TEST_F(Prune, KeepsTheNewest) {
  for (const int step : {9, 10, 11, 100}) checkpoint(step, 1);
  prune(2);
  EXPECT_THAT(names(),
              ElementsAre("ps-0.step-100.e1.i1.safetensors", "ps-0.step-11.e1.i1.safetensors",
                          "step-100.e1.json", "step-11.e1.json"));
  prune(2);
  EXPECT_EQ(names().size(), 4u);
  prune(1);
  EXPECT_THAT(names(), ElementsAre("ps-0.step-100.e1.i1.safetensors", "step-100.e1.json"));
  prune(5);
  EXPECT_EQ(names().size(), 2u);
}

TEST_F(Prune, LeavesWhatIsBeingWritten) {
  file("ps-0.step-5.e1.i1.safetensors");  // left by a crash
  file("ps-0.step-5.e1.i1.safetensors.tmp");
  file("ps-1.step-20.e1.i1.safetensors");  // of the next one, written before the manifest came
  file("ps-1.step-6.e2.i1.safetensors");   // after a rollback
  checkpoint(10, 1);
  file("ps-0.step-7.e1.i1.safetensors.tmp");  // younger than the manifest
  prune(1);
  EXPECT_THAT(names(),
              ElementsAre("ps-0.step-10.e1.i1.safetensors", "ps-0.step-7.e1.i1.safetensors.tmp",
                          "ps-1.step-20.e1.i1.safetensors", "ps-1.step-6.e2.i1.safetensors",
                          "step-10.e1.json"));
}

TEST_F(Prune, AfterARollbackTheNewHistoryStays) {
  checkpoint(1200, 5);  // damaged, say: the run went back
  checkpoint(1000, 4);
  checkpoint(1100, 6);
  file("ps-0.step-1150.e6.i1.safetensors");  // the next one of the new history
  age("step-1100.e6.json");
  prune(1);
  EXPECT_THAT(
      names(),
      ElementsAre("ps-0.step-1100.e6.i1.safetensors", "ps-0.step-1150.e6.i1.safetensors",
                  "ps-0.step-1200.e5.i1.safetensors", "step-1100.e6.json", "step-1200.e5.json"));
}

TEST_F(Prune, LeavesStrangersAndFilesOfUnreadableManifests) {
  file("notes.txt");
  file("model.safetensors");
  file("ps-0.step-3.e1.i1.safetensors");
  file("step-3.e1.json", "{\"format\": 2}");
  checkpoint(10, 1);
  prune(1);
  for (const char* name :
       {"notes.txt", "model.safetensors", "ps-0.step-3.e1.i1.safetensors", "step-3.e1.json"}) {
    EXPECT_THAT(names(), Contains(name));
  }
}

TEST_F(Prune, WithoutAManifestNothingGoes) {
  file("ps-0.step-3.e1.i1.safetensors");
  prune(1);
  EXPECT_THAT(names(), Contains("ps-0.step-3.e1.i1.safetensors"));
}

TEST_F(Prune, AFileThatAKeptManifestSharesStays) {
  checkpoint(10, 1);
  auto shared = readManifest(dir_ / "step-10.e1.json");
  ASSERT_TRUE(shared.ok());
  shared->step = 11;
  ASSERT_EQ(commitManifest(dir_.path(), *shared), absl::OkStatus());
  prune(1);
  EXPECT_THAT(names(), ElementsAre("ps-0.step-10.e1.i1.safetensors", "step-11.e1.json"));
}

TEST_F(Prune, KeepMustBePositive) {
  checkpoint(10, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(runtime::prune(dir_.path(), 0)));
  EXPECT_THAT(names(), Contains("step-10.e1.json"));
}

}  // namespace
}  // namespace trainyard::runtime
