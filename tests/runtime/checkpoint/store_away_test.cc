// A store that is away for a moment: nobody takes what cannot be read now for what is not there.
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/claim.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"
#include "tests/runtime/storage/folder_store.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StoreAwayTest : public testing::Test {
 protected:
  StoreAwayTest() { useInPlaceOfObjectStores(std::make_unique<FolderStore>(dir_.path(), stage_)); }
  ~StoreAwayTest() override { useInPlaceOfObjectStores(nullptr); }

  Claim claimOf(std::uint32_t created) {
    return Claim(kFolderStore, {sampleManifest(1, 1).job_uid, "ps-0", created, 1});
  }
  void commit(std::int64_t step, std::int64_t writer) {
    auto manifest = writeSampleShards(kFolderStore, 1, step, 1);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    manifest->writer = writer;
    ASSERT_EQ(commitManifest(kFolderStore, *manifest), absl::OkStatus());
  }
  std::vector<std::int64_t> steps() {
    std::vector<std::int64_t> result;
    for (const Manifest& manifest : listManifests(kFolderStore, nullptr))
      result.push_back(manifest.step);
    return result;
  }

  SampleDir dir_;
  FolderStoreStage stage_;
};

TEST_F(StoreAwayTest, ManifestsAreNotLeftOut) {
  commit(10, 0);
  commit(20, 0);
  for (const char* what : {"list", "step-20.e1.json"}) {
    stage_.away = what;
    EXPECT_TRUE(absl::IsUnavailable(readManifests(kFolderStore, nullptr).status())) << what;
    std::vector<std::string> problems;
    EXPECT_THAT(listManifests(kFolderStore, &problems), IsEmpty()) << what;
    EXPECT_THAT(problems, ElementsAre(HasSubstr("away"))) << what;
    EXPECT_TRUE(absl::IsUnavailable(prune(kFolderStore, 1))) << what;
  }
  stage_.away.clear();
  EXPECT_THAT(steps(), ElementsAre(20, 10));
}

// Its claim would say that it began before any checkpoint, and so make all of them void.
TEST_F(StoreAwayTest, AWriterThatCannotSeeTheManifestsHoldsNoClaim) {
  Claim first = claimOf(1);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  commit(10, first.number());
  Claim second = claimOf(2);
  stage_.away = "step-10.e1.json";
  EXPECT_TRUE(absl::IsUnavailable(second.hold()));
  EXPECT_EQ(second.number(), 0);
  stage_.away.clear();
  EXPECT_EQ(second.hold(), absl::OkStatus());
  EXPECT_THAT(steps(), ElementsAre(10));
}

// What former claims say would be lost, and with it what of theirs is void.
TEST_F(StoreAwayTest, NorOneThatCannotSeeTheClaimBefore) {
  Claim first = claimOf(1), second = claimOf(2);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  const std::int64_t former = first.number();
  ASSERT_EQ(second.hold(), absl::OkStatus());
  commit(10, former);  // frozen until now
  EXPECT_THAT(steps(), IsEmpty());
  Claim third = claimOf(3);
  stage_.away = "writer-";
  EXPECT_TRUE(absl::IsUnavailable(third.hold()));
  stage_.away.clear();
  EXPECT_EQ(third.hold(), absl::OkStatus());
  EXPECT_THAT(steps(), IsEmpty());
}

}  // namespace
}  // namespace trainyard::runtime
