// Two servers' parts of the tables, and what workers and servers ask of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/ps/row_body.h"
#include "runtime/ps/row_shard.h"
#include "tests/runtime/ps/helpers.h"
#include "tests/runtime/rows/replica_tables.h"

namespace trainyard::runtime::ps {

inline constexpr std::size_t kPart = 3;     // of ps-0
inline constexpr std::size_t kOthers = 12;  // of ps-1

class TwoRowShards : public testing::Test {
 protected:
  TwoRowShards() { start(std::nullopt); }
  // Each keeps replicas of all of the other's parts, from the first epoch on.
  void start(std::optional<int> aggregate) {
    for (const int ps : {0, 1}) {
      shards_[ps] =
          std::make_unique<RowShard>(configs_, grid_, ps, ElementType::kFloat32, aggregate);
      replicateOthers(ps);
      shards_[ps]->clear(0);
    }
    epoch_ = 0;
    open(0);
  }
  void replicateOthers(int ps) {
    std::vector<std::uint32_t> numbers;
    for (std::size_t part = 0; part < ps_of_part_.size(); ++part) {
      if (ps_of_part_[part] != ps) numbers.push_back(grid_.numberOf(part));
    }
    shards_[ps]->replicate(numbers, true);
  }
  void open(std::int64_t step) {
    ++epoch_;
    for (const auto& shard : shards_) {
      if (shard == nullptr) continue;
      const Status opened = shard->open(epoch_, planFor(step, 2));
      ASSERT_TRUE(opened.ok()) << opened;
    }
  }
  void seal() {
    for (const auto& shard : shards_) shard->seal(out_);
  }

  // A row of the table in that part.
  std::uint64_t idIn(std::size_t part, std::size_t table = 0) const {
    const rows::RowOrder order(rows::saltOf(configs_[table].options.name));
    std::uint64_t id = 1;
    while (!grid_.parts()[part].has(order.partition(id))) ++id;
    return id;
  }
  // A rank brings gradients for a row of each table in the part, and wants the first one's.
  CallId push(std::size_t part, std::int64_t step, int rank, float gradient) {
    rows::RowRequest request;
    request.ids = {{idIn(part)}, {}};
    request.gradients = {{rows::RowGradients{{idIn(part)}, {1}, {gradient, 2 * gradient}},
                          rows::RowGradients{{idIn(part, 1)}, {1}, {gradient}}}};
    v1::ChunkRequestHeader header;
    header.set_chunk(grid_.numberOf(part));
    header.set_rank(static_cast<std::uint32_t>(rank));
    header.set_step(step);
    header.set_samples(1);
    header.set_worker(static_cast<std::uint32_t>(rank));
    *header.mutable_worker_incarnation() = incarnation(1, 1);
    header.set_push(step + 1);
    header.set_ticket(2 * step + rank);
    header.set_first(2 * step + rank);
    return send(part, header, request);
  }
  CallId read(std::size_t part, std::int64_t version) {
    rows::RowRequest request;
    request.ids = {{idIn(part)}, {}};
    v1::ChunkRequestHeader header;
    header.set_chunk(grid_.readNumberOf(part));
    header.set_pull_only(true);
    header.set_version(version);
    return send(part, header, request);
  }
  CallId send(std::size_t part, v1::ChunkRequestHeader header, const rows::RowRequest& request) {
    header.set_epoch(epoch_);
    const RowBytes body = rowBody(request, ElementType::kFloat32, header);
    shards_[ps_of_part_[part]]->onRequest(header, body.span(), ++calls_, now_, out_);
    return calls_;
  }
  ChunkAnswer take(CallId call) const {
    for (const ChunkAnswer& answer : out_) {
      if (answer.call == call) return answer;
    }
    return {};
  }
  v1::ChunkCode code(CallId call) const { return take(call).header.code(); }
  std::vector<float> rowOf(CallId call) const {
    const ChunkAnswer answer = take(call);
    if (answer.payload == nullptr) return {};
    return {answer.payload->begin(), answer.payload->end()};
  }

  // To the replica at ps-`ps`; its answer.
  v1::ChunkReplyHeader replicate(int ps, const v1::ChunkRequestHeader& header,
                                 std::span<const std::byte> body) {
    std::vector<ChunkAnswer> answers;
    shards_[ps]->takeReplica(header, body, 77, answers);
    EXPECT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers.at(0).call, 77U);
    EXPECT_EQ(answers.at(0).payload, nullptr);
    return answers.at(0).header;
  }
  // All that is to be sent arrives and is confirmed, and what that sets free. How much.
  int deliver() {
    int count = 0;
    for (int idle = 0, ps = 0; idle < 2; ps = 1 - ps) {
      const std::vector<RowReplicaUpdate> updates = shards_[ps]->takeUpdates();
      idle = updates.empty() ? idle + 1 : 0;
      for (const RowReplicaUpdate& update : updates) {
        EXPECT_EQ(replicate(1 - ps, update.header, update.body.span()).code(), v1::CHUNK_OK);
        shards_[ps]->onReplicated(update.header, out_);
        ++count;
      }
    }
    return count;
  }
  void takeStep(std::int64_t step) {
    for (const int rank : {0, 1}) {
      for (std::size_t part = 0; part < grid_.parts().size(); ++part)
        push(part, step, rank, static_cast<float>(part + 1));
    }
    deliver();
  }
  // As a server does that has fetched it.
  Status takeOver(int ps, std::uint32_t number, rows::GivenPart given) {
    TY_ASSIGN_OR_RETURN(RowShard::Unpacked part, shards_[ps]->unpack(number, std::move(given)));
    return shards_[ps]->takeOver(number, std::move(part));
  }
  std::string contents(int ps, std::size_t part) const {
    const auto given = shards_[ps]->give(grid_.numberOf(part), -1);
    return given.ok() ? rows::bitsOf(*given) : given.status().ToString();
  }
  std::int64_t point(int ps, std::size_t part) const {
    return shards_[ps]->point(grid_.numberOf(part));
  }
  std::vector<std::uint32_t> replicasOf(int ps, std::int64_t version) const {
    v1::ShardState state;
    shards_[ps]->fillReplicas(state);
    std::vector<std::uint32_t> numbers;
    for (const v1::ChunkReplica& each : state.replicas()) numbers.push_back(each.chunk());
    for (const v1::ChunkReplica& each : state.replicas()) EXPECT_EQ(each.version(), version);
    return numbers;
  }

  const std::unique_ptr<Optimizer> optimizer_ = make(descent());
  const LearningRate rate_{descent()};
  const std::vector<rows::RowTableConfig> configs_ = {
      {{.name = "user", .dim = 2, .max_rows = 1000, .initial = {}}, optimizer_.get(), rate_},
      {{.name = "ad", .dim = 1, .max_rows = 1000, .initial = {}, .admit_after = 3},
       optimizer_.get(),
       rate_}};
  const RowGrid grid_{3, 2};
  std::vector<int> ps_of_part_ = grid_.psOfPart();
  std::unique_ptr<RowShard> shards_[2];
  std::int64_t epoch_ = 0;
  TimePoint now_ = kStart;
  CallId calls_ = 100;
  std::vector<ChunkAnswer> out_;
};

}  // namespace trainyard::runtime::ps
