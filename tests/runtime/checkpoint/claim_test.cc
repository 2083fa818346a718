#include "runtime/checkpoint/claim.h"

#include <filesystem>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ClaimTest : public testing::Test {
 protected:
  // Of the job that sample checkpoints are of.
  Claim claimOf(std::uint32_t created, std::uint32_t start = 1,
                const std::string& uid = sampleManifest(1, 1).job_uid) {
    return Claim(dir_.path(), {uid, "ps-0", created, start});
  }
  void commit(std::int64_t step, std::int64_t epoch, std::int64_t writer) {
    auto manifest = writeSampleShards(dir_.path(), 1, step, epoch);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    manifest->writer = writer;
    ASSERT_EQ(commitManifest(dir_.path(), *manifest), absl::OkStatus());
  }
  std::vector<std::int64_t> steps() {
    std::vector<std::int64_t> result;
    for (const Manifest& manifest : listManifests(dir_.path(), nullptr))
      result.push_back(manifest.step);
    return result;
  }

  SampleDir dir_;
};

TEST_F(ClaimTest, TheNextOneDisplacesTheOneBefore) {
  Claim first = claimOf(1);
  EXPECT_EQ(first.number(), 0);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  EXPECT_EQ(first.number(), 1);
  EXPECT_EQ(first.hold(), absl::OkStatus()) << "as often as it is asked";
  Claim second = claimOf(2);
  ASSERT_EQ(second.hold(), absl::OkStatus());
  EXPECT_EQ(second.number(), 2);
  const Status lost = first.hold();
  EXPECT_TRUE(absl::IsAborted(lost));
  EXPECT_THAT(std::string(lost.message()), HasSubstr("ps-0 (created 2, start 1) writes to "));
  EXPECT_EQ(second.hold(), absl::OkStatus());
  EXPECT_THAT(fileNames(dir_.path()), ElementsAre("writer-2.json"));
}

TEST_F(ClaimTest, AnEarlierLifeDoesNotGetItBack) {
  ASSERT_EQ(claimOf(2, 3).hold(), absl::OkStatus());
  // An agent that is cut off starts its program again.
  EXPECT_TRUE(absl::IsAborted(claimOf(1, 9).hold()));
  EXPECT_TRUE(absl::IsAborted(claimOf(2, 2).hold()));
  EXPECT_EQ(claimOf(2, 4).hold(), absl::OkStatus());
  Claim lost = claimOf(2, 3);
  EXPECT_TRUE(absl::IsAborted(lost.hold()));
  std::filesystem::remove(dir_ / "writer-2.json");
  EXPECT_TRUE(absl::IsAborted(lost.hold())) << "for good";
}

TEST_F(ClaimTest, AnotherJobsNumbersSayNothing) {
  ASSERT_EQ(claimOf(7).hold(), absl::OkStatus());
  EXPECT_EQ(claimOf(1, 1, "another").hold(), absl::OkStatus());
}

// The writer was frozen between its look at the claims and its commit.
TEST_F(ClaimTest, WhatADisplacedWriterCommitsIsVoid) {
  Claim first = claimOf(1);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  commit(100, 1, first.number());
  Claim second = claimOf(2);
  ASSERT_EQ(second.hold(), absl::OkStatus());
  commit(150, 2, first.number());
  EXPECT_THAT(steps(), ElementsAre(100));
  commit(120, 3, second.number());
  EXPECT_THAT(steps(), ElementsAre(120, 100));
  commit(160, 3, second.number());
  EXPECT_THAT(steps(), ElementsAre(160, 120, 100));
  EXPECT_THAT(findManifest(dir_.path()).value_or(""), HasSubstr("step-160.e3.json"));
}

TEST_F(ClaimTest, WhatWasThereBeforeTheClaimCounts) {
  commit(50, 1, 0);  // of a release without claims
  Claim first = claimOf(1);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  commit(100, 2, first.number());
  Claim second = claimOf(2);
  ASSERT_EQ(second.hold(), absl::OkStatus());
  EXPECT_THAT(steps(), ElementsAre(100, 50));
}

TEST_F(ClaimTest, NothingOfAFormerWriterCountsWhereNothingWasThere) {
  Claim first = claimOf(1);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  ASSERT_EQ(claimOf(2).hold(), absl::OkStatus());
  commit(100, 1, first.number());
  EXPECT_THAT(steps(), ElementsAre());
}

// Two writers after it: from which checkpoint the one in between began is remembered.
TEST_F(ClaimTest, StaysVoidUnderLaterClaims) {
  Claim first = claimOf(1);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  commit(100, 1, first.number());
  Claim second = claimOf(2);
  ASSERT_EQ(second.hold(), absl::OkStatus());
  commit(200, 2, second.number());
  Claim third = claimOf(3);
  ASSERT_EQ(third.hold(), absl::OkStatus());
  commit(150, 1, first.number());
  EXPECT_THAT(steps(), ElementsAre(200, 100));
  commit(250, 2, second.number());
  EXPECT_THAT(steps(), ElementsAre(200, 100));
}

TEST_F(ClaimTest, OfAnotherJobIsNotVoid) {
  ASSERT_EQ(claimOf(1, 1, "another").hold(), absl::OkStatus());
  ASSERT_EQ(claimOf(2, 1, "another").hold(), absl::OkStatus());
  commit(100, 1, 1);
  EXPECT_THAT(steps(), ElementsAre(100));
}

TEST_F(ClaimTest, PruneRemovesWhatIsVoid) {
  Claim first = claimOf(1);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  commit(100, 1, first.number());
  Claim second = claimOf(2);
  ASSERT_EQ(second.hold(), absl::OkStatus());
  commit(150, 1, first.number());
  commit(200, 2, second.number());
  ASSERT_EQ(prune(dir_.path(), 5), absl::OkStatus());
  EXPECT_THAT(fileNames(dir_.path()), Not(Contains("step-150.e1.json")));
  EXPECT_THAT(fileNames(dir_.path()), Contains("step-100.e1.json"));
  EXPECT_THAT(fileNames(dir_.path()), Contains("step-200.e2.json"));
}

TEST_F(ClaimTest, OnlyOneOfManyAtOnceHoldsIt) {
  std::vector<Claim> claims;
  for (std::uint32_t i = 0; i < 8; ++i) claims.push_back(claimOf(1, 1));
  std::vector<std::thread> threads;
  for (Claim& claim : claims) threads.emplace_back([&claim] { static_cast<void>(claim.hold()); });
  for (std::thread& thread : threads) thread.join();
  int holders = 0;
  for (Claim& claim : claims) holders += claim.number() > 0 && claim.hold().ok() ? 1 : 0;
  EXPECT_EQ(holders, 1);
}

TEST_F(ClaimTest, RemembersSoManyAndNoMore) {
  for (std::uint32_t life = 1; life <= 100; ++life) {
    Claim claim = claimOf(life);
    ASSERT_EQ(claim.hold(), absl::OkStatus());
    if (life % 10 == 0) commit(life, life, claim.number());
  }
  EXPECT_LT(readText(dir_ / "writer-100.json").size(), 10'000u);
  commit(95, 200, 98);
  EXPECT_THAT(steps(), Not(Contains(95)));
}

// Whoever made the claim died before it had looked at the checkpoints: it trained nothing.
TEST_F(ClaimTest, WithoutItsBeginningItVoidsNothing) {
  Claim first = claimOf(1);
  ASSERT_EQ(first.hold(), absl::OkStatus());
  writeText(dir_ / "writer-2.json",
            R"({"jobUid": "6f1e", "task": "ps-0", "created": 2, "start": 1, "starts": []})");
  commit(100, 1, first.number());
  EXPECT_THAT(steps(), ElementsAre(100));
  EXPECT_TRUE(absl::IsAborted(first.hold()));
  EXPECT_EQ(claimOf(2, 2).hold(), absl::OkStatus());
  EXPECT_THAT(steps(), ElementsAre(100));
}

TEST_F(ClaimTest, WhatCannotBeReadStandsInNobodysWay) {
  commit(100, 1, 1);
  for (const char* text : {"", "{", "[]", R"({"starts": 7})", R"({"starts": [7, {"number": "x"}]})",
                           R"({"created": -1, "starts": null})"}) {
    writeText(dir_ / "writer-5.json", text);
    EXPECT_THAT(steps(), ElementsAre(100)) << text;
  }
  for (const char* name : {"writer-.json", "writer-07.json", "writer--1.json", "writer-x.json",
                           "writer-99999999999999999999.json", "writer-8.json.tmp"}) {
    writeText(dir_ / name, "");
  }
  Claim claim = claimOf(1);
  EXPECT_EQ(claim.hold(), absl::OkStatus());
  EXPECT_EQ(claim.number(), 6);
}

TEST_F(ClaimTest, ADiskThatCannotBeWrittenToMayMend) {
  const std::string absent = dir_ / "absent";
  Claim claim(absent, {"6f1e", "ps-0", 1, 1});
  const Status failed = claim.hold();
  EXPECT_FALSE(failed.ok());
  EXPECT_FALSE(absl::IsAborted(failed)) << failed;
  std::filesystem::create_directory(absent);
  EXPECT_EQ(claim.hold(), absl::OkStatus());
}

}  // namespace
}  // namespace trainyard::runtime
