// A store that is away for a moment: nobody takes what cannot be read now for what is not there.
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/claim.h"
#include "runtime/storage/local_storage.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kPlace[] = "s3://lab/job";

// Files of a folder under the names of an object store's, whose reads fail while it is away.
class AwayStorage : public Storage {
 public:
  AwayStorage(std::string folder, const std::string& away)
      : folder_(std::move(folder)), away_(away) {}

  StatusOr<std::vector<StoredFile>> list(const std::string& folder) override {
    TY_RETURN_IF_ERROR(reach("list"));
    return local_.list(at(folder));
  }
  StatusOr<std::shared_ptr<const ReadableFile>> open(const std::string& path) override {
    TY_RETURN_IF_ERROR(reach(path));
    return local_.open(at(path));
  }
  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                 Writers writers) override {
    return local_.create(at(path), writers);
  }
  Status remove(const std::string& path) override { return local_.remove(at(path)); }
  Status makeFolder(const std::string& folder) override { return local_.makeFolder(at(folder)); }
  Status settle(const std::string& folder) override { return local_.settle(at(folder)); }
  bool vouches() const override { return true; }

 private:
  std::string at(const std::string& path) const {
    return folder_ + path.substr(std::string_view(kPlace).size());
  }
  Status reach(const std::string& what) const {
    if (away_.empty() || what.find(away_) == std::string::npos) return absl::OkStatus();
    return absl::UnavailableError("away");
  }

  LocalStorage local_;
  const std::string folder_;
  const std::string& away_;  // what contains it cannot be read
};

class StoreAwayTest : public testing::Test {
 protected:
  StoreAwayTest() { useInPlaceOfObjectStores(std::make_unique<AwayStorage>(dir_.path(), away_)); }
  ~StoreAwayTest() override { useInPlaceOfObjectStores(nullptr); }

  Claim claimOf(std::uint32_t created) {
    return Claim(kPlace, {sampleManifest(1, 1).job_uid, "ps-0", created, 1});
  }
  void commit(std::int64_t step, std::int64_t writer) {
    auto manifest = writeSampleShards(kPlace, 1, step, 1);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    manifest->writer = writer;
    ASSERT_EQ(commitManifest(kPlace, *manifest), absl::OkStatus());
  }
  std::vector<std::int64_t> steps() {
    std::vector<std::int64_t> result;
    for (const Manifest& manifest : listManifests(kPlace, nullptr)) result.push_back(manifest.step);
    return result;
  }

  SampleDir dir_;
  std::string away_;
};

TEST_F(StoreAwayTest, ManifestsAreNotLeftOut) {
  commit(10, 0);
  commit(20, 0);
  for (const char* what : {"list", "step-20.e1.json"}) {
    away_ = what;
    EXPECT_TRUE(absl::IsUnavailable(readManifests(kPlace, nullptr).status())) << what;
    std::vector<std::string> problems;
    EXPECT_THAT(listManifests(kPlace, &problems), IsEmpty()) << what;
    EXPECT_THAT(problems, ElementsAre(HasSubstr("away"))) << what;
    EXPECT_TRUE(absl::IsUnavailable(prune(kPlace, 1))) << what;
  }
  away_.clear();
  EXPECT_THAT(steps(), ElementsAre(20, 10));
}

// Its claim would say that it began before any checkpoint, and so make all of them void.
TEST_F(StoreAwayTest, AWriterThatCannotSeeTheManifestsHoldsNoClaim) {
  Claim first = claimOf(1);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  commit(10, first.number());
  Claim second = claimOf(2);
  away_ = "step-10.e1.json";
  EXPECT_TRUE(absl::IsUnavailable(second.hold()));
  EXPECT_EQ(second.number(), 0);
  away_.clear();
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
  away_ = "writer-";
  EXPECT_TRUE(absl::IsUnavailable(third.hold()));
  away_.clear();
  EXPECT_EQ(third.hold(), absl::OkStatus());
  EXPECT_THAT(steps(), IsEmpty());
}

}  // namespace
}  // namespace trainyard::runtime
