// A lane that breaks in the middle of 16-bit weights, between two of their bytes.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "tests/base/process/recording_relay.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/ps/caller.h"
#include "tests/runtime/ps/synchronizer_bench.h"

namespace trainyard::runtime::ps {
namespace {

using testing::Each;

// What the way between them does to frames with weights.
enum class Mutation {
  kNone,             // some are cut off in the middle, with the connection
  kCutWeightsCount,  // what is cut off counts: the rest arrives as something else
};

// Finds the weights in what a server says, and cuts some of them off. On the relay's thread, but
// for what is asked of it.
class WeightsCutter {
 public:
  // `nth`: which weights, counted over all connections.
  explicit WeightsCutter(std::set<int> nth, Mutation mutation = Mutation::kNone)
      : nth_(std::move(nth)), mutation_(mutation) {}

  RecordingRelay::Passed pass(std::size_t connection, bool to_server, std::string_view bytes) {
    if (to_server) return {std::string(bytes)};
    std::lock_guard lock(mutex_);
    Said& said = said_[connection];
    RecordingRelay::Passed passed;
    for (const char byte : bytes) {
      if (said.body == 0) {
        passed.bytes += byte;
        said.head += byte;
        lookAtHead(said);
        continue;
      }
      const bool rest = said.cuts && said.body <= said.all / 2 + 1;  // an odd count is through
      if (rest && mutation_ == Mutation::kNone) return {passed.bytes, false};
      passed.bytes += rest ? '\1' : byte;
      if (--said.body == 0 && !said.cuts) missing_.erase(said.chunk);
    }
    return passed;
  }
  int cuts() const {
    std::lock_guard lock(mutex_);
    return cuts_;
  }
  // Chunks that were cut off and have not come whole since.
  std::size_t missing() const {
    std::lock_guard lock(mutex_);
    return missing_.size();
  }

 private:
  struct Said {
    std::string head;  // of the next frame, as far as it is here; the proof before the first
    bool proven = false;
    std::uint64_t all = 0;
    std::uint64_t body = 0;  // bytes that are still to come
    std::uint32_t chunk = 0;
    bool cuts = false;
  };

  void lookAtHead(Said& said) {
    if (!said.proven && said.head.ends_with("TYLN")) {
      said.proven = true;
      said.head = "TYLN";
    }
    if (!said.proven || said.head.size() < lanes::kFrameBytes) return;
    lanes::FrameBytes bytes;
    std::memcpy(bytes.data(), said.head.data(), bytes.size());
    const StatusOr<lanes::FrameHead> head = lanes::decodeFrame(bytes);
    ASSERT_TRUE(head.ok()) << head.status();
    if (said.head.size() < lanes::kFrameBytes + head->header_bytes) return;
    const std::string header = std::exchange(said.head, "").substr(lanes::kFrameBytes);
    said.all = said.body = head->body_bytes;
    said.cuts = said.body > 0 && nth_.contains(weights_++);
    if (said.body == 0) return;
    v1::ChunkReplyHeader reply;
    ASSERT_TRUE(reply.ParseFromString(header));
    said.chunk = reply.chunk();
    if (!said.cuts) return;
    ++cuts_;
    missing_.insert(said.chunk);
  }

  const std::set<int> nth_;
  const Mutation mutation_;
  mutable std::mutex mutex_;
  std::map<std::size_t, Said> said_;  // by connection
  int weights_ = 0;
  int cuts_ = 0;
  std::set<std::uint32_t> missing_;
};

class CutWeights : public testing::TestWithParam<ElementType> {
 protected:
  static constexpr int kSteps = 4;
  static constexpr std::size_t kVariables = 10;
  using Weights = std::vector<std::vector<float>>;

  static RecordingRelay::Meddle with(WeightsCutter& cutter) {
    return [&cutter](std::size_t connection, bool to_server, std::string_view bytes) {
      return cutter.pass(connection, to_server, bytes);
    };
  }
  // A worker's weights after each step.
  std::vector<Weights> train(WeightsCutter& cutter) const {
    PsServer server(kVariables, 1, {}, 8, keys(), {}, false, 2, -1, GetParam());
    const RecordingRelay relay(server.port(), with(cutter));
    Worker worker(server, 0);
    worker.synchronizer.setMembership(membershipAt(server, 5, relay.port()));
    worker.synchronizer.onView(server.activeView(1));
    std::vector<Weights> after;
    for (int step = 0; step < kSteps; ++step) {
      takesAStep(worker, 0.1f * static_cast<float>(step + 1));
      Weights weights;
      for (std::size_t v = 0; v < kVariables; ++v) weights.push_back(worker.weights(v));
      after.push_back(std::move(weights));
    }
    EXPECT_EQ(server.shard.state().min_version(), kSteps);
    return after;
  }
  std::vector<Weights> undisturbed() const {
    WeightsCutter none({});
    return train(none);
  }
  // 50 chunks are pulled, and 50 a step come back.
  const std::set<int> some_{3, 49, 60, 61, 99, 130, 170, 171, 199, 249};
};
INSTANTIATE_TEST_SUITE_P(Lanes, CutWeights,
                         testing::Values(ElementType::kFloat16, ElementType::kBFloat16),
                         [](const auto& type) { return std::string(nameOf(type.param)); });

TEST_P(CutWeights, ComeWholeInTheLanesNextLife) {
  WeightsCutter cutter(some_);
  EXPECT_EQ(train(cutter), undisturbed());
  EXPECT_EQ(cutter.cuts(), static_cast<int>(some_.size()));
  EXPECT_EQ(cutter.missing(), 0u);
}

// The case before sees a chunk that counts although its second half has not come.
TEST_P(CutWeights, WouldBeSeenIfTheyCounted) {
  WeightsCutter cutter(some_, Mutation::kCutWeightsCount);
  EXPECT_NE(train(cutter), undisturbed());
  EXPECT_EQ(cutter.cuts(), static_cast<int>(some_.size()));
  EXPECT_GT(cutter.missing(), 0u);
}

// Not even the half that has come: 16 bits are widened when all are there.
TEST_P(CutWeights, LeaveWhatWasThereAsItWas) {
  PsServer server(1, 1, {}, 8, keys(), {}, false, 2, -1, GetParam());
  WeightsCutter cutter({0});
  const RecordingRelay relay(server.port(), with(cutter));
  Caller caller(server, keys().data, kLimit, false, nullptr, GetParam());
  caller.client().setAddress(0, relay.address());
  const Caller::Reply cut = caller.reply(caller.push(0, 1));
  EXPECT_TRUE(absl::IsUnavailable(cut.status)) << cut.status;
  EXPECT_EQ(cut.header.code(), v1::CHUNK_OK) << "the weights had begun to come";
  EXPECT_THAT(cut.values, testing::AllOf(testing::SizeIs(8), Each(-77.0f)));
  Caller::Reply whole;
  ASSERT_TRUE(eventually([&] {
    whole = caller.reply(caller.push(0, 1));
    return whole.status.ok();
  })) << whole.status;
  EXPECT_THAT(whole.values, testing::AllOf(testing::SizeIs(8), Each(-1.0f)));
}

}  // namespace
}  // namespace trainyard::runtime::ps
