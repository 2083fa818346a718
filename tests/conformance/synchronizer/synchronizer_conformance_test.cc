// The suite over the fake, a parameter server and a ring of one.
#include "tests/conformance/synchronizer/synchronizer_conformance.h"

#include "fmt/format.h"
#include "runtime/coordinator/epoch_plan.h"
#include "runtime/ps/ps_synchronizer.h"
#include "runtime/ring/ring_synchronizer.h"
#include "tests/runtime/ps/rpc_bench.h"
#include "tests/runtime/train/fake_synchronizer.h"

namespace trainyard::runtime::testing {
namespace {

using Arrays = std::vector<std::vector<float>>;

// A worker's weights, which are not zero before it has been given them.
Arrays unknownWeights() {
  return Arrays(kVariables, std::vector<float>(kElements, -77.0F));
}

std::vector<std::span<float>> spansOf(Arrays& arrays) {
  return {arrays.begin(), arrays.end()};
}

class FakeHarness final : public SynchronizerHarness {
 public:
  Synchronizer& synchronizer() override { return fake_; }
  StepCommit* commit() override { return &fake_; }
  std::span<float> weights(int variable) override {
    return weights_[static_cast<std::size_t>(variable)];
  }
  void beginEpoch(std::int64_t epoch, std::int64_t first_step) override {
    fake_.beginEpoch(epoch, first_step);
  }
  void end(Turn::Kind kind, std::int64_t) override { fake_.end(kind); }
  void fail(const std::string& reason) override { fake_.fail(reason); }
  std::string aborted() const override { return fake_.aborted; }
  std::optional<BatchScore> scored() const override {
    return fake_.scores.empty() ? std::nullopt : std::optional(fake_.scores.back());
  }

 private:
  Arrays weights_ = Arrays(kVariables, std::vector<float>(kElements, 0.0F));
  FakeSynchronizer fake_{{.samples = kSamples, .evaluate_every = kEvaluateEvery},
                         spansOf(weights_)};
};

// One that hears the coordinator's views.
class MemberHarness : public SynchronizerHarness {
 public:
  MemberHarness() {
    *view_.mutable_coordinator() = ps::incarnation(1, 1);
    view_.set_stop_at(-1);
    view_.set_checkpoint_at(-1);
    v1::EpochInfo& epoch = *view_.mutable_epoch();
    epoch.set_step_samples(kSamples);
    epoch.set_steps(kSteps);
    epoch.set_lineage(kFirstEpoch);
    v1::EpochMember* worker = epoch.add_members();
    worker->mutable_id()->set_role(v1::ROLE_WORKER);
    *worker->mutable_incarnation() = ps::incarnation(1, 1);
  }
  Synchronizer& synchronizer() override { return member(); }
  void beginEpoch(std::int64_t epoch, std::int64_t first_step) override {
    v1::EpochInfo& info = *view_.mutable_epoch();
    info.set_epoch(epoch);
    info.set_first_step(first_step);
    info.set_first_position(first_step * kSamples);
    info.set_fresh(epoch == kFirstEpoch);
    show(v1::PHASE_SEALING);
    show(v1::PHASE_PREPARING);
    prepare(info);
    show(v1::PHASE_ACTIVE);
  }
  void end(Turn::Kind kind, std::int64_t step) override {
    view_.set_left(kind == Turn::Kind::kLeft);
    view_.set_progress(step);
    show(kind == Turn::Kind::kDone      ? v1::PHASE_DONE
         : kind == Turn::Kind::kStopped ? v1::PHASE_STOPPED
                                        : v1::PHASE_ACTIVE);
  }
  void fail(const std::string& reason) override {
    view_.set_failure(reason);
    show(v1::PHASE_FAILED);
  }
  std::string aborted() const override {
    const v1::MemberReport said = report();
    if (!said.has_abort()) return "";
    return fmt::format("{}|{}|{}", said.abort().step(), said.abort().variable(),
                       said.abort().reason());
  }
  std::optional<BatchScore> scored() const override {
    const v1::MemberReport said = report();
    const auto& parts = said.worker().evaluations();
    if (parts.empty()) return std::nullopt;
    const v1::EvaluationPart& newest = parts[parts.size() - 1];
    return BatchScore{newest.hits(), newest.samples(), newest.loss_sum()};
  }

 protected:
  virtual MemberSynchronizer& member() const = 0;
  // What others than the worker do for an epoch before it is active.
  virtual void prepare(const v1::EpochInfo&) {}
  v1::MemberReport report() const {
    v1::MemberReport report;
    member().fillReport(report);
    return report;
  }
  v1::EpochInfo& epoch() { return *view_.mutable_epoch(); }

 private:
  void show(v1::Phase phase) {
    view_.set_sequence(view_.sequence() + 1);
    view_.set_phase(phase);
    member().onView(view_);
  }
  v1::View view_;
};

class ServerHarness final : public MemberHarness {
 public:
  ServerHarness() : server_(kVariables, 1), weights_(unknownWeights()) {
    v1::EpochMember* ps = epoch().add_members();
    *ps->mutable_id() = ps::PsServer::id();
    *ps->mutable_incarnation() = ps::incarnation(1, 1);
    ps::PsSynchronizerOptions options;
    options.worker.job_uid = ps::kJob;
    options.worker.self = ps::incarnation(1, 1);
    options.worker.evaluate_every = kEvaluateEvery;
    options.worker.ps_of_chunk.assign(server_.placement.chunks.size(), 0);
    options.access = {ps::secretsOf(ps::keys()), ps::workerEnd()};
    options.patience = std::chrono::seconds(60);
    synchronizer_ = std::make_unique<ps::PsSynchronizer>(options, server_.placement,
                                                         spansOf(weights_), systemClock(), [] {});
    synchronizer_->setMembership(server_.membership());
  }
  std::span<float> weights(int variable) override {
    return weights_[static_cast<std::size_t>(variable)];
  }

 protected:
  MemberSynchronizer& member() const override { return *synchronizer_; }
  void prepare(const v1::EpochInfo& epoch) override {
    std::vector<ps::ChunkAnswer> answers;
    server_.shard.seal(epoch.epoch(), answers);
    server_.service.deliver(std::move(answers));
    const Status opened = server_.shard.open(epoch.epoch(), planOf(epoch), false, true);
    ASSERT_TRUE(opened.ok()) << opened;
  }

 private:
  ps::PsServer server_;
  Arrays weights_;
  std::unique_ptr<ps::PsSynchronizer> synchronizer_;
};

class RingHarness final : public MemberHarness {
 public:
  RingHarness() : optimizer_(ps::make(ps::descent())), weights_(unknownWeights()) {
    std::vector<Variable> variables;
    for (int v = 0; v < kVariables; ++v)
      variables.push_back(ps::floats(fmt::format("v{}", v), kElements));
    v1::PlacementSpec all;
    all.set_strategy("Balanced");
    placement_ = *place(all, variables, 1);
    ring::RingSynchronizerOptions options;
    options.worker.evaluate_every = kEvaluateEvery;
    options.worker.tells_standing = true;
    options.exchange.token = "token";
    options.patience = std::chrono::seconds(60);
    options.load = [this](const v1::EpochInfo&, const LoadChunk& load) {
      for (const Chunk& chunk : placement_.chunks)
        load(chunk.id, 0, std::vector<float>(static_cast<std::size_t>(chunk.elements)), {});
      return absl::OkStatus();
    };
    options.write = [](const Snapshot&) { return v1::ShardFile(); };
    synchronizer_ = std::make_unique<ring::RingSynchronizer>(
        options, placement_, spansOf(weights_), *optimizer_, LearningRate(ps::descent()),
        systemClock(), [] {});
    const Status opened = synchronizer_->open();
    EXPECT_TRUE(opened.ok()) << opened;
    epoch().mutable_members(0)->set_ring_host("127.0.0.1");
    epoch().mutable_members(0)->set_ring_port(report().ring_port());
  }
  StepCommit* commit() override { return synchronizer_.get(); }
  std::span<float> weights(int variable) override {
    return weights_[static_cast<std::size_t>(variable)];
  }

 protected:
  MemberSynchronizer& member() const override { return *synchronizer_; }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  Placement placement_;
  Arrays weights_;
  std::unique_ptr<ring::RingSynchronizer> synchronizer_;
};

const SynchronizerParam kFake{"fake", [] { return std::make_unique<FakeHarness>(); }};
const SynchronizerParam kServers{"servers", [] { return std::make_unique<ServerHarness>(); }};
const SynchronizerParam kRing{"ring", [] { return std::make_unique<RingHarness>(); }};

INSTANTIATE_TEST_SUITE_P(All, SynchronizerConformance, ::testing::Values(kFake, kServers, kRing),
                         synchronizerName);
INSTANTIATE_TEST_SUITE_P(Workers, StepCommitConformance, ::testing::Values(kFake, kRing),
                         synchronizerName);

}  // namespace
}  // namespace trainyard::runtime::testing
