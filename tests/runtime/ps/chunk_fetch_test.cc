// Chunks fetched from a real server.
#include "runtime/ps/chunk_fetch.h"

#include "gmock/gmock.h"
#include "tests/runtime/ps/rpc_bench.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ChunkFetchTest : public testing::Test {
 protected:
  ChunkFetchTest() : server_(1, 1) {
    options_.identity = keys().control;
    options_.job_uid = kJob;
    options_.pause = [this] { return --pauses_ > 0; };
    epoch_.set_epoch(2);
    v1::ChunkSource* source = epoch_.add_sources();
    source->set_ps(0);
    *source->mutable_incarnation() = incarnation(1, 1);
    source->set_address(server_.address);
    for (int i = 0; i < 5; ++i) {
      epoch_.add_former_ps(0);
      epoch_.add_chunk_ps(i % 2);
    }
  }
  Status fetch(std::vector<std::uint32_t> chunks, std::int64_t known = -1) {
    std::vector<FetchedChunk> from;
    for (const std::uint32_t chunk : chunks) from.push_back({chunk, 0, known});
    return fetchChunks(options_, epoch_, from, systemClock(),
                       [&](std::uint32_t chunk, const v1::ChunkContents& contents) {
                         EXPECT_EQ(contents.version(), 0);
                         EXPECT_EQ(contents.weights().size(), known == 0 ? 0u : 32u);
                         fetched_.push_back(chunk);
                         return taken_;
                       });
  }
  void seal(std::int64_t epoch) {
    std::vector<ChunkAnswer> none;
    server_.shard.seal(epoch, none);
  }

  PsServer server_;
  FetchOptions options_;
  v1::EpochInfo epoch_;
  int pauses_ = 5;
  Status taken_;
  std::vector<std::uint32_t> fetched_;
};

TEST_F(ChunkFetchTest, HandsOverOneAfterTheOther) {
  seal(2);
  const Status fetched = fetch({1, 3});
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_THAT(fetched_, ElementsAre(1u, 3u));
  EXPECT_TRUE(fetch({}).ok());
}

TEST_F(ChunkFetchTest, WhatIsHereAlreadyIsNotSentAgain) {
  seal(2);
  EXPECT_TRUE(fetch({1}, 0).ok());
  EXPECT_TRUE(fetch({1}, 7).ok()) << "of another version all comes";
  EXPECT_THAT(fetched_, ElementsAre(1u, 1u));
}

TEST_F(ChunkFetchTest, RepeatsUntilTheServerHasSealedTheEpoch) {
  options_.pause = [this] {
    if (--pauses_ == 0) seal(2);
    return true;
  };
  const Status fetched = fetch({1});
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_LE(pauses_, 0);
}

TEST_F(ChunkFetchTest, EndsWithTheEpoch) {
  seal(3);
  EXPECT_TRUE(absl::IsCancelled(fetch({1})));
  EXPECT_EQ(pauses_, 0);
}

TEST_F(ChunkFetchTest, NamesTheChunkAndItsServerWhenItIsTooLate) {
  seal(3);
  options_.pause = [] { return true; };
  options_.patience = std::chrono::milliseconds(1);
  const Status late = fetch({1});
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_THAT(late.ToString(),
              HasSubstr("ps-0: chunk 1: ps-0 gives no chunk for epoch 2, it is in 3"));
}

TEST_F(ChunkFetchTest, AnotherJobsServerIsNotAsked) {
  seal(2);
  pauses_ = 2;
  options_.job_uid = "other";
  EXPECT_TRUE(absl::IsCancelled(fetch({1})));
  options_.job_uid = kJob;
  epoch_.mutable_sources(0)->mutable_incarnation()->set_start(2);
  pauses_ = 2;
  EXPECT_TRUE(absl::IsCancelled(fetch({1})));
  epoch_.mutable_sources(0)->mutable_incarnation()->set_start(1);
  options_.identity = deriveRuntimeKeys("another token").control;
  pauses_ = 2;
  EXPECT_TRUE(absl::IsCancelled(fetch({1})));
  EXPECT_THAT(fetched_, ElementsAre());
}

TEST_F(ChunkFetchTest, WhatCannotBeTakenOverEndsIt) {
  seal(2);
  taken_ = absl::InvalidArgumentError("does not fit");
  EXPECT_EQ(fetch({1, 3}), taken_);
  EXPECT_THAT(fetched_, ElementsAre(1u));
  epoch_.clear_sources();
  EXPECT_THAT(fetch({1}).ToString(), HasSubstr("from ps-0, which epoch 2 does not name"));
}

}  // namespace
}  // namespace trainyard::runtime::ps
