// Two servers' parts of the tables: replicas of each other's, and parts that change their server.
#include "tests/runtime/ps/two_row_shards.h"
#include "tests/runtime/rows/whole_table.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RowShardReplicas : public TwoRowShards {};

TEST_F(RowShardReplicas, NobodyIsAnsweredBeforeTheReplicaHasTheStep) {
  std::vector<std::int64_t> looked;
  shards_[0]->setLook([&](std::size_t at, const rows::RowPart& part) {
    EXPECT_EQ(at, kPart);
    looked.push_back(part.told());
  });
  const CallId first = push(kPart, 0, 0, 4);
  const CallId second = push(kPart, 0, 1, 8);
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_EQ(shards_[0]->highestVersion(), 0);
  const std::vector<RowReplicaUpdate> updates = shards_[0]->takeUpdates();
  ASSERT_EQ(updates.size(), 1U);
  const v1::ChunkRequestHeader& header = updates[0].header;
  EXPECT_TRUE(header.replica());
  EXPECT_EQ(header.chunk(), grid_.numberOf(kPart));
  EXPECT_EQ(header.before(), 0);
  EXPECT_EQ(header.samples(), 2U);
  EXPECT_THAT(shards_[0]->takeUpdates(), IsEmpty()) << "each is sent once";
  EXPECT_THAT(rowOf(read(kPart, rows::kNewestRows)), ElementsAre(0, 0));

  for (int twice = 0; twice < 2; ++twice) {
    const v1::ChunkReplyHeader reply = replicate(1, header, updates[0].body.span());
    EXPECT_EQ(reply.code(), v1::CHUNK_OK);
    EXPECT_EQ(reply.version(), 1);
  }
  EXPECT_EQ(code(first), v1::CHUNK_UNSPECIFIED);
  EXPECT_THAT(looked, testing::Each(0));
  shards_[0]->onReplicated(header, out_);
  EXPECT_EQ(take(first).header.version(), 1);
  for (const CallId call : {first, second})
    EXPECT_THAT(rowOf(call), ElementsAre(-6, -12));  // (4 + 8) / 2 samples
  EXPECT_EQ(looked.back(), 1) << "a snapshot may want it now";
  EXPECT_EQ(shards_[0]->highestVersion(), 1);
  EXPECT_EQ(shards_[0]->lowestVersion(), 0) << "the other parts";
  EXPECT_EQ(contents(0, kPart), contents(1, kPart));
  out_.clear();
  shards_[0]->onReplicated(header, out_);
  shards_[1]->onReplicated(header, out_);  // not its own
  EXPECT_THAT(out_, IsEmpty());
}

TEST_F(RowShardReplicas, WhoWaitsForAReplicaIsToldSoAndMayGo) {
  const CallId first = push(kPart, 0, 0, 4);
  const CallId second = push(kPart, 0, 1, 8);
  shards_[0]->onCancelled(first);
  shards_[0]->giveUp(now_ - std::chrono::seconds(1), out_);
  EXPECT_THAT(out_, IsEmpty()) << "not long";
  shards_[0]->giveUp(now_, out_);
  ASSERT_EQ(out_.size(), 1U);
  EXPECT_EQ(code(second), v1::CHUNK_NOT_READY);
  EXPECT_EQ(take(second).header.message(), "step 0 waits for its replica");
  const CallId again = push(kPart, 0, 1, 8);
  EXPECT_EQ(deliver(), 1);
  EXPECT_THAT(rowOf(again), ElementsAre(-6, -12));
  EXPECT_EQ(code(first), v1::CHUNK_UNSPECIFIED);
}

TEST_F(RowShardReplicas, WhatIsUnderWayWhenAnEpochEndsIsGivenBeforeTheNext) {
  takeStep(0);
  const CallId call = push(kPart, 1, 0, 4);
  push(kPart, 1, 1, 8);
  seal();
  EXPECT_EQ(code(call), v1::CHUNK_WRONG_EPOCH);
  EXPECT_THAT(shards_[0]->takeUpdates(), IsEmpty());
  EXPECT_EQ(point(0, kPart), 2);
  ASSERT_EQ(point(1, kPart), 1);
  auto given = shards_[0]->give(grid_.numberOf(kPart), 1);
  ASSERT_TRUE(given.ok());
  EXPECT_TRUE(given->stores.empty()) << "it has the rows";
  ASSERT_TRUE(takeOver(1, grid_.numberOf(kPart), *std::move(given)).ok());
  EXPECT_EQ(contents(0, kPart), contents(1, kPart));
  open(1);  // where the other parts are
  EXPECT_THAT(rowOf(push(kPart, 1, 0, 99)), ElementsAre(-10, -20)) << "has the step already";
  for (const int rank : {0, 1}) push(kPart + 1, 1, rank, 0);
  EXPECT_EQ(deliver(), 1) << "and the others take it";
}

TEST_F(RowShardReplicas, AReplicaIsAServersOwnWhenTheOtherIsGone) {
  takeStep(0);
  takeStep(1);
  seal();
  std::vector<std::string> before;
  for (std::size_t part = 0; part < 16; ++part) before.push_back(contents(1, part));
  const std::vector<int> all_here(16, 1);
  shards_[1]->assign(all_here);
  shards_[1]->replicate({}, false);
  shards_[0] = nullptr;
  ps_of_part_ = all_here;
  ASSERT_NO_FATAL_FAILURE(open(2));
  EXPECT_EQ(shards_[1]->lowestVersion(), 2);
  EXPECT_THAT(shards_[1]->ranges(), ElementsAre(rows::PartitionRange{}));
  EXPECT_THAT(replicasOf(1, 2), IsEmpty());
  for (std::size_t part = 0; part < 16; ++part) EXPECT_EQ(contents(1, part), before[part]) << part;
  EXPECT_THAT(rowOf(read(kPart, 1)), ElementsAre(-4, -8));
  EXPECT_THAT(rowOf(read(kPart, 2)), ElementsAre(-8, -16));
  push(kPart, 2, 0, 4);
  const CallId last = push(kPart, 2, 1, 4);
  EXPECT_THAT(rowOf(last), ElementsAre(-12, -24)) << "there is no replica to wait for";
}

TEST_F(RowShardReplicas, APartThatMovesStaysWhereItWasUntilTheNextEpochHasBegun) {
  seal();
  for (const auto& shard : shards_) {
    shard->replicate({}, false);
    shard->release();
  }
  open(0);
  takeStep(0);
  seal();
  ps_of_part_[kPart] = 1;
  const std::uint32_t number = grid_.numberOf(kPart);
  for (const auto& shard : shards_) shard->assign(ps_of_part_);
  EXPECT_EQ(shards_[1]->parts(), 9U);
  EXPECT_EQ(point(0, kPart), 1);
  EXPECT_EQ(point(1, kPart), -1);
  EXPECT_EQ(shards_[1]->lowestVersion(), 1) << "of what is here";
  EXPECT_TRUE(absl::IsNotFound(shards_[1]->give(number, -1).status()));
  const Status lacks = shards_[1]->open(2, planFor(1, 2));
  EXPECT_TRUE(absl::IsFailedPrecondition(lacks));
  EXPECT_THAT(std::string(lacks.message()), HasSubstr("part 3 of the tables is not here"));

  for (int twice = 0; twice < 2; ++twice) {  // the epoch before the next came to nothing
    auto given = shards_[0]->give(number, point(1, kPart));
    ASSERT_TRUE(given.ok()) << given.status();
    EXPECT_EQ(given->stores.empty(), twice == 1);
    ASSERT_TRUE(takeOver(1, number, *std::move(given)).ok());
    EXPECT_EQ(contents(1, kPart), contents(0, kPart));
  }
  open(1);
  EXPECT_THAT(rowOf(read(kPart, 1)), ElementsAre(-4, -8));
  EXPECT_TRUE(shards_[0]->give(number, -1).ok());
  ps_of_part_[kPart] = 0;
  EXPECT_THAT(take(read(kPart, 1)).header.message(), HasSubstr("of the tables is not here"));
  shards_[0]->release();
  const Status gone = shards_[0]->give(number, -1).status();
  EXPECT_TRUE(absl::IsNotFound(gone));
  EXPECT_THAT(std::string(gone.message()), HasSubstr("ps-0 does not hold part 6 of the tables"));
  EXPECT_EQ(point(0, kPart), -1);
  EXPECT_EQ(point(0, kPart + 1), 1) << "what is its own stays";
}

TEST_F(RowShardReplicas, WhatDoesNotFitIsNotTakenOver) {
  takeStep(0);
  seal();
  const std::uint32_t number = grid_.numberOf(kPart);
  const std::string before = contents(1, kPart);
  const auto refusal = [&](rows::GivenPart given) {
    const Status status = takeOver(1, number, std::move(given));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(contents(1, kPart), before);
    EXPECT_EQ(point(1, kPart), 1);
    return std::string(status.message());
  };
  rows::GivenPart given = *shards_[0]->give(number, -1);
  ASSERT_NE(given.update, nullptr);
  given.stores = shards_[0]->give(grid_.numberOf(kPart + 1), -1)->stores;
  EXPECT_THAT(refusal(given), HasSubstr("rows of other partitions"));
  given = *shards_[0]->give(number, -1);
  given.update = shards_[0]->give(grid_.numberOf(kPart + 1), -1)->update;
  EXPECT_THAT(refusal(given), HasSubstr("table user: id"));
  auto update = std::make_shared<rows::PartUpdate>(*shards_[0]->give(number, -1)->update);
  update->gradients.pop_back();
  given.update = update;
  EXPECT_THAT(refusal(given), HasSubstr("gradients of 1 tables, there are 2"));
  given = *shards_[0]->give(number, -1);
  given.brought = {update->gradients};
  EXPECT_THAT(refusal(given), HasSubstr("gradients of 1 tables, there are 2"));
  given = *shards_[0]->give(number, 0);
  EXPECT_THAT(refusal(given), HasSubstr("at version 1, what came is behind 0"));

  shards_[1]->dropReplicas();
  replicateOthers(1);
  const Status lacks = takeOver(1, number, *shards_[0]->give(number, 0));
  EXPECT_TRUE(absl::IsInvalidArgument(lacks));
  EXPECT_EQ(lacks.message(), "an update of rows that are not here");
}

TEST_F(RowShardReplicas, ReplicasAreToldAndDroppedAndOwnPartsAreNot) {
  takeStep(0);
  EXPECT_THAT(replicasOf(0, 1), ElementsAre(11, 12, 13, 14, 15, 16, 17, 18));
  EXPECT_THAT(replicasOf(1, 1), ElementsAre(3, 4, 5, 6, 7, 8, 9, 10));
  seal();
  EXPECT_TRUE(shards_[1]->dropReplicas());
  EXPECT_FALSE(shards_[1]->dropReplicas()) << "there was nothing";
  EXPECT_THAT(replicasOf(1, 1), IsEmpty());
  EXPECT_EQ(point(1, kPart), -1);
  EXPECT_EQ(point(1, kOthers), 1);
  EXPECT_THAT(shards_[1]->ranges(), ElementsAre(rows::PartitionRange{512, 1024}));
  shards_[1]->replicate({grid_.numberOf(kPart)}, true);
  EXPECT_THAT(replicasOf(1, 1), IsEmpty()) << "it has nothing yet";
  EXPECT_TRUE(absl::IsFailedPrecondition(shards_[1]->open(2, planFor(1, 2))));
}

// What a file has to be read for.
TEST_F(RowShardReplicas, RangesAreOfOwnPartsAndReplicas) {
  EXPECT_THAT(shards_[0]->ranges(), ElementsAre(rows::PartitionRange{}));
  shards_[0]->replicate({grid_.numberOf(8), grid_.numberOf(10), grid_.numberOf(11)}, true);
  EXPECT_THAT(shards_[0]->ranges(),
              ElementsAre(rows::PartitionRange{0, 576}, rows::PartitionRange{640, 768}));
  shards_[0]->clear(5);
  EXPECT_EQ(point(0, 10), 5);
  EXPECT_EQ(point(0, 9), -1) << "no longer wanted";
  shards_[0]->assign(std::vector<int>(16, 1));
  shards_[0]->replicate({}, true);
  EXPECT_THAT(shards_[0]->ranges(), IsEmpty());
  EXPECT_EQ(shards_[0]->lowestVersion(), -1);
}

TEST_F(RowShardReplicas, RowsAreLoadedIntoReplicasToo) {
  takeStep(0);
  TableRows rows;
  shards_[0]->withPart(kPart,
                       [&](const rows::RowPart& part) { rows = rows::copyRows(part.table(0), 0); });
  seal();
  for (const auto& shard : shards_) {
    shard->clear(7);
    shard->load(rows);
  }
  EXPECT_EQ(contents(0, kPart), contents(1, kPart));
  open(7);
  EXPECT_THAT(rowOf(read(kPart, 7)), ElementsAre(-4, -8));
}

TEST_F(RowShardReplicas, AnUpdateThatIsNoneOfItsReplicasIsRefusedByName) {
  push(kPart, 0, 0, 4);
  push(kPart, 0, 1, 8);
  const RowReplicaUpdate update = shards_[0]->takeUpdates().at(0);
  const auto refusal = [&](const v1::ChunkRequestHeader& header, std::span<const std::byte> body) {
    const v1::ChunkReplyHeader reply = replicate(1, header, body);
    EXPECT_EQ(reply.code(), v1::CHUNK_WRONG_SERVER);
    EXPECT_EQ(reply.chunk(), header.chunk());
    return reply.message();
  };
  const std::span<const std::byte> body = update.body.span();
  v1::ChunkRequestHeader header = update.header;
  for (const std::uint32_t number : {0U, grid_.numberOf(kOthers), 1000U}) {
    header.set_chunk(number);
    EXPECT_EQ(refusal(header, body),
              fmt::format("ps-1 has no such replica of part {} of the tables", number));
  }
  header.set_chunk(grid_.numberOf(kPart + 1));
  EXPECT_THAT(refusal(header, body), HasSubstr("of another partition"));
  header = update.header;
  EXPECT_THAT(refusal(header, body.first(body.size() - 1)), HasSubstr("shorter"));
  header.mutable_tables()->RemoveLast();
  EXPECT_THAT(refusal(header, body), HasSubstr("of 1 tables, the job has 2"));
  header = update.header;
  header.set_samples(0);
  EXPECT_FALSE(refusal(header, body).empty());
  EXPECT_EQ(point(1, kPart), 0) << "nothing of all that is taken";

  header = update.header;
  header.set_before(2);
  header.set_step(2);
  const v1::ChunkReplyHeader gone = replicate(1, header, body);
  EXPECT_EQ(gone.code(), v1::CHUNK_GONE);
  EXPECT_EQ(gone.version(), 0);
  EXPECT_EQ(gone.message(), "the replica of part 6 is at 0, not 2");
  EXPECT_EQ(replicate(1, update.header, body).code(), v1::CHUNK_OK);
}

TEST_F(RowShardReplicas, RowsAndTheirMemoryAreToldApartFromReplicas) {
  takeStep(0);
  for (const int rank : {0, 1}) push(kOthers, 1, rank, 1);  // its id of "ad" gets a row
  deliver();
  v1::ShardTable own, other;
  shards_[0]->fillTables(own);
  shards_[1]->fillTables(other);
  EXPECT_EQ(own.tables(0).table(), "user");
  EXPECT_EQ(own.tables(0).rows(), 8);
  EXPECT_EQ(own.tables(1).rows(), 0);
  EXPECT_EQ(own.tables(1).replica_rows(), 1);
  EXPECT_NE(own.tables(1).bytes(), own.tables(1).replica_bytes());
  for (const int t : {0, 1}) {
    EXPECT_GT(own.tables(t).bytes(), 0U);
    EXPECT_EQ(own.tables(t).bytes(), other.tables(t).replica_bytes());
    EXPECT_EQ(own.tables(t).replica_bytes(), other.tables(t).bytes());
    EXPECT_EQ(own.tables(t).replica_rows(), other.tables(t).rows());
  }
  shards_[0]->dropReplicas();
  own.Clear();
  shards_[0]->fillTables(own);
  EXPECT_EQ(own.tables(0).replica_bytes(), 0U);
  EXPECT_EQ(own.tables(0).rows(), 8);
}

TEST_F(RowShardReplicas, PushesGoToTheReplicaOneAfterTheOther) {
  for (const int aggregate : {1, 2}) {
    start(aggregate);
    const CallId first = push(kPart, 0, 0, 4);
    const CallId second = push(kPart, 0, 1, 8);
    EXPECT_EQ(code(first), v1::CHUNK_UNSPECIFIED);
    const std::vector<RowReplicaUpdate> updates = shards_[0]->takeUpdates();
    ASSERT_EQ(updates.size(), 1U) << "the second waits for it";
    EXPECT_EQ(replicate(1, updates[0].header, updates[0].body.span()).code(), v1::CHUNK_OK);
    shards_[0]->onReplicated(updates[0].header, out_);
    EXPECT_EQ(code(first), v1::CHUNK_OK);
    EXPECT_EQ(code(second), v1::CHUNK_UNSPECIFIED);
    EXPECT_EQ(deliver(), 1);
    EXPECT_EQ(code(second), v1::CHUNK_OK);
    EXPECT_EQ(point(1, kPart), 2);
    EXPECT_EQ(contents(0, kPart), contents(1, kPart));
    for (const auto& shard : shards_) {  // a replica counts where its part is lost
      NumberSet tickets, samples;
      shard->addPushed(tickets, samples);
      EXPECT_THAT(tickets.ranges(), ElementsAre(testing::Pair(0, 2)));
      EXPECT_THAT(samples.ranges(), ElementsAre(testing::Pair(0, 2)));
    }
    push(kPart, 1, 0, 4);
    deliver();
    shards_[0]->settle(9);
    EXPECT_EQ(shards_[0]->lowestVersion(), 9);
    push(kPart, 1, 1, 8);
    EXPECT_EQ(deliver(), 1);
    EXPECT_EQ(point(1, kPart), 9 * aggregate + 1);
    EXPECT_EQ(contents(0, kPart), contents(1, kPart)) << "it follows what was settled";
  }
}

}  // namespace
}  // namespace trainyard::runtime::ps
