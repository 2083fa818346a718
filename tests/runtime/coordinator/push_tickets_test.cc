#include "runtime/coordinator/push_tickets.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

PushTickets::Start startOf(std::int64_t steps, int samples = 10) {
  PushTickets::Start start;
  start.steps = steps;
  start.samples = samples;
  return start;
}

std::vector<PushTickets::Worker> fresh(int workers) {
  std::vector<PushTickets::Worker> list(static_cast<std::size_t>(workers));
  for (int i = 0; i < workers; ++i)
    list[static_cast<std::size_t>(i)].index = static_cast<std::uint32_t>(i);
  return list;
}

// All stay, and hold nothing.
std::vector<PushTickets::Worker> staying(int workers) {
  auto list = fresh(workers);
  for (PushTickets::Worker& worker : list) worker.stays = true;
  return list;
}

struct Book {
  explicit Book(TicketRules rules, int workers = 2, const PushTickets::Start& start = startOf(100))
      : tickets(rules) {
    tickets.startEpoch(false, start, fresh(workers));
    finished.resize(static_cast<std::size_t>(workers));
  }
  std::optional<PushTickets::Answer> lease(std::uint32_t worker) {
    return tickets.ask({worker, false, true, finished[worker]});
  }
  std::optional<PushTickets::Answer> ticket(std::uint32_t worker, bool lease = false) {
    return tickets.ask({worker, true, lease, finished[worker]});
  }
  void finish(std::uint32_t worker) {
    tickets.onReport(worker, ++finished[worker], std::nullopt, false);
  }
  // Lease, ticket and the whole push; the ticket, or -1 when one of them has to wait.
  std::int64_t push(std::uint32_t worker) {
    if (!lease(worker)) return -1;
    const auto answer = ticket(worker);
    if (!answer || !answer->ticket) return -1;
    finish(worker);
    return *answer->ticket;
  }
  // An epoch that keeps what the servers hold.
  void next(std::vector<PushTickets::Worker> workers,
            const PushTickets::Start& start = startOf(100)) {
    for (PushTickets::Worker& worker : workers) {
      if (worker.stays) worker.finished = finished[worker.index];
    }
    tickets.startEpoch(true, start, workers);
    finished.assign(finished.size(), 0);
  }

  PushTickets tickets;
  std::vector<std::int64_t> finished;
};

TEST(PushTickets, NumbersAllPushesAndEndsAfterExactlySoMany) {
  Book b({}, 2, startOf(5));
  EXPECT_EQ(b.tickets.steps(), 5);
  for (const std::uint32_t worker : {0u, 1u}) EXPECT_TRUE(b.lease(worker));
  EXPECT_EQ(b.ticket(1, true)->ticket, 0);
  EXPECT_EQ(b.ticket(0, true)->ticket, 1);
  b.finish(1);
  EXPECT_EQ(b.tickets.version(), 1);
  b.finish(0);
  EXPECT_EQ(b.tickets.version(), 2);
  EXPECT_EQ(b.ticket(0, true)->ticket, 2);
  b.finish(0);
  EXPECT_EQ(b.ticket(0, true)->ticket, 3);
  const auto last = b.ticket(1, true);
  EXPECT_EQ(last->ticket, 4);
  EXPECT_FALSE(last->lease);  // nothing would take its gradient
  EXPECT_TRUE(b.tickets.over());
  EXPECT_FALSE(b.tickets.drained());
  EXPECT_TRUE(b.ticket(0)->over);
  EXPECT_TRUE(b.lease(0)->over);
  b.finish(0);
  b.finish(1);
  EXPECT_TRUE(b.tickets.drained());
  EXPECT_EQ(b.tickets.version(), 5);
}

TEST(PushTickets, LendsTheStreamInPiecesEachOnce) {
  Book b({}, 2, startOf(100, 7));
  EXPECT_EQ(b.lease(0)->lease, (SampleRange{0, 7}));
  EXPECT_EQ(b.lease(1)->lease, (SampleRange{7, 7}));
  EXPECT_EQ(b.lease(0)->lease, (SampleRange{0, 7}));  // asked again: it holds them still
  const auto answer = b.ticket(0, true);
  EXPECT_EQ(answer->lease, (SampleRange{14, 7}));
  EXPECT_EQ(b.tickets.position(), 21);
  EXPECT_THAT(b.tickets.unread(), ElementsAre(SampleRange{7, 7}, SampleRange{14, 7}));
}

TEST(PushTickets, PassesEndWithAShortPush) {
  PushTickets::Start start = startOf(0, 10);
  start.end_position = 34;
  Book b({}, 2, start);
  EXPECT_EQ(b.tickets.steps(), 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.push(i % 2), i);
  EXPECT_EQ(b.lease(1)->lease, (SampleRange{30, 4}));
  EXPECT_FALSE(b.lease(0));  // all is lent; it might come back
  EXPECT_EQ(b.ticket(1)->ticket, 3);
  b.finish(1);
  EXPECT_TRUE(b.lease(0)->over);
  EXPECT_EQ(b.tickets.version(), 4);
}

TEST(PushTickets, PassesWithAggregatedPushesEndInAShortUpdate) {
  PushTickets::Start start = startOf(0, 10);
  start.end_position = 45;  // five pushes
  Book b({.aggregate = 3}, 2, start);
  EXPECT_EQ(b.tickets.steps(), 2);
  for (int i = 0; i < 3; ++i) b.push(0);
  EXPECT_EQ(b.tickets.version(), 1);
  b.push(0);
  EXPECT_EQ(b.tickets.version(), 1);
  b.push(1);
  EXPECT_TRUE(b.tickets.over());
  EXPECT_EQ(b.tickets.version(), 2);
}

TEST(PushTickets, DrainingWaitsForThePushesUnderWay) {
  Book b({});
  b.push(0);
  b.lease(1);
  b.ticket(1);
  b.tickets.drain();
  EXPECT_FALSE(b.tickets.drained());
  EXPECT_TRUE(b.lease(0));  // computing goes on
  EXPECT_FALSE(b.ticket(0));
  b.finish(1);
  EXPECT_TRUE(b.tickets.drained());
  EXPECT_EQ(b.tickets.version(), 2);
  EXPECT_THAT(b.tickets.unread(), ElementsAre(SampleRange{20, 10}));
  b.tickets.resume();
  EXPECT_EQ(b.ticket(0)->ticket, 2);
}

TEST(PushTickets, DrainingFillsTheUpdateThatHasBegun) {
  Book b({.aggregate = 3});
  b.push(0);
  b.tickets.drain();
  EXPECT_FALSE(b.tickets.drained());
  EXPECT_EQ(b.push(0), 1);
  EXPECT_EQ(b.push(1), 2);
  EXPECT_EQ(b.push(1), -1);
  EXPECT_TRUE(b.tickets.drained());
  EXPECT_EQ(b.tickets.version(), 1);
}

TEST(PushTickets, AStopMakesAnUpdateOfWhatIsThere) {
  Book b({.aggregate = 3});
  for (int i = 0; i < 4; ++i) b.push(0);
  b.lease(1);
  b.ticket(1);
  b.tickets.stop();
  EXPECT_EQ(b.push(0), -1);
  EXPECT_FALSE(b.tickets.drained());
  b.finish(1);
  EXPECT_TRUE(b.tickets.drained());
  EXPECT_EQ(b.tickets.version(), 2);
  // Who goes on from there counts from version 2.
  PushTickets::Start start = startOf(100);
  start.step = 2;
  b.tickets.startEpoch(false, start, fresh(2));
  b.finished.assign(2, 0);
  EXPECT_EQ(b.push(0), 6);
}

TEST(PushTickets, AnAnswerThatWasLostGivesTicketAndSamplesBack) {
  Book b({}, 2, startOf(3));
  b.lease(0);
  b.ticket(0, true);
  b.push(1);
  // The epoch ends before worker 0 has heard of its ticket: it still holds the gradient.
  b.next(staying(2), startOf(3));
  EXPECT_EQ(b.tickets.partial(), 0);
  EXPECT_EQ(b.tickets.version(), 1);
  EXPECT_THAT(b.tickets.unread(), ElementsAre(SampleRange{0, 10}, SampleRange{10, 10}));
  EXPECT_EQ(b.ticket(0, true)->ticket, 0);
  b.finish(0);
  EXPECT_FALSE(b.tickets.over());
  EXPECT_EQ(b.push(0), 2);
  EXPECT_TRUE(b.tickets.over());
  EXPECT_EQ(b.tickets.version(), 3);
}

TEST(PushTickets, AReturnedTicketIsGivenAlsoWhenAllHaveBeenGiven) {
  Book b({}, 2, startOf(2));
  b.lease(0);
  b.lease(1);
  b.ticket(0);
  b.ticket(1);
  EXPECT_TRUE(b.tickets.over());
  auto workers = staying(2);
  workers[1].pushing = 1;  // it got the answer, worker 0 did not
  b.next(workers, startOf(2));
  EXPECT_FALSE(b.tickets.over());
  b.tickets.drain();  // the ticket belongs to those that must be finished
  EXPECT_FALSE(b.tickets.drained());
  EXPECT_EQ(b.ticket(0)->ticket, 0);
  b.finish(0);
  EXPECT_FALSE(b.tickets.drained());
  b.tickets.onReport(1, 0, std::nullopt, false);  // the push it brought along
  EXPECT_TRUE(b.tickets.drained());
  EXPECT_EQ(b.tickets.version(), 2);
}

TEST(PushTickets, APushIsBroughtIntoTheNextEpochAndFinishedThere) {
  Book b({});
  b.lease(0);
  EXPECT_EQ(b.ticket(0, true)->ticket, 0);
  auto workers = staying(2);
  workers[0].pushing = 0;
  b.next(workers);
  EXPECT_EQ(b.tickets.version(), 0);
  b.tickets.onReport(0, 0, 0, false);
  EXPECT_EQ(b.tickets.version(), 0);
  EXPECT_EQ(b.ticket(0)->ticket, 1);  // it asks for the next: the former is finished
  b.tickets.drain();
  EXPECT_FALSE(b.tickets.drained());
  b.finish(0);
  EXPECT_TRUE(b.tickets.drained());
  EXPECT_EQ(b.tickets.version(), 2);
}

TEST(PushTickets, APushThatWasBroughtAlongAndFinishedIsNotGivenAgain) {
  Book b({});
  b.lease(0);
  b.ticket(0);
  auto workers = staying(2);
  workers[0].pushing = 0;
  b.next(workers);
  workers[0].pushing.reset();  // finished, but no report said so before the next epoch
  b.next(workers);
  EXPECT_EQ(b.tickets.version(), 1);
  EXPECT_EQ(b.push(0), 1);
}

TEST(PushTickets, WhoDiesInAPushLeavesItPartialAndItsSamplesToOthers) {
  Book b({});
  b.lease(0);
  b.ticket(0, true);  // pushes 0-9, was lent 10-19
  b.lease(1);         // computes 20-29
  auto workers = staying(2);
  workers[0].stays = false;
  b.next(workers);
  EXPECT_EQ(b.tickets.partial(), 1);
  EXPECT_EQ(b.tickets.version(), 1);
  EXPECT_EQ(b.lease(1)->lease, (SampleRange{20, 10}));
  EXPECT_EQ(b.lease(0)->lease, (SampleRange{10, 10}));
  EXPECT_EQ(b.ticket(0)->ticket, 1);
  b.finish(0);
  // Between two pushes nothing is partial.
  b.next(workers);
  EXPECT_EQ(b.tickets.partial(), 1);
}

TEST(PushTickets, ARestoredEpochStartsFromWhatTheCheckpointSays) {
  Book b({});
  for (int i = 0; i < 5; ++i) b.push(0);
  PushTickets::Start start = startOf(100);
  start.step = 3;
  start.position = 50;
  start.unread = {{10, 10}, {40, 10}};
  b.tickets.startEpoch(false, start, staying(2));
  b.finished.assign(2, 0);
  EXPECT_EQ(b.tickets.version(), 3);
  EXPECT_EQ(b.tickets.partial(), 0);
  EXPECT_EQ(b.lease(0)->lease, (SampleRange{10, 10}));
  EXPECT_EQ(b.lease(1)->lease, (SampleRange{40, 10}));
  EXPECT_EQ(b.ticket(0, true)->ticket, 3);
  EXPECT_THAT(b.tickets.unread(), ElementsAre(SampleRange{40, 10}, SampleRange{50, 10}));
}

TEST(PushTickets, PassesCountWhatDiedAndWhatCameBack) {
  PushTickets::Start start = startOf(0, 10);
  start.end_position = 40;
  Book b({}, 2, start);
  b.lease(0);
  b.ticket(0, true);  // pushes 0-9 and dies, 10-19 come back
  b.push(1);          // 20-29
  auto workers = staying(2);
  workers[0].stays = false;
  b.next(workers, start);
  EXPECT_EQ(b.tickets.steps(), 4);
  EXPECT_EQ(b.push(0), 2);
  EXPECT_EQ(b.push(1), 3);
  EXPECT_TRUE(b.tickets.over());
  EXPECT_THAT(b.tickets.unread(), IsEmpty());
}

TEST(BoundedDelay, AWorkerIsLentNothingWhenItIsTooFarAhead) {
  Book b({.max_delay = 2});
  EXPECT_GE(b.push(0), 0);
  EXPECT_GE(b.push(0), 0);
  EXPECT_FALSE(b.lease(0));
  EXPECT_EQ(b.tickets.spread(), 2);
  EXPECT_GE(b.push(1), 0);
  EXPECT_TRUE(b.lease(0));
  EXPECT_EQ(b.tickets.spread(), 2);
}

TEST(BoundedDelay, AWorkerAloneIsNeverHeldBack) {
  Book b({.max_delay = 1}, 1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(b.push(0), i);
}

TEST(BoundedDelay, StopLeadersLetsTheOthersGoOn) {
  Book b({.max_delay = 2}, 3);
  b.push(0);
  b.push(0);
  b.push(1);
  EXPECT_EQ(b.push(0), -1);
  EXPECT_GE(b.push(1), 0);  // one ahead of worker 2, as far as worker 0 then
}

TEST(BoundedDelay, StopAllHoldsEverybodyUntilTheSlowestHasCaughtUpWithTheFastest) {
  Book b({.max_delay = 2, .stop_all = true}, 3);
  b.push(0);
  b.push(0);
  b.push(1);
  b.push(2);
  b.push(1);
  EXPECT_TRUE(b.lease(0));  // 2, 2, 1: one ahead
  EXPECT_TRUE(b.ticket(0));
  b.finish(0);
  EXPECT_FALSE(b.lease(0));  // 3, 2, 1: stops all
  EXPECT_GE(b.push(1), 0);   // up to the fastest
  EXPECT_FALSE(b.lease(1));  // 3, 3, 1: with stop Leaders these two would ...
  EXPECT_GE(b.push(2), 0);
  EXPECT_FALSE(b.lease(0));  // 3, 3, 2: ... go on now
  EXPECT_FALSE(b.lease(1));
  EXPECT_GE(b.push(2), 0);
  for (const std::uint32_t worker : {0u, 1u, 2u}) EXPECT_TRUE(b.lease(worker));
}

TEST(BoundedDelay, AChiefThatScoresHoldsNobodyBackAndComesBackWithinTheBound) {
  Book b({.max_delay = 2});
  b.push(0);
  b.tickets.onReport(0, b.finished[0], std::nullopt, /*evaluating=*/true);
  for (int i = 0; i < 6; ++i) EXPECT_GE(b.push(1), 0);
  EXPECT_TRUE(b.lease(1));
  b.tickets.onReport(0, b.finished[0], std::nullopt, false);
  // Worker 1 has six pushes and samples for a seventh: the chief counts as if it had four.
  EXPECT_FALSE(b.ticket(1));
  EXPECT_GE(b.push(0), 0);
  EXPECT_TRUE(b.ticket(1));
  b.finish(1);
  EXPECT_FALSE(b.lease(1));
  EXPECT_EQ(b.tickets.spread(), 2);
  EXPECT_GE(b.push(0), 0);
  EXPECT_TRUE(b.lease(1));
}

TEST(BoundedDelay, NobodyWaitsForAWorkerForWhomNoSamplesAreLeft) {
  PushTickets::Start start = startOf(0);
  start.end_position = 30;  // three gradients
  Book b({.max_delay = 1}, 2, start);
  b.push(0);
  b.tickets.onReport(1, b.finished[1], std::nullopt, /*evaluating=*/true);
  b.push(0);
  EXPECT_TRUE(b.lease(0));  // the last samples
  b.tickets.onReport(1, b.finished[1], std::nullopt, false);
  EXPECT_FALSE(b.lease(1));
  EXPECT_TRUE(b.ticket(0));
}

TEST(BoundedDelay, WhoJoinsStartsBesideTheSlowest) {
  Book b({.max_delay = 3}, 2);
  for (int i = 0; i < 5; ++i) b.push(1), b.push(0);
  b.push(1);
  b.finished.resize(3);
  auto workers = staying(3);
  workers[2].stays = false;
  b.next(workers);
  EXPECT_GE(b.push(1), 0);
  EXPECT_GE(b.push(1), 0);
  EXPECT_EQ(b.push(1), -1);  // 5, 8, 5
  EXPECT_GE(b.push(0), 0);
  EXPECT_EQ(b.push(1), -1);  // 6, 8, 5
  EXPECT_GE(b.push(2), 0);
  EXPECT_GE(b.push(1), 0);
}

TEST(BoundedDelay, WhoJoinsWhileTheChiefScoresDoesNotStartBesideItsOldClock) {
  Book b({.max_delay = 2}, 2);
  b.tickets.onReport(0, 0, std::nullopt, /*evaluating=*/true);
  for (int i = 0; i < 9; ++i) EXPECT_GE(b.push(1), 0);
  b.finished.resize(3);
  auto workers = staying(3);
  workers[2].stays = false;
  b.next(workers);
  EXPECT_EQ(b.push(1), -1);
  EXPECT_GE(b.push(0), 0);  // 8, 9, 7
  EXPECT_GE(b.push(2), 0);
  EXPECT_GE(b.push(1), 0);
  EXPECT_EQ(b.tickets.spread(), 2);
}

TEST(BoundedDelay, ATicketThatWasLostDoesNotWidenTheBound) {
  Book b({.max_delay = 1}, 2);
  b.push(0);  // 1, 0
  b.lease(1);
  b.ticket(1);              // 1, 1
  EXPECT_TRUE(b.lease(0));  // may reach 2
  b.next(staying(2));       // worker 1 has not heard of its ticket
  EXPECT_FALSE(b.ticket(0)) << "worker 1 has made no push at all";
  EXPECT_TRUE(b.ticket(1));  // 1, 1
  b.finish(1);
  EXPECT_TRUE(b.ticket(0));  // 2, 1
  b.finish(0);
  EXPECT_EQ(b.tickets.spread(), 1);
  EXPECT_FALSE(b.lease(0));
  EXPECT_GE(b.push(1), 0);
  EXPECT_TRUE(b.lease(0));
}

// An epoch of fewer steps than were pushed ends at once; an update that was begun is completed.
TEST(PushTickets, FewerStepsThanWereTaken) {
  Book book(TicketRules{.aggregate = 2});
  for (int i = 0; i < 6; ++i) ASSERT_EQ(book.push(0), i);
  book.next(staying(2), startOf(2));
  EXPECT_TRUE(book.tickets.over());
  EXPECT_EQ(book.tickets.steps(), 3);
  EXPECT_EQ(book.tickets.version(), 3);

  Book odd(TicketRules{.aggregate = 2});
  for (int i = 0; i < 5; ++i) ASSERT_EQ(odd.push(0), i);
  odd.next(staying(2), startOf(2));
  EXPECT_FALSE(odd.tickets.over());
  EXPECT_EQ(odd.push(1), 5);
  EXPECT_TRUE(odd.tickets.over());
  EXPECT_EQ(odd.tickets.version(), 3);
}

TEST(PushTickets, MoreStepsThanBefore) {
  Book book(TicketRules{}, 2, startOf(3));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(book.push(0), i);
  book.next(staying(2), startOf(5));
  for (int i = 2; i < 5; ++i) ASSERT_EQ(book.push(0), i);
  EXPECT_TRUE(book.tickets.over());
  EXPECT_EQ(book.tickets.version(), 5);
}

}  // namespace
}  // namespace trainyard::runtime
