// Rows that go are known until a checkpoint has it: to the server, and to the worker that keeps
// replicas of an only server.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/ps_machine.h"
#include "runtime/ps/row_body.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;

class GoneRowsTest : public testing::Test {
 protected:
  // A process with the shard that it holds.
  struct Process {
    std::unique_ptr<Shard> shard;
    std::unique_ptr<PsMachine> machine;
    std::vector<ChunkAnswer> out;
  };

  GoneRowsTest() {
    placement_.num_ps = 1;
    for (Chunk& chunk : placement_.chunks) chunk.ps = 0;
    server_ = processOf(0);
    keeper_ = processOf(kWorkerKeeper);
  }
  Process processOf(int ps) const {
    // What no step has brought anything for is gone with the second one after.
    const rows::RowTableOptions options{
        .name = "user",
        .dim = 1,
        .max_rows = 1000,
        .initial = {},
        .evict = {.after_steps = 2, .below_norm = 0, .every_steps = 1}};
    ShardConfig config;
    config.job_uid = kJob;
    config.self = incarnation(1, 1);
    config.ps = ps;
    Process process;
    process.shard = std::make_unique<Shard>(
        config, placement_, *optimizer_, LearningRate(descent()),
        std::make_unique<RowShard>(
            std::vector<rows::RowTableConfig>{{options, optimizer_.get(), LearningRate(descent())}},
            grid_, ps, ElementType::kFloat32, std::nullopt, /*deltas=*/true));
    process.machine = std::make_unique<PsMachine>(*process.shard);
    return process;
  }
  // One server, one worker.
  v1::View view(v1::Phase phase) {
    v1::View v;
    *v.mutable_coordinator() = incarnation(1, 1);
    v.set_sequence(++sequence_);
    v.set_phase(phase);
    v1::EpochInfo& epoch = *v.mutable_epoch();
    epoch.set_epoch(1);
    epoch.set_replicated(true);
    epoch.set_step_samples(1);
    epoch.set_steps(100);
    epoch.add_members()->mutable_id()->set_role(v1::ROLE_PS);
    epoch.add_members()->mutable_id()->set_role(v1::ROLE_WORKER);
    v.set_stop_at(-1);
    v.set_checkpoint_at(-1);
    v.set_last_checkpoint(0);
    return v;
  }
  void see(const v1::View& v) {
    for (Process* process : {&server_, &keeper_}) process->machine->onView(v, process->out);
  }
  void begin() {
    see(view(v1::PHASE_PREPARING));
    std::vector<std::uint32_t> replicas = {0, 1, 2};
    for (std::size_t part = 0; part < grid_.parts().size(); ++part)
      replicas.push_back(grid_.numberOf(part));
    server_.shard->replicate({}, true);
    keeper_.shard->replicate(replicas, false);
    for (Process* process : {&server_, &keeper_}) {
      const auto prepare = process->machine->takePrepare();
      ASSERT_TRUE(prepare.has_value());
      for (const std::uint32_t chunk : {0U, 1U, 2U}) {
        const auto n = static_cast<std::size_t>(placement_.chunks[chunk].elements);
        process->shard->load(chunk, 0, std::vector<float>(n, 0.0F), {});
      }
      process->shard->clearRows(0);
      process->machine->onPrepared(*prepare, absl::OkStatus());
    }
    see(view(v1::PHASE_ACTIVE));
    v1::MemberReport report;
    server_.machine->fillReport(report);
    ASSERT_EQ(report.prepared_epoch(), 1) << report.DebugString();
  }
  // The ids of a part, ascending.
  std::uint64_t idAt(int number) const {
    const rows::RowOrder order(rows::saltOf("user"));
    std::uint64_t id = 0;
    for (int found = -1; found < number;) {
      if (grid_.parts()[0].has(order.partition(++id))) ++found;
    }
    return id;
  }
  // Each step brings something for a row of its own, and goes to the replica.
  void takeStep(std::int64_t step) {
    rows::RowRequest request;
    request.ids = {{}};
    const std::vector<std::uint64_t> ids = {idAt(static_cast<int>(step))};
    request.gradients = {{rows::RowGradients{ids, {1}, {1.0F}}}};
    v1::ChunkRequestHeader header;
    header.set_job_uid(kJob);
    *header.mutable_server() = incarnation(1, 1);
    header.set_epoch(1);
    header.set_chunk(grid_.numberOf(0));
    header.set_step(step);
    header.set_samples(1);
    const RowBytes body = rowBody(request, ElementType::kFloat32, header);
    server_.shard->onRowRequest(header, body.span(), 1, kStart, server_.out);
    for (ReplicaUpdate& update : server_.shard->takeUpdates()) {
      update.header.set_job_uid(kJob);
      *update.header.mutable_server() = incarnation(1, 1);
      keeper_.shard->onRowRequest(update.header, update.rows.span(), 1, kStart, keeper_.out);
      server_.shard->onReplicated(update.header, server_.out);
    }
  }
  // The steps with which rows went that it still knows of; the newest is given as what it brought.
  std::vector<std::uint32_t> goneOf(const Process& process) const {
    const auto given = process.shard->rows()->give(grid_.numberOf(0), -1);
    EXPECT_TRUE(given.ok()) << given.status();
    return given.ok() ? given->stores.at(0).gone_steps : std::vector<std::uint32_t>();
  }

  Placement placement_ = smallPlacement();
  const std::unique_ptr<Optimizer> optimizer_ = make(descent());
  const RowGrid grid_{3, 1};
  std::uint64_t sequence_ = 0;
  Process server_, keeper_;
};

TEST_F(GoneRowsTest, AreForgottenOnceACheckpointHasIt) {
  ASSERT_NO_FATAL_FAILURE(begin());
  for (std::int64_t step = 0; step < 9; ++step) takeStep(step);
  for (const Process* process : {&server_, &keeper_})
    EXPECT_THAT(goneOf(*process), ElementsAre(2, 3, 4, 5, 6, 7));

  // A whole one is asked for while that of 4 is the newest.
  v1::View v = view(v1::PHASE_ACTIVE);
  v.set_checkpoint_at(20);
  v.set_last_checkpoint(4);
  see(v);
  for (const Process* process : {&server_, &keeper_})
    EXPECT_THAT(goneOf(*process), ElementsAre(4, 5, 6, 7));

  // A delta of that of 6, of which all is wanted that has gone since.
  v = view(v1::PHASE_ACTIVE);
  v.set_checkpoint_at(21);
  v.set_last_checkpoint(7);
  v.set_checkpoint_base("step-6.e1.json");
  see(v);
  for (const Process* process : {&server_, &keeper_})
    EXPECT_THAT(goneOf(*process), ElementsAre(6, 7));

  v = view(v1::PHASE_STOPPING);
  v.set_stop_at(22);
  v.set_last_checkpoint(8);
  see(v);
  for (const Process* process : {&server_, &keeper_}) EXPECT_THAT(goneOf(*process), ElementsAre());
}

}  // namespace
}  // namespace trainyard::runtime::ps
