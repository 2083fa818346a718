#include "runtime/coordinator/tickets.h"

#include "runtime/coordinator/rest.h"
#include "tests/runtime/coordinator/parts_bench.h"

namespace trainyard::runtime {
namespace {

// Bounded delay of one: two workers whose clocks may differ by so much.
struct TicketsBench : PartsBench {
  TicketsBench() : PartsBench(1, 2, bounded) { start(); }

  static void bounded(CoordinatorConfig& config) {
    config.tickets = TicketRules{1, 1};
    config.heartbeat = std::chrono::seconds(1);
  }
  void start() {
    v1::EpochInfo epoch = all(epochs.number());
    membership.enlist(epoch);
    tickets.startEpoch(false, {}, membership, steps, epoch, out);
    out.take();
  }
  // A question for a ticket and the samples after it; its call's number.
  std::uint64_t ask(std::uint32_t index, std::uint64_t sequence, std::int64_t finished = 0,
                    bool ticket = true) {
    v1::TakeRequest request;
    *request.mutable_id() = worker(index).id();
    request.set_sequence(sequence);
    request.set_ticket(ticket);
    request.set_lease(true);
    request.set_finished(finished);
    if (tickets.ask(request, ++calls, 1, now, out)) tickets.follow(1, now, out);
    return calls;
  }
  void follow(Duration by) {
    now += by;
    tickets.follow(1, now, out);
  }
  // Nothing: it waits.
  std::optional<v1::TakeReply> reply(std::uint64_t call) {
    for (TakeReplyAction& action : said<TakeReplyAction>()) replies[action.call] = action.reply;
    const auto found = replies.find(call);
    return found == replies.end() ? std::nullopt : std::optional(found->second);
  }
  v1::TakeCode code(std::uint64_t call) {
    const auto found = reply(call);
    return found ? found->code() : v1::TAKE_UNSPECIFIED;
  }
  Tickets tickets{config};
  std::uint64_t calls = 0;
  std::map<std::uint64_t, v1::TakeReply> replies;
};

TEST(Tickets, AQuestionThatIsOlderThanTheLastIsRefused) {
  TicketsBench b;
  EXPECT_EQ(b.code(b.ask(0, 2)), v1::TAKE_OK);
  EXPECT_EQ(b.code(b.ask(0, 1)), v1::TAKE_WRONG_EPOCH);
}

// Worker 0, too far ahead, comes first in the order in which they are looked at.
TEST(Tickets, OneAnswerMaySetFreeWhoWaitsForAnother) {
  TicketsBench b;
  EXPECT_EQ(b.code(b.ask(0, 1)), v1::TAKE_OK);
  const std::uint64_t ahead = b.ask(0, 2, 1);
  EXPECT_EQ(b.code(ahead), v1::TAKE_UNSPECIFIED);
  EXPECT_EQ(b.code(b.ask(1, 1)), v1::TAKE_OK);
  EXPECT_EQ(b.code(ahead), v1::TAKE_OK);
}

// That it was to come again is no answer: it must not get that for good.
TEST(Tickets, WhoComesAgainIsToldThatItHasWaited) {
  TicketsBench b;
  EXPECT_EQ(b.code(b.ask(0, 1)), v1::TAKE_OK);
  const std::uint64_t ahead = b.ask(0, 2, 1);
  b.follow(std::chrono::milliseconds(999));
  EXPECT_EQ(b.code(ahead), v1::TAKE_UNSPECIFIED);
  b.follow(std::chrono::milliseconds(1));
  EXPECT_EQ(b.code(ahead), v1::TAKE_AGAIN);
  const std::uint64_t again = b.ask(0, 2, 1);
  EXPECT_EQ(b.code(again), v1::TAKE_UNSPECIFIED);
  b.ask(1, 1);
  ASSERT_EQ(b.code(again), v1::TAKE_OK);
  EXPECT_TRUE(b.reply(again)->waited());
  const std::uint64_t next = b.ask(1, 2, 1);
  ASSERT_EQ(b.code(next), v1::TAKE_OK);
  EXPECT_FALSE(b.reply(next)->waited());
}

// Sequences begin again with the epoch.
TEST(Tickets, AnAnswerOfAFormerEpochIsNotGivenAgain) {
  TicketsBench b;
  EXPECT_EQ(b.code(b.ask(0, 3)), v1::TAKE_OK);
  const std::uint64_t waits = b.ask(0, 4, 1);
  b.tickets.endEpoch(2, b.out);
  ASSERT_EQ(b.code(waits), v1::TAKE_WRONG_EPOCH);
  EXPECT_EQ(b.reply(waits)->epoch(), 2);
  b.start();
  EXPECT_EQ(b.code(b.ask(0, 1)), v1::TAKE_OK);
}

TEST(Tickets, AreDrainedOnceUntilTheyGoOn) {
  TicketsBench b;
  EXPECT_TRUE(b.tickets.drain());
  EXPECT_FALSE(b.tickets.drain());
  const std::uint64_t held = b.ask(0, 1);
  EXPECT_EQ(b.code(held), v1::TAKE_UNSPECIFIED);
  b.tickets.resume();
  b.follow(Duration(0));
  EXPECT_EQ(b.code(held), v1::TAKE_OK);
  EXPECT_TRUE(b.tickets.drain());
}

// Workers that rest, and that say so.
struct RestBench : PartsBench {
  RestBench() {
    begin();
    rest.ask(5);
  }
  void at(std::uint32_t index, std::int64_t version, bool idle, std::uint64_t seen) {
    worker(index).set_seen_view(seen);
    worker(index).mutable_worker()->set_version(version);
    worker(index).mutable_worker()->set_idle(idle);
  }
  std::optional<std::int64_t> version() {
    say();
    return rest.version(membership, epochs, steps, tickets);
  }
  Rest rest;
  Tickets tickets{config};
};

// Nor does a step end without the one who has said it.
TEST(Rest, OneWhoHeardOfItIsEnoughWhereAllHoldTheSame) {
  RestBench b;
  b.at(0, 7, true, 4);
  b.at(1, 7, false, 4);
  EXPECT_EQ(b.version(), std::nullopt) << "it was idle before it was asked";
  b.at(0, 7, true, 5);
  EXPECT_EQ(b.version(), 7);
  b.at(1, 6, true, 5);
  EXPECT_EQ(b.version(), std::nullopt);
}

TEST(Rest, WhoIsNotInTheEpochYetMayStillBegin) {
  RestBench b;
  b.at(0, 7, true, 5);
  b.at(1, 7, true, 5);
  b.worker(1).mutable_worker()->set_epoch(b.epochs.number() - 1);
  EXPECT_EQ(b.version(), std::nullopt);
}

}  // namespace
}  // namespace trainyard::runtime
