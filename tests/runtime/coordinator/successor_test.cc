// A coordinator that starts again is told where the job is.
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using std::chrono::seconds;

constexpr int kPieces = 4;

// Two servers and two workers; all chunks are on ps-1.
std::function<void(CoordinatorConfig&)> allOnTheSecond(std::uint32_t start) {
  return [start](CoordinatorConfig& config) {
    for (int i = 0; i < kPieces; ++i) config.chunks.push_back({1000, 1, false});
    config.grid_ps = 2;
    config.self = incarnation(1, start);
  };
}

// The membership that it starts with has left out ps-1, which holds what nobody else does.
TEST(CoordinatorSuccessor, WaitsForAServerThatLeaves) {
  for (const bool comes : {true, false}) {
    SCOPED_TRACE(comes);
    Bench former(2, 2, allOnTheSecond(1));
    former.activate();
    former.reach(17);
    v1::EpochInfo begun = former.last_view.epoch();
    begun.set_replicated(false);
    for (v1::ChunkSource& source : *begun.mutable_sources()) source.set_address("10.0.0.9:4000");
    Bench b(2, 2, allOnTheSecond(2));
    b.prepares = false;
    b.c.setMembership(members(1, 2, 2), b.now);
    b.reports = former.reports;
    for (auto& [key, report] : b.reports) *report.mutable_begun() = begun;
    v1::MemberReport leaver = b.ps(1);
    b.reports.erase({v1::ROLE_PS, 1});
    b.restart(b.ps(0));
    b.ps(0).clear_begun();
    b.settle();
    ASSERT_EQ(b.c.phase(), v1::PHASE_SEALING);
    if (comes) {
      b.ps(1) = leaver;
      b.settle();
      ASSERT_EQ(b.c.phase(), v1::PHASE_PREPARING) << b.c.waitingFor(b.now);
      const v1::EpochInfo& epoch = b.last_view.epoch();
      EXPECT_EQ(epoch.first_step(), 17);
      ASSERT_EQ(epoch.former_ps_size(), kPieces);
      EXPECT_EQ(epoch.former_ps(0), 1);
      EXPECT_EQ(epoch.chunk_ps(0), 0);
      ASSERT_EQ(epoch.sources_size(), 2);
      EXPECT_EQ(epoch.sources(1).address(), "10.0.0.9:4000");
      EXPECT_EQ(b.last_view.lost_steps(), 0);
      continue;
    }
    for (int i = 0; i < 12 && b.c.phase() == v1::PHASE_SEALING; ++i) {
      b.tick(seconds(1));
      b.settle();
    }
    EXPECT_EQ(b.c.phase(), v1::PHASE_PREPARING);
    EXPECT_TRUE(b.last_view.epoch().fresh());
  }
}

void add(NumberSet::Ranges& ranges, std::int64_t first, std::int64_t end) {
  v1::NumberRange* range = ranges.Add();
  range->set_first(first);
  range->set_end(end);
}

std::function<void(CoordinatorConfig&)> withTickets(std::uint32_t start) {
  return [start](CoordinatorConfig& config) {
    allOnTheSecond(start)(config);
    config.tickets = TicketRules{};
    config.replicate_pushes = true;
  };
}

// Of the epoch that ended with ps-0, as both workers and ps-1 have seen it.
struct Successor : Bench {
  explicit Successor(const Bench& former) : Bench(2, 2, withTickets(2)) {
    reports = former.reports;
    for (auto& [key, report] : reports) *report.mutable_begun() = former.last_view.epoch();
    restart(ps(0));
    ps(0).clear_begun();
    // Tickets 0 to 3 have been pushed, with the samples before position 40.
    add(*ps(1).mutable_shard()->mutable_pushed_tickets(), 0, 4);
    add(*ps(1).mutable_shard()->mutable_pushed_samples(), 0, 40);
    v1::WorkerState* pusher = worker(0).mutable_worker();
    pusher->set_finished(2);
    pusher->set_pushing(true);
    pusher->set_ticket(4);
    pusher->mutable_pushing_lease()->set_first(40);
    pusher->mutable_pushing_lease()->set_samples(10);
    v1::WorkerState* reader = worker(1).mutable_worker();
    reader->set_finished(2);
    reader->mutable_lease()->set_first(60);
    reader->mutable_lease()->set_samples(10);
  }
  v1::TakeReply asked(std::uint32_t index, bool ticket) { return answerOf(ask(index, ticket)); }
};

TEST(CoordinatorSuccessor, MakesTheLedgerAnew) {
  Bench former(2, 2, withTickets(1));
  former.activate();
  ASSERT_TRUE(former.last_view.epoch().has_ledger());
  Successor b(former);
  b.activate();
  const v1::EpochInfo& epoch = b.last_view.epoch();
  EXPECT_EQ(epoch.first_step(), 4) << "what was pushed stays";
  EXPECT_FALSE(epoch.fresh());
  EXPECT_EQ(epoch.ledger().given(), 5);
  EXPECT_EQ(b.last_view.lost_steps(), 0);
  EXPECT_EQ(b.asked(1, false).lease().first(), 60) << "what is in its hands";
  const v1::TakeReply next = b.asked(1, true);
  EXPECT_EQ(next.ticket(), 5);
  EXPECT_EQ(next.lease().first(), 50) << "lent to somebody who has not heard it";
  b.worker(0).mutable_worker()->set_pushing(false);
  b.say(b.worker(0));
  EXPECT_EQ(b.asked(0, false).lease().first(), 70);
}

// A worker that has died with it: what it pushed is read, what was in its hands is lent again.
TEST(CoordinatorSuccessor, KnowsWhatTheDeadHavePushed) {
  Bench former(2, 2, withTickets(1));
  former.activate();
  Successor b(former);
  b.restart(b.worker(1));
  b.activate();
  EXPECT_EQ(b.last_view.epoch().first_step(), 4);
  EXPECT_EQ(b.asked(1, false).lease().first(), 50);
  EXPECT_EQ(b.c.progress(b.now).partial(), 1) << "its last push may be in some chunks only";
}

// Nobody has the ledger with which the epoch began.
TEST(CoordinatorSuccessor, GoesBackWithoutWhatTheEpochBeganWith) {
  Bench former(2, 2, withTickets(1));
  former.activate();
  Successor b(former);
  for (auto& [key, report] : b.reports) report.mutable_begun()->clear_ledger();
  b.activate();
  EXPECT_TRUE(b.last_view.epoch().fresh());
}

}  // namespace
}  // namespace trainyard::runtime
