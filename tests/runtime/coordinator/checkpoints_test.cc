#include "runtime/coordinator/checkpoints.h"

#include "tests/runtime/coordinator/parts_bench.h"

namespace trainyard::runtime {
namespace {

struct CheckpointsBench : PartsBench {
  explicit CheckpointsBench(int ps = 1, int workers = 2,
                            const std::function<void(CoordinatorConfig&)>& change = {})
      : PartsBench(ps, workers, change),
        progress(config, 0),
        checkpoints(config, committedAt(0), now) {}

  static Manifest committedAt(std::int64_t step) {
    Manifest manifest;
    manifest.step = step;
    return manifest;
  }
  // Ten steps a second, `step` now.
  void run(std::int64_t step) {
    progress.begin(step - 10, now - std::chrono::seconds(1));
    progress.begin(step, now);
    progress.reach(step);
  }
  Checkpoints::Failure follow(Duration by = Duration(0)) {
    now += by;
    say();
    return checkpoints.followSteps(membership, epochs, steps, progress, false, now, out);
  }
  Checkpoints::Failure commit(std::int64_t version) {
    say();
    return checkpoints.tryCommit(version, membership, epochs, steps, nullptr, now, out);
  }
  // The version that servers are asked for; -1: none.
  std::int64_t asked() const {
    v1::View view;
    checkpoints.tell(view);
    return view.checkpoint_at();
  }
  void write(std::uint32_t server, std::int64_t version, const std::string& error = "") {
    v1::ShardFile* file = ps(server).add_written();
    file->set_epoch(epochs.number());
    file->set_version(version);
    file->set_name("a file");
    file->set_error(error);
  }
  std::vector<Manifest> manifests() {
    std::vector<Manifest> found;
    for (CommitAction& action : said<CommitAction>()) found.push_back(action.manifest);
    return found;
  }

  Progress progress;
  Checkpoints checkpoints;
};

void longJob(CoordinatorConfig& config) {
  config.steps = 100'000;
}

TEST(Checkpoints, AreAskedForAtMostTenSecondsAhead) {
  CheckpointsBench b(1, 1, longJob);
  b.begin();
  b.now += std::chrono::seconds(60);
  std::vector<std::int64_t> leads;
  for (int missed = 0; missed < 8; ++missed) {
    b.run(1000);
    EXPECT_EQ(b.follow(), std::nullopt);
    leads.push_back(b.asked() - 1000);
    b.shard().set_missed_checkpoint(b.asked());
  }
  EXPECT_EQ(leads, (std::vector<std::int64_t>{3, 6, 12, 24, 48, 96, 100, 100}));
}

// A word about a former one says nothing about this one.
TEST(Checkpoints, OneThatWasMissedBeforeIsNotMissedAgain) {
  CheckpointsBench b(1, 1, longJob);
  b.begin();
  b.now += std::chrono::seconds(60);
  b.run(1000);
  b.shard().set_missed_checkpoint(900);
  EXPECT_EQ(b.follow(), std::nullopt);
  const std::int64_t asked = b.asked();
  EXPECT_EQ(asked, 1003);
  b.run(1002);
  EXPECT_EQ(b.follow(), std::nullopt);
  EXPECT_EQ(b.asked(), asked);
}

TEST(Checkpoints, WhatCannotBeWrittenIsTriedAgainUnderTheNextEpoch) {
  CheckpointsBench b(1, 1, longJob);
  b.begin(50);
  b.write(0, 50, "the disk is full");
  EXPECT_EQ(b.follow(), std::nullopt);
  EXPECT_EQ(b.said<LogAction>().size(), 1u);
  EXPECT_EQ(b.follow(), std::nullopt);
  EXPECT_TRUE(b.out.take().empty()) << "not again in this epoch";
  b.checkpoints.endEpoch();
  b.epochs.end("a test", true, b.now, b.out);
  b.ps().clear_written();
  b.begin(50);
  b.write(0, 50);
  EXPECT_EQ(b.follow(), std::nullopt);
  ASSERT_EQ(b.manifests().size(), 1u);
  EXPECT_TRUE(b.checkpoints.committing());
}

TEST(Checkpoints, AfterOneThatSucceedsAFailureIsSaidAgain) {
  CheckpointsBench b(1, 1, longJob);
  b.begin();
  const auto fail = [&](std::int64_t version) {
    b.write(0, version, "the disk is full");
    EXPECT_EQ(b.commit(version), std::nullopt);
    return b.said<LogAction>().size();
  };
  EXPECT_EQ(fail(10), 1u);
  EXPECT_EQ(fail(20), 0u);
  b.write(0, 30);
  EXPECT_EQ(b.commit(30), std::nullopt);
  const std::vector<Manifest> manifests = b.manifests();
  ASSERT_EQ(manifests.size(), 1u);
  const auto committed = b.checkpoints.onCommitted(manifests.front(), absl::OkStatus(), b.epochs,
                                                   b.steps, b.now, b.out);
  EXPECT_EQ(committed, std::nullopt);
  EXPECT_EQ(b.said<LogAction>().size(), 1u);  // that it is there
  EXPECT_EQ(b.checkpoints.newestStep(), 30);
  EXPECT_EQ(fail(40), 1u);
}

// A stop names a version that one server had heard of before, as a delta.
TEST(Checkpoints, EachFileIsTheDeltaThatItsServerSays) {
  CheckpointsBench b(2, 1, longJob);
  b.begin();
  b.write(0, 10);
  b.ps(0).mutable_written(0)->set_base("step-0.e1.json");
  EXPECT_EQ(b.commit(10), std::nullopt);
  EXPECT_TRUE(b.manifests().empty()) << "the other has not written";
  b.write(1, 10);
  EXPECT_EQ(b.commit(10), std::nullopt);
  const std::vector<Manifest> manifests = b.manifests();
  ASSERT_EQ(manifests.size(), 1u);
  EXPECT_EQ(manifests[0].base, "step-0.e1.json");
  ASSERT_EQ(manifests[0].files.size(), 2u);
  EXPECT_TRUE(manifests[0].files[0].delta);
  EXPECT_FALSE(manifests[0].files[1].delta);
}

// Its files come before those of the one that was asked for. Were that committed after it, the last
// one would be wanted anew, and is there.
TEST(Checkpoints, AfterTheLastStepsNoEarlierOneComes) {
  CheckpointsBench b(2, 1, [](CoordinatorConfig& config) { config.steps = 1010; });
  b.begin();
  b.now += std::chrono::seconds(60);
  b.run(1000);
  EXPECT_EQ(b.follow(), std::nullopt);
  const std::int64_t asked = b.asked();
  ASSERT_LT(asked, 1010);
  b.write(0, asked);
  b.write(0, 1010);
  b.write(1, 1010);
  EXPECT_EQ(b.follow(), std::nullopt);
  const std::vector<Manifest> manifests = b.manifests();
  ASSERT_EQ(manifests.size(), 1u);
  EXPECT_EQ(manifests[0].step, 1010);
  EXPECT_EQ(
      b.checkpoints.onCommitted(manifests[0], absl::OkStatus(), b.epochs, b.steps, b.now, b.out),
      std::nullopt);
  b.write(1, asked);
  EXPECT_EQ(b.follow(), std::nullopt);
  EXPECT_TRUE(b.manifests().empty());
  EXPECT_EQ(b.checkpoints.newestStep(), 1010);
  EXPECT_EQ(b.asked(), -1);
}

TEST(Checkpoints, AChangeWaitsFiveSecondsForOneAndLongerForItsManifest) {
  CheckpointsBench b(1, 1, longJob);
  b.begin();
  b.now += std::chrono::seconds(60);
  b.run(1000);
  EXPECT_EQ(b.follow(), std::nullopt);
  ASSERT_EQ(b.asked(), 1003);
  EXPECT_TRUE(b.checkpoints.busy(b.now + std::chrono::milliseconds(4999)));
  EXPECT_FALSE(b.checkpoints.busy(b.now + std::chrono::seconds(5)));
  b.write(0, 1003);
  EXPECT_EQ(b.follow(), std::nullopt);
  EXPECT_TRUE(b.checkpoints.busy(b.now + std::chrono::hours(1)));
}

}  // namespace
}  // namespace trainyard::runtime
