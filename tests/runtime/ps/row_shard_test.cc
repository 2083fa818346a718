// A shard that also has the job's tables.
#include "runtime/ps/row_shard.h"

#include <atomic>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/ps/row_body.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kId = 7;

class RowShardTest : public testing::Test {
 protected:
  RowShardTest() {
    rows::RowTableOptions options;
    options.name = "user";
    options.dim = 2;
    options.max_rows = 100'000;
    auto rows = std::make_unique<RowShard>(
        std::vector<rows::RowTableConfig>{{options, optimizer_.get(), LearningRate(descent())}},
        grid_, 0, ElementType::kFloat32);
    ShardConfig config;
    config.job_uid = kJob;
    config.self = incarnation(1, 1);
    shard_ = std::make_unique<Shard>(config, placement_, *optimizer_, LearningRate(descent()),
                                     std::move(rows));
    part_ = static_cast<std::size_t>(
        std::ranges::find_if(grid_.parts(),
                             [](const rows::PartitionRange& range) {
                               return range.has(
                                   rows::RowOrder(rows::saltOf("user")).partition(kId));
                             }) -
        grid_.parts().begin());
  }
  void open(std::int64_t step, std::int64_t epoch = 1) {
    shard_->seal(epoch, out_);
    for (const std::uint32_t chunk : {0U, 2U}) {
      const auto n = static_cast<std::size_t>(placement_.chunks[chunk].elements);
      shard_->load(chunk, step, std::vector<float>(n, 0.0F), {});
    }
    shard_->clearRows(step);
    const Status opened = shard_->open(epoch, planFor(step, 2), false, true);
    ASSERT_TRUE(opened.ok()) << opened;
    epoch_ = epoch;
  }
  // Rank brings this gradient for the row in `step`, to all parts, and wants it at the next
  // version. The call of the row's part.
  CallId push(std::int64_t step, int rank, float gradient) {
    CallId call = 0;
    for (std::size_t part = 0; part < grid_.parts().size(); ++part) {
      rows::RowRequest request;
      request.ids = {{}};
      request.gradients.emplace(1);
      if (part == part_) {
        request.ids = {{kId}};
        request.gradients = {{rows::RowGradients{{kId}, {1}, {gradient, 2 * gradient}}}};
      }
      v1::ChunkRequestHeader header = headerOf(grid_.numberOf(part), rank);
      header.set_step(step);
      header.set_samples(1);
      const CallId made = send(header, request);
      if (part == part_) call = made;
    }
    return call;
  }
  CallId read(std::int64_t version) {
    rows::RowRequest request;
    request.ids = {{kId}};
    v1::ChunkRequestHeader header = headerOf(grid_.readNumberOf(part_), 0);
    header.set_pull_only(true);
    header.set_version(version);
    return send(header, request);
  }
  v1::ChunkRequestHeader headerOf(std::uint32_t number, int rank) const {
    v1::ChunkRequestHeader header;
    header.set_job_uid(kJob);
    *header.mutable_server() = incarnation(1, 1);
    header.set_epoch(epoch_);
    header.set_chunk(number);
    header.set_rank(static_cast<std::uint32_t>(rank));
    return header;
  }
  CallId send(v1::ChunkRequestHeader header, const rows::RowRequest& request) {
    const RowBytes body = rowBody(request, ElementType::kFloat32, header);
    shard_->onRowRequest(header, body.span(), ++calls_, now_, out_);
    return calls_;
  }
  ChunkAnswer take(CallId call) {
    for (const ChunkAnswer& answer : out_) {
      if (answer.call == call) return answer;
    }
    return {};
  }
  static std::vector<float> rowsOf(const ChunkAnswer& answer) {
    return answer.payload == nullptr
               ? std::vector<float>()
               : std::vector<float>(answer.payload->begin(), answer.payload->end());
  }

  const Placement placement_ = smallPlacement();
  const std::unique_ptr<Optimizer> optimizer_ = make(descent());
  const RowGrid grid_{placement_.chunks.size(), 1};
  std::unique_ptr<Shard> shard_;
  std::size_t part_ = 0;  // the row's
  std::int64_t epoch_ = 0;
  TimePoint now_ = kStart;
  CallId calls_ = 0;
  std::vector<ChunkAnswer> out_;
};

TEST_F(RowShardTest, AStepOfAllRanksMakesTheNextRows) {
  open(0);
  const CallId first = push(0, 0, 4);
  EXPECT_EQ(take(first).header.code(), v1::CHUNK_UNSPECIFIED) << "waits for rank 1";
  const CallId second = push(0, 1, 8);
  for (const CallId call : {first, second}) {
    EXPECT_EQ(take(call).header.code(), v1::CHUNK_OK);
    EXPECT_EQ(take(call).header.version(), 1);
    EXPECT_THAT(rowsOf(take(call)), ElementsAre(-6, -12));  // (4 + 8) / 2 samples
  }
  EXPECT_THAT(rowsOf(take(read(0))), ElementsAre(0, 0));
  EXPECT_THAT(rowsOf(take(read(1))), ElementsAre(-6, -12));
  EXPECT_EQ(take(read(9)).header.code(), v1::CHUNK_GONE);
}

// What others go by: the chunks have not taken the step yet.
TEST_F(RowShardTest, TheShardIsAtTheLowestVersionOfChunksAndRows) {
  open(5);
  push(5, 0, 1);
  push(5, 1, 1);
  const v1::ShardState state = shard_->state();
  EXPECT_EQ(state.min_version(), 5);
  EXPECT_EQ(state.max_version(), 6);
}

// Also over epochs that begin with other rows.
TEST_F(RowShardTest, WhatIsAskedIsToldByTable) {
  open(0);
  push(0, 0, 4);
  push(0, 1, 8);
  take(read(1));
  for (const std::int64_t rows : {1, 0}) {
    v1::RuntimeReport report;
    shard_->rows()->fillReport(report);
    ASSERT_EQ(report.tables_size(), 1);
    const v1::TableWork& work = report.tables(0);
    EXPECT_EQ(work.table(), "user");
    EXPECT_EQ(work.rows(), rows);
    EXPECT_GT(work.bytes(), 0U);
    EXPECT_EQ(work.created(), 1U);
    EXPECT_EQ(work.refused(), 0U);
    EXPECT_EQ(work.pushed(), 2U);
    EXPECT_EQ(work.pulled(), 3U);
    open(0, 3 - rows);  // of another epoch each
  }
  for (int i = 0; i < 2000; ++i) take(read(0));  // one in 64 is looked at
  v1::RuntimeReport report;
  shard_->rows()->fillReport(report);
  EXPECT_EQ(report.tables(0).pulled(), 2003U);
  EXPECT_EQ(report.tables(0).hot(), 1.0) << "there is one id alone";
}

TEST_F(RowShardTest, AnotherEpochsRequestsAndAnotherJobsAreRefused) {
  open(0);
  const CallId waits = push(0, 0, 4);
  shard_->seal(2, out_);
  EXPECT_EQ(take(waits).header.code(), v1::CHUNK_WRONG_EPOCH);
  epoch_ = 1;
  EXPECT_EQ(take(push(0, 0, 4)).header.code(), v1::CHUNK_WRONG_EPOCH);
  v1::ChunkRequestHeader header = headerOf(grid_.numberOf(0), 0);
  header.set_job_uid("another");
  EXPECT_EQ(take(send(header, {})).header.code(), v1::CHUNK_WRONG_SERVER);
}

TEST_F(RowShardTest, WhoWaitsTooLongIsToldForWhom) {
  open(0);
  const CallId call = push(0, 1, 4);
  now_ += std::chrono::seconds(61);
  shard_->onTick(now_, out_);
  EXPECT_EQ(take(call).header.code(), v1::CHUNK_NOT_READY);
  EXPECT_THAT(take(call).header.message(), HasSubstr("workers of rank 0"));
}

TEST_F(RowShardTest, AGradientThatIsNotFiniteEndsTheJobAndNamesTableAndId) {
  open(0);
  push(0, 0, std::numeric_limits<float>::quiet_NaN());
  push(0, 1, 1);
  const auto abort = shard_->abort();
  ASSERT_TRUE(abort);
  EXPECT_EQ(abort->step(), 0);
  EXPECT_THAT(abort->reason(), HasSubstr("table user"));
  EXPECT_THAT(abort->reason(), HasSubstr("7"));
}

TEST_F(RowShardTest, ASnapshotHasTheRowsOfItsVersion) {
  open(0);
  push(0, 0, 4);
  push(0, 1, 8);
  ASSERT_TRUE(shard_->arm(1));
  push(1, 0, 100);
  push(1, 1, 100);  // the rows leave the version
  EXPECT_FALSE(shard_->takeSnapshot()) << "the chunks have not reached it";
  for (const std::uint32_t chunk : {0U, 2U}) {
    for (const int rank : {0, 1}) {
      v1::ChunkRequestHeader header = headerOf(chunk, rank);
      header.set_worker(static_cast<std::uint32_t>(rank));
      header.set_samples(1);
      const auto n = static_cast<std::size_t>(placement_.chunks[chunk].elements);
      shard_->onRequest(header, std::make_unique<LoggedPayload>(std::vector<float>(n, 1.0F)),
                        ++calls_, now_, out_);
    }
  }
  const auto snapshot = shard_->takeSnapshot();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->version, 1);
  ASSERT_EQ(snapshot->tables.size(), grid_.parts().size());
  const TableRows rows = snapshot->tables[part_].read();
  EXPECT_EQ(rows.first, grid_.parts()[part_].first);
  EXPECT_THAT(rows.ids, ElementsAre(kId));
  EXPECT_THAT(rows.counts, ElementsAre(2));
  EXPECT_THAT(rows.weights, ElementsAre(-6, -12));

  // And back.
  shard_->seal(2, out_);
  for (const std::uint32_t chunk : {0U, 2U}) {
    const auto n = static_cast<std::size_t>(placement_.chunks[chunk].elements);
    shard_->load(chunk, 1, std::vector<float>(n, 0.0F), {});
  }
  shard_->clearRows(1);
  shard_->loadRows(rows);
  ASSERT_TRUE(shard_->open(2, planFor(1, 2), false, true).ok());
  epoch_ = 2;
  EXPECT_THAT(rowsOf(take(read(1))), ElementsAre(-6, -12));
  v1::ShardTable table;
  shard_->fillTable(table);
  ASSERT_EQ(table.tables_size(), 1);
  EXPECT_EQ(table.tables(0).table(), "user");
  EXPECT_EQ(table.tables(0).rows(), 1);
}

// Reports are made at any time, by threads that know nothing of epochs.
TEST_F(RowShardTest, IsReportedWhilePartsComeAndGo) {
  std::atomic<bool> over = false;
  std::thread reporter([&] {
    while (!over) {
      v1::RuntimeReport report;
      shard_->fillReport(report);
      EXPECT_EQ(report.tables_size(), 1);
      EXPECT_FALSE(shard_->abort());
      shard_->state();
    }
  });
  std::vector<int> map;
  for (const Chunk& chunk : placement_.chunks) map.push_back(chunk.ps);
  for (int epoch = 1; epoch <= 200; ++epoch) {
    shard_->seal(epoch, out_);
    map.resize(placement_.chunks.size());
    for (std::size_t part = 0; part < grid_.parts().size(); ++part)
      map.push_back(static_cast<int>(part) < epoch % 17 ? 0 : 1);
    shard_->assign(map);
    shard_->replicate({}, false);
    for (const std::uint32_t chunk : {0U, 2U}) {
      const auto n = static_cast<std::size_t>(placement_.chunks[chunk].elements);
      shard_->load(chunk, 0, std::vector<float>(n, 0.0F), {});
    }
    shard_->clearRows(0);
    EXPECT_TRUE(shard_->open(epoch, planFor(0, 2), false, true).ok());
  }
  over = true;
  reporter.join();
}

}  // namespace
}  // namespace trainyard::runtime::ps
