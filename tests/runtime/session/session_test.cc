// Both ends of a session over a real socket and real memory, with a host that descends a parabola.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "fmt/format.h"
#include "runtime/session/program_session.h"
#include "runtime/session/serve.h"
#include "tests/runtime/session/parabola_host.h"

namespace trainyard::runtime::session {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : path_(testing::TempDir() + "session-" + std::to_string(::getpid()) + ".sock") {
    auto made = ChannelListener::open(path_);
    EXPECT_TRUE(made.ok()) << made.status();
    listener_.emplace(std::move(*made));
  }
  ~SessionTest() override {
    if (thread_.joinable()) thread_.join();
  }
  // The member serves one program; `end_` is how it ended.
  void serveOne(Welcome welcome = {.job = "parabola", .index = 3, .seed = 7}) {
    thread_ = std::thread([this, welcome] {
      auto channel = listener_->accept({});
      ASSERT_TRUE(channel.ok());
      end_ = serve(*channel, welcome, host_, {});
    });
  }
  std::unique_ptr<ProgramSession> open(Cancelled cancelled = {}) {
    auto opened = ProgramSession::open(path_, "a test", std::move(cancelled));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  Status ended() {
    thread_.join();
    return end_;
  }

  const std::string path_;
  std::optional<ChannelListener> listener_;
  ParabolaHost host_{5};
  std::thread thread_;
  Status end_;
};

std::span<float> floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

TEST_F(SessionTest, AProgramTrainsOnTheWeightsThatTheJobGivesIt) {
  serveOne();
  const auto session = open();
  EXPECT_EQ(session->welcome().job, "parabola");
  EXPECT_EQ(session->welcome().index, 3);
  ASSERT_TRUE(session->declare(kModel).ok());
  const auto w = floats(session->value(0));
  const auto b = floats(session->value(2));
  ASSERT_EQ(w.size(), 2U);
  ASSERT_EQ(b.size(), 1U);
  w[0] = 8, w[1] = -4, b[0] = 2;
  std::vector<std::int64_t> samples;
  for (;;) {
    const auto message = session->next();
    ASSERT_TRUE(message.ok()) << message.status();
    if (message->turn.kind == Turn::Kind::kDone) break;
    if (message->turn.kind == Turn::Kind::kEvaluate) {
      EXPECT_EQ(message->turn.samples, 10);
      ASSERT_TRUE(session->evaluated({7, 10, 1}).ok());
      continue;
    }
    samples.insert(samples.end(), message->samples.begin(), message->samples.end());
    // Half of the value is the gradient of its square's quarter; summed over two samples.
    for (const std::size_t variable : {2, 0}) {
      const auto value = floats(session->value(variable));
      std::ranges::copy(value, session->gradient(variable).begin());
      ASSERT_TRUE(session->push(static_cast<std::uint32_t>(variable)).ok());
    }
    const auto outcome = session->finish(3, 2);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->complete);
    EXPECT_EQ(outcome->loss, 1.5);
  }
  EXPECT_THAT(w, ElementsAre(0.25F, -0.125F));
  EXPECT_THAT(b, ElementsAre(0.0625F));
  EXPECT_THAT(samples, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(host_.pushed, ElementsAre(2, 0, 2, 0, 2, 0, 2, 0, 2, 0));
  EXPECT_EQ(host_.hits, 7);
}

// The first sum of a step does not count, and the step comes again.
TEST_F(SessionTest, AProgramMakesTheUpdateItself) {
  host_.incomplete = 1;
  serveOne();
  const auto session = open();
  ASSERT_TRUE(session->declare(ownUpdateModel()).ok());
  const auto w = floats(session->value(0));
  w[0] = 8, w[1] = -4;
  std::vector<bool> complete;
  for (;;) {
    const auto message = session->next();
    ASSERT_TRUE(message.ok()) << message.status();
    if (message->turn.kind != Turn::Kind::kTrain) break;
    EXPECT_EQ(message->turn.step, std::ranges::count(complete, true));
    std::ranges::copy(w, session->gradient(0).begin());
    ASSERT_TRUE(session->push(0).ok());
    ASSERT_TRUE(session->push(2).ok());
    const auto summed = session->sum(3, 2);
    ASSERT_TRUE(summed.ok()) << summed.status();
    complete.push_back(summed->complete);
    if (!summed->complete) continue;
    EXPECT_EQ(summed->loss, 1.5);
    EXPECT_TRUE(absl::IsInvalidArgument(session->next().status()));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= session->gradient(0)[i];
    const auto made = session->commit();
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE(made->complete);
    EXPECT_EQ(made->step, message->turn.step);
  }
  EXPECT_THAT(complete, ElementsAre(false, true, true, true, true, true));
  EXPECT_THAT(w, ElementsAre(0.25F, -0.125F));
}

Declaration withState() {
  Declaration model = kModel;
  model.has_state = true;
  return model;
}

// The next turn, of that kind.
void expectTurn(ProgramSession& session, Turn::Kind kind, std::int64_t step) {
  const auto message = session.next();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->turn.kind, kind);
  EXPECT_EQ(message->turn.step, step);
}

void takeStep(ProgramSession& session, std::int64_t step) {
  expectTurn(session, Turn::Kind::kTrain, step);
  ASSERT_TRUE(session.push(0).ok());
  ASSERT_TRUE(session.push(2).ok());
  ASSERT_TRUE(session.finish(1, 2).ok());
}

TEST_F(SessionTest, RowsAreLookedUpAndGetTheirGradients) {
  serveOne({.job = "parabola", .index = 3, .seed = 7, .tables = {{"user", 2}, {"item", 2}}});
  const auto session = open();
  ASSERT_EQ(session->welcome().tables.size(), 2U);
  EXPECT_EQ(session->welcome().tables[1].name, "item");
  ASSERT_TRUE(session->declare(kModel).ok());
  std::vector<float> rows(4);
  EXPECT_TRUE(absl::IsInvalidArgument(session->lookUp({1, {3, 5}}, rows))) << "outside of a turn";
  expectTurn(*session, Turn::Kind::kTrain, 0);
  ASSERT_TRUE(session->lookUp({1, {3, 5}}, rows).ok());
  EXPECT_THAT(rows, ElementsAre(9, 1, 25, 1));
  ASSERT_TRUE(session->lookUp({0, {}}, {}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(session->lookUp({2, {3, 5}}, rows))) << "no such table";
  EXPECT_TRUE(absl::IsInvalidArgument(session->lookUp({1, {3}}, rows))) << "room for two";
  EXPECT_TRUE(absl::IsInvalidArgument(session->pushRows({1, {3, 5}, {1, 1}, {1, 2}})));
  ASSERT_TRUE(session->pushRows({1, {3, 5}, {1, 4}, {1, 2, 3, 4}}).ok());
  ASSERT_TRUE(session->lookAhead({2, 2, {{}, {8}}}).ok());
  ASSERT_TRUE(session->push(0).ok() && session->push(2).ok() && session->finish(1, 2).ok());
  ASSERT_EQ(host_.squares.pushed.size(), 1U);
  EXPECT_EQ(host_.squares.pushed[0].table, 1U);
  EXPECT_THAT(host_.squares.pushed[0].counts, ElementsAre(1, 4));
  EXPECT_THAT(host_.squares.pushed[0].sums, ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(host_.squares.ahead.size(), 1U);
  EXPECT_THAT(host_.squares.ahead[0].ids[1], ElementsAre(8));
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Of any size, none among them.
class SessionStateTest : public SessionTest, public testing::WithParamInterface<std::size_t> {};

TEST_P(SessionStateTest, IsAskedForAndGivenBack) {
  serveOne();
  const auto session = open();
  ASSERT_TRUE(session->declare(withState()).ok());
  takeStep(*session, 0);
  expectTurn(*session, Turn::Kind::kSave, 1);
  std::string state(GetParam(), 'x');
  if (!state.empty()) state.back() = 'y';
  EXPECT_TRUE(absl::IsInvalidArgument(session->next().status()));
  EXPECT_TRUE(absl::IsInvalidArgument(session->state().status()));
  ASSERT_TRUE(session->save(std::as_bytes(std::span(state))).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(session->save({})));
  takeStep(*session, 1);
  EXPECT_TRUE(host_.state == state);
  takeStep(*session, 2);
  expectTurn(*session, Turn::Kind::kLoad, 3);
  const auto loaded = session->state();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(text(*loaded) == state);
  takeStep(*session, 3);
  EXPECT_TRUE(absl::IsInvalidArgument(session->state().status()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, SessionStateTest,
                         testing::Values(std::size_t{0}, std::size_t{1}, std::size_t{5} << 20));

TEST_F(SessionTest, WithoutADeclaredStateNobodyAsksForOne) {
  serveOne();
  const auto session = open();
  ASSERT_TRUE(session->declare(kModel).ok());
  for (std::int64_t step = 0; step < 5; ++step) takeStep(*session, step);
}

TEST_F(SessionTest, AProgramThatDiesAsItIsAskedIsGone) {
  serveOne();
  auto session = open();
  ASSERT_TRUE(session->declare(withState()).ok());
  takeStep(*session, 0);
  expectTurn(*session, Turn::Kind::kSave, 1);
  session.reset();
  EXPECT_TRUE(absl::IsUnavailable(ended()));
}

TEST_F(SessionTest, AProgramThatCannotSaveSaysWhy) {
  serveOne();
  const auto session = open();
  ASSERT_TRUE(session->declare(withState()).ok());
  takeStep(*session, 0);
  expectTurn(*session, Turn::Kind::kSave, 1);
  ASSERT_TRUE(session->abort("optimizer.py:3: no state").ok());
  EXPECT_EQ(ended(), absl::AbortedError("optimizer.py:3: no state"));
  EXPECT_EQ(host_.aborted, "optimizer.py:3: no state");
}

TEST_F(SessionTest, WhatIsNoStateEndsTheSession) {
  host_.save_at = 0;
  serveOne();
  auto channel = Channel::connect(path_);
  ASSERT_TRUE(channel.ok());
  ASSERT_TRUE(channel->send(Kind::kHello, encode(Hello{})).ok());
  ASSERT_TRUE(channel->receive(Kind::kWelcome, {}).ok());
  ASSERT_TRUE(channel->send(Kind::kDeclare, encode(withState())).ok());
  ASSERT_TRUE(channel->receive(Kind::kMemory, {}).ok());
  ASSERT_TRUE(channel->send(Kind::kNext, "").ok());
  ASSERT_TRUE(channel->receive(Kind::kTurn, {}).ok());
  // Its own socket is no memory.
  const MemoryPlace place{.pid = ::getpid(), .fd = channel->fd(), .bytes = 64};
  ASSERT_TRUE(channel->send(Kind::kSave, encodeSave(place)).ok());
  EXPECT_FALSE(channel->receive(Kind::kTurn, {}).ok());
  EXPECT_FALSE(ended().ok());
}

TEST_F(SessionTest, HangingUpAfterTheEndIsNoFailure) {
  host_.hits = 0;
  host_.failure = absl::OkStatus();
  serveOne();
  auto session = open();
  ASSERT_TRUE(session->declare(kModel).ok());
  for (int step = 0; step < 5; ++step) {
    ASSERT_EQ(session->next()->turn.kind, Turn::Kind::kTrain);
    ASSERT_TRUE(session->push(0).ok());
    ASSERT_TRUE(session->push(2).ok());
    ASSERT_TRUE(session->finish(1, 2).ok());
  }
  ASSERT_EQ(session->next()->turn.kind, Turn::Kind::kDone);
  session.reset();
  EXPECT_EQ(ended(), absl::OkStatus());
}

TEST_F(SessionTest, AProgramThatEndsInTheMiddleIsGone) {
  serveOne();
  auto session = open();
  ASSERT_TRUE(session->declare(kModel).ok());
  ASSERT_TRUE(session->next().ok());
  session.reset();
  EXPECT_TRUE(absl::IsUnavailable(ended()));
}

TEST_F(SessionTest, AProgramThatCannotGoOnSaysWhy) {
  serveOne();
  const auto session = open();
  ASSERT_TRUE(session->declare(kModel).ok());
  ASSERT_TRUE(session->next().ok());
  ASSERT_TRUE(session->abort("train.py:12: ValueError: no such file").ok());
  EXPECT_EQ(ended(), absl::AbortedError("train.py:12: ValueError: no such file"));
  EXPECT_EQ(host_.aborted, "train.py:12: ValueError: no such file");
}

TEST_F(SessionTest, AnotherModelIsRefusedByName) {
  serveOne();
  const auto session = open();
  Declaration other = kModel;
  other.variables[0].shape = {3};
  const Status refused = session->declare(other);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("variable 0: w float32 [3], here w float32 [2]"));
  EXPECT_EQ(ended(), refused);
}

TEST_F(SessionTest, WhatTheJobFailedWithIsTold) {
  host_.failure = absl::FailedPreconditionError("the job failed: a gradient is not finite");
  serveOne();
  const auto session = open();
  ASSERT_TRUE(session->declare(kModel).ok());
  EXPECT_EQ(session->next().status(), host_.failure);
  EXPECT_EQ(ended(), host_.failure);
}

TEST_F(SessionTest, AWrongCallIsToldAndTheSessionGoesOn) {
  serveOne();
  const auto session = open();
  EXPECT_TRUE(absl::IsInvalidArgument(session->next().status()));
  EXPECT_TRUE(absl::IsInvalidArgument(session->declare({})));
  ASSERT_TRUE(session->declare(kModel).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(session->push(0)));
  ASSERT_TRUE(session->next().ok());
  EXPECT_TRUE(absl::IsInvalidArgument(session->push(1)));
  EXPECT_TRUE(absl::IsInvalidArgument(session->finish(1, 2).status()));
  ASSERT_TRUE(session->push(0).ok());
  ASSERT_TRUE(session->push(2).ok());
  EXPECT_TRUE(session->finish(1, 2).ok());
}

TEST_F(SessionTest, TheMemberDoesNotTrustTheProgramsOrder) {
  serveOne();
  auto channel = Channel::connect(path_);
  ASSERT_TRUE(channel.ok());
  ASSERT_TRUE(channel->send(Kind::kHello, encode(Hello{})).ok());
  ASSERT_TRUE(channel->receive(Kind::kWelcome, {}).ok());
  ASSERT_TRUE(channel->send(Kind::kFinish, encode(Finish{1, 2})).ok());
  const Status refused = channel->receive(Kind::kOutcome, {}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_EQ(ended(), refused);
}

TEST_F(SessionTest, WhatIsNotOfThisProtocolEndsIt) {
  serveOne();
  const auto channel = Channel::connect(path_);
  ASSERT_TRUE(channel.ok());
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::write(channel->fd(), request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(absl::IsDataLoss(ended()));
}

TEST_F(SessionTest, AnotherVersionIsRefusedByBothEnds) {
  serveOne({.protocol = kProtocol + 1});
  const auto opened = ProgramSession::open(path_, "a test", {});
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status()));
  EXPECT_THAT(std::string(opened.status().message()),
              HasSubstr(fmt::format("the job's runtime version {}", kProtocol + 1)));
  EXPECT_TRUE(absl::IsUnavailable(ended()));
  serveOne();
  auto later = Channel::connect(path_);
  ASSERT_TRUE(later.ok());
  ASSERT_TRUE(later->send(Kind::kHello, encode(Hello{.protocol = kProtocol + 1})).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ended()));
}

TEST_F(SessionTest, NobodyThereIsSaidWithThePath) {
  const auto opened = ProgramSession::open(path_ + ".none", "a test", {});
  EXPECT_TRUE(absl::IsUnavailable(opened.status()));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr(path_ + ".none"));
}

// A host that answers nothing until it is let.
class SlowHost final : public SessionHost {
 public:
  StatusOr<MemoryPlace> declare(const Declaration&) override {
    while (!go) std::this_thread::yield();
    return absl::UnavailableError("let go");
  }
  StatusOr<TurnMessage> next(WaitingProgram&) override { return TurnMessage{}; }
  void push(std::uint32_t) override {}
  StatusOr<Outcome> finish(const Finish&) override { return Outcome{}; }
  StatusOr<Outcome> sum(const Finish&) override { return Outcome{}; }
  StatusOr<Outcome> commit() override { return Outcome{}; }
  void evaluated(const Score&) override {}
  void abort(std::string_view) override {}

  std::atomic<bool> go = false;
};

TEST_F(SessionTest, AWaitEndsWhenTheProgramIsInterrupted) {
  SlowHost slow;
  thread_ = std::thread([&] {
    auto channel = listener_->accept({});
    ASSERT_TRUE(channel.ok());
    end_ = serve(*channel, {.job = "slow"}, slow, {});
  });
  int asked = 0;
  const auto session = open([&] { return ++asked > 2; });
  EXPECT_TRUE(absl::IsCancelled(session->declare(kModel)));
  slow.go = true;
  EXPECT_TRUE(absl::IsUnavailable(ended()));
}

TEST_F(SessionTest, ATurnThatIsVoidShowsWithoutAMessage) {
  serveOne();
  const auto session = open();
  EXPECT_FALSE(session->interrupted());
  ASSERT_TRUE(session->declare(kModel).ok());
  EXPECT_FALSE(session->interrupted());
  host_.memory().setInterrupted(true);
  EXPECT_TRUE(session->interrupted());
  host_.memory().setInterrupted(false);
  EXPECT_FALSE(session->interrupted());
}

TEST(SessionMemoryTest, AnotherFileIsNotItsMemory) {
  const auto made = SessionMemory::create(kModel);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(SessionMemory::open(kModel, made->place()).ok());
  MemoryPlace place = made->place();
  place.bytes += 64;
  EXPECT_TRUE(absl::IsUnavailable(SessionMemory::open(kModel, place).status()));
  const auto other = SharedMemory::create("another", made->place().bytes);
  ASSERT_TRUE(other.ok());
  place = {.pid = ::getpid(), .fd = other->fd(), .bytes = made->place().bytes};
  EXPECT_TRUE(absl::IsUnavailable(SessionMemory::open(kModel, place).status()));
}

}  // namespace
}  // namespace trainyard::runtime::session
