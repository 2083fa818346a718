// The C interface of sessions, with a job in this process behind it.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <thread>

#include "runtime/client/trainyard.h"
#include "tests/runtime/session/parabola_host.h"

namespace trainyard::runtime::session {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTwo[] = {2};
constexpr std::int64_t kThree[] = {3};
// What kModel declares.
constexpr ty_variable kVariables[] = {{"w", kTwo, 1, TY_FLOAT32, 1},
                                      {"mean", kThree, 1, TY_FLOAT32, 0},
                                      {"b", nullptr, 0, TY_FLOAT32, 1}};
constexpr ty_model kGiven{sizeof(ty_model), 100, 10, kVariables, 3, 0, 0};

class Sessions : public ::testing::Test {
 protected:
  Sessions() : path_(::testing::TempDir() + "c-session-" + std::to_string(::getpid()) + ".sock") {
    auto listener = ChannelListener::open(path_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    member_ = std::thread([this, listener = *std::move(listener)]() mutable {
      auto channel = listener.accept({});
      const Welcome welcome{
          .job = "parabola", .index = 3, .tables = {{"user", 2}, {"item", 2, Combining::kSum}}};
      if (channel.ok()) end_ = serve(*channel, welcome, host_, {});
    });
    EXPECT_EQ(ty_session_open(path_.c_str(), "a test", &session_), TY_OK) << ty_error();
    turn_.bytes = sizeof turn_;
    outcome_.bytes = sizeof outcome_;
  }
  ~Sessions() override {
    ty_session_free(session_);
    if (member_.joinable()) member_.join();
  }
  void declare() { ASSERT_EQ(ty_session_declare(session_, &kGiven), TY_OK) << ty_error(); }
  ty_code next() { return ty_session_next(session_, &turn_); }
  // Half of what is there is the gradient.
  ty_code push(std::size_t variable, std::size_t elements) {
    const auto* const value = static_cast<const float*>(ty_session_value(session_, variable));
    float* const gradient = ty_session_gradient(session_, variable);
    for (std::size_t i = 0; i < elements; ++i) gradient[i] = value[i];
    return ty_session_push(session_, variable);
  }

  const std::string path_;
  ParabolaHost host_{2};
  Status end_;
  std::thread member_;
  ty_session* session_ = nullptr;
  ty_turn turn_{};
  ty_outcome outcome_{};
};

TEST_F(Sessions, TrainEvaluateAndEnd) {
  EXPECT_STREQ(ty_session_job(session_), "parabola");
  EXPECT_EQ(ty_session_index(session_), 3);
  declare();
  auto* const w = static_cast<float*>(ty_session_value(session_, 0));
  auto* const b = static_cast<float*>(ty_session_value(session_, 2));
  w[0] = 8, w[1] = -4, b[0] = 2;
  for (std::int64_t step = 0; step < 2; ++step) {
    ASSERT_EQ(next(), TY_OK) << ty_error();
    EXPECT_EQ(turn_.kind, TY_TRAIN);
    EXPECT_EQ(turn_.step, step);
    ASSERT_EQ(turn_.samples, 2);
    EXPECT_EQ(turn_.sample_numbers[1], 2 * step + 1);
    ASSERT_EQ(push(2, 1), TY_OK);
    ASSERT_EQ(push(0, 2), TY_OK);
    if (step == 0) {
      EXPECT_EQ(ty_session_count_hits(session_, 3), TY_INVALID);
      EXPECT_THAT(ty_error(), testing::HasSubstr("3 hits of 2 samples"));
      ASSERT_EQ(ty_session_count_hits(session_, 1), TY_OK) << ty_error();
    }
    ASSERT_EQ(ty_session_finish(session_, 3, 2, &outcome_), TY_OK) << ty_error();
    EXPECT_EQ(outcome_.complete, 1);
    EXPECT_EQ(outcome_.step, step);
    EXPECT_EQ(outcome_.loss, 1.5);
    EXPECT_EQ(outcome_.gradient_norm, -1);
  }
  EXPECT_EQ(w[0], 2);
  EXPECT_EQ(w[1], -1);
  EXPECT_EQ(b[0], 0.5);
  ASSERT_EQ(next(), TY_OK);
  EXPECT_EQ(turn_.kind, TY_EVALUATE);
  EXPECT_EQ(turn_.sample_numbers, nullptr);
  const float logits[] = {-1, 2, 1};
  const std::uint8_t labels[] = {0, 1, 0}, wrong[] = {0, 7, 0};
  std::int64_t hits = 0;
  double loss_sum = 0;
  EXPECT_EQ(ty_session_score_clicks(session_, logits, wrong, 3, &hits, &loss_sum), TY_INVALID);
  EXPECT_THAT(ty_error(), testing::HasSubstr("label 7 of sample 1"));
  EXPECT_EQ(ty_session_score_clicks(session_, logits, nullptr, 3, &hits, &loss_sum), TY_INVALID);
  EXPECT_EQ(ty_session_score_clicks(session_, nullptr, nullptr, 0, &hits, &loss_sum), TY_OK);
  ASSERT_EQ(ty_session_score_clicks(session_, logits, labels, 3, &hits, &loss_sum), TY_OK);
  EXPECT_EQ(hits, 2);
  EXPECT_NEAR(loss_sum, 1.75345, 1e-4);
  EXPECT_EQ(ty_session_evaluated(session_, 2, 2, 1), TY_INVALID) << "fewer than were scored";
  ASSERT_EQ(ty_session_evaluated(session_, 7, 10, 1), TY_OK);
  EXPECT_EQ(ty_session_score_clicks(session_, logits, labels, 3, &hits, &loss_sum), TY_INVALID);
  ASSERT_EQ(next(), TY_OK);
  EXPECT_EQ(turn_.kind, TY_DONE);
  EXPECT_THAT(host_.counted, testing::ElementsAre(1, -1));
  EXPECT_EQ(host_.hits, 7);
  EXPECT_EQ(host_.auc, 1);
  ty_session_free(std::exchange(session_, nullptr));
  member_.join();
  EXPECT_EQ(end_, absl::OkStatus());
}

TEST_F(Sessions, RowsOfTables) {
  ASSERT_EQ(ty_session_tables(session_), 2U);
  ty_table table{sizeof(ty_table), nullptr, 0, 0};
  ASSERT_EQ(ty_session_table(session_, 1, &table), TY_OK) << ty_error();
  EXPECT_STREQ(table.name, "item");
  EXPECT_EQ(table.dim, 2);
  EXPECT_EQ(table.combiner, TY_SUM_ROWS);
  EXPECT_EQ(ty_session_table(session_, 2, &table), TY_INVALID);
  declare();
  const std::uint64_t ids[] = {3, 5};
  std::array<float, 4> rows{};
  EXPECT_EQ(ty_session_rows(session_, 1, ids, 2, rows.data()), TY_INVALID) << "outside of a turn";
  ASSERT_EQ(next(), TY_OK);
  ASSERT_EQ(ty_session_rows(session_, 1, ids, 2, rows.data()), TY_OK) << ty_error();
  EXPECT_EQ(rows, (std::array<float, 4>{9, 1, 25, 1}));
  ASSERT_EQ(ty_session_rows(session_, 0, nullptr, 0, nullptr), TY_OK) << ty_error();
  EXPECT_EQ(ty_session_rows(session_, 2, ids, 2, rows.data()), TY_INVALID);
  EXPECT_EQ(ty_session_rows(session_, 1, nullptr, 2, rows.data()), TY_INVALID);
  const std::uint32_t counts[] = {1, 7};
  ASSERT_EQ(ty_session_push_rows(session_, 0, ids, counts, 2, rows.data()), TY_OK) << ty_error();
  ASSERT_EQ(ty_session_push_rows(session_, 1, ids, nullptr, 1, rows.data()), TY_OK) << ty_error();
  EXPECT_EQ(ty_session_push_rows(session_, 1, ids, nullptr, 1, nullptr), TY_INVALID);
  const std::uint64_t* const ahead[] = {ids, nullptr};
  const std::size_t ahead_counts[] = {2, 0};
  ASSERT_EQ(ty_session_look_ahead(session_, 2, 2, ahead, ahead_counts), TY_OK) << ty_error();
  EXPECT_EQ(ty_session_look_ahead(session_, 2, 0, ahead, ahead_counts), TY_INVALID);
  const std::size_t of_nothing[] = {2, 1};
  EXPECT_EQ(ty_session_look_ahead(session_, 2, 2, ahead, of_nothing), TY_INVALID);
  ASSERT_EQ(push(2, 1), TY_OK);
  ASSERT_EQ(push(0, 2), TY_OK);
  ASSERT_EQ(ty_session_finish(session_, 3, 2, &outcome_), TY_OK) << ty_error();
  ASSERT_EQ(host_.squares.pushed.size(), 2U);
  EXPECT_THAT(host_.squares.pushed[0].counts, testing::ElementsAre(1, 7));
  EXPECT_THAT(host_.squares.pushed[1].counts, testing::ElementsAre(1));
  EXPECT_THAT(host_.squares.pushed[1].sums, testing::ElementsAre(9, 1));
  ASSERT_EQ(host_.squares.ahead.size(), 1U);
  EXPECT_THAT(host_.squares.ahead[0].ids[0], testing::ElementsAre(3, 5));
}

TEST_F(Sessions, WrongArgumentsAreToldAndItGoesOn) {
  ty_model model = kGiven;
  model.bytes = 1;
  EXPECT_EQ(ty_session_declare(session_, &model), TY_INVALID);
  EXPECT_EQ(ty_session_declare(session_, nullptr), TY_INVALID);
  model = kGiven;
  model.samples = 0;
  EXPECT_EQ(ty_session_declare(session_, &model), TY_INVALID);
  const ty_variable whole{"count", nullptr, 0, TY_INT64, 1};
  model = {sizeof(ty_model), 100, 0, &whole, 1, 0, 0};
  EXPECT_EQ(ty_session_declare(session_, &model), TY_INVALID);
  EXPECT_THAT(ty_error(), HasSubstr("count is int64; what is trained is float32"));
  const ty_variable nameless{nullptr, nullptr, 0, TY_FLOAT32, 1};
  model.variables = &nameless;
  EXPECT_EQ(ty_session_declare(session_, &model), TY_INVALID);
  EXPECT_EQ(next(), TY_INVALID);
  EXPECT_EQ(ty_session_value(session_, 0), nullptr);

  declare();
  EXPECT_EQ(ty_session_value(session_, 3), nullptr);
  EXPECT_EQ(ty_session_gradient(session_, 1), nullptr);
  turn_.bytes = 1;
  EXPECT_EQ(next(), TY_INVALID);
  turn_.bytes = sizeof turn_;
  EXPECT_EQ(ty_session_push(session_, 0), TY_INVALID);
  ASSERT_EQ(next(), TY_OK) << ty_error();
  EXPECT_EQ(ty_session_push(session_, std::size_t{1} << 40), TY_INVALID);
  EXPECT_EQ(ty_session_finish(session_, 1, 2, &outcome_), TY_INVALID);
  EXPECT_THAT(ty_error(), HasSubstr("variable 0 has no gradient"));
  EXPECT_EQ(ty_session_finish(session_, 1, -1, &outcome_), TY_INVALID);
  ASSERT_EQ(push(0, 2), TY_OK);
  EXPECT_EQ(push(0, 2), TY_INVALID);
  ASSERT_EQ(push(2, 1), TY_OK);
  EXPECT_EQ(ty_session_finish(session_, 1, 2, &outcome_), TY_OK) << ty_error();
  EXPECT_EQ(ty_session_evaluated(session_, 8, 7, 0), TY_INVALID);
}

TEST_F(Sessions, AProgramMakesTheUpdateItself) {
  ty_model model = kGiven;
  model.own_update = 1;
  ASSERT_EQ(ty_session_declare(session_, &model), TY_OK) << ty_error();
  auto* const w = static_cast<float*>(ty_session_value(session_, 0));
  w[0] = 8, w[1] = -4;
  ASSERT_EQ(next(), TY_OK) << ty_error();
  EXPECT_EQ(ty_session_commit(session_, &outcome_), TY_INVALID);
  EXPECT_THAT(ty_error(), HasSubstr("no step is summed"));
  ASSERT_EQ(push(0, 2), TY_OK);
  EXPECT_EQ(ty_session_sum(session_, 3, 2, &outcome_), TY_INVALID);
  EXPECT_THAT(ty_error(), HasSubstr("variable 2 has no gradient"));
  ASSERT_EQ(push(2, 1), TY_OK);
  EXPECT_EQ(ty_session_finish(session_, 3, 2, &outcome_), TY_INVALID);
  EXPECT_EQ(ty_session_sum(session_, 3, -1, &outcome_), TY_INVALID);
  EXPECT_EQ(ty_session_sum(session_, 3, 2, nullptr), TY_INVALID);
  ASSERT_EQ(ty_session_count_hits(session_, 2), TY_OK) << ty_error();
  ASSERT_EQ(ty_session_sum(session_, 3, 2, &outcome_), TY_OK) << ty_error();
  EXPECT_EQ(outcome_.complete, 1);
  EXPECT_EQ(outcome_.loss, 1.5);
  EXPECT_EQ(ty_session_gradient(session_, 0)[0], 4);  // the mean
  EXPECT_EQ(ty_session_count_hits(session_, 2), TY_INVALID) << "the step is summed";
  EXPECT_EQ(next(), TY_INVALID);
  EXPECT_THAT(ty_error(), HasSubstr("must be committed"));
  w[0] = 1;
  outcome_ = {};
  EXPECT_EQ(ty_session_commit(session_, &outcome_), TY_INVALID);
  outcome_.bytes = sizeof outcome_;
  ASSERT_EQ(ty_session_commit(session_, &outcome_), TY_OK) << ty_error();
  EXPECT_EQ(outcome_.complete, 1);
  ASSERT_EQ(next(), TY_OK) << ty_error();
  EXPECT_THAT(host_.counted, testing::ElementsAre(2));
  EXPECT_EQ(turn_.step, 1);
  EXPECT_EQ(w[0], 1);
}

TEST_F(Sessions, StateIsAskedForAndGivenBack) {
  ty_model model = kGiven;
  model.has_state = 1;
  host_.load_at = 1;
  ASSERT_EQ(ty_session_declare(session_, &model), TY_OK) << ty_error();
  ASSERT_EQ(next(), TY_OK) << ty_error();
  ASSERT_EQ(turn_.kind, TY_TRAIN);
  EXPECT_EQ(ty_session_save(session_, "abc", 3), TY_INVALID);
  ASSERT_EQ(push(0, 2), TY_OK);
  ASSERT_EQ(push(2, 1), TY_OK);
  ASSERT_EQ(ty_session_finish(session_, 3, 2, &outcome_), TY_OK) << ty_error();
  ASSERT_EQ(next(), TY_OK) << ty_error();
  ASSERT_EQ(turn_.kind, TY_SAVE);
  EXPECT_EQ(turn_.step, 1);
  const void* data = nullptr;
  std::size_t bytes = 0;
  EXPECT_EQ(ty_session_state(session_, &data, &bytes), TY_INVALID);
  EXPECT_EQ(ty_session_save(session_, nullptr, 3), TY_INVALID);
  ASSERT_EQ(ty_session_save(session_, "abc", 3), TY_OK) << ty_error();
  ASSERT_EQ(next(), TY_OK) << ty_error();
  ASSERT_EQ(turn_.kind, TY_LOAD);
  EXPECT_EQ(ty_session_state(session_, nullptr, &bytes), TY_INVALID);
  ASSERT_EQ(ty_session_state(session_, &data, &bytes), TY_OK) << ty_error();
  ASSERT_EQ(bytes, 3U);
  EXPECT_EQ(std::string(static_cast<const char*>(data), bytes), "abc");
  ASSERT_EQ(next(), TY_OK) << ty_error();
  EXPECT_EQ(turn_.kind, TY_TRAIN);
  EXPECT_EQ(host_.state, "abc");
}

// It has brought no word of an update of its own, whatever lies behind what it has.
TEST_F(Sessions, ACallerOfAnEarlierVersionHasNoUpdateOfItsOwn) {
  ty_model model = kGiven;
  model.bytes = offsetof(ty_model, own_update);
  model.own_update = 1;
  ASSERT_EQ(ty_session_declare(session_, &model), TY_OK) << ty_error();
  ASSERT_EQ(next(), TY_OK) << ty_error();
  ASSERT_EQ(push(0, 2), TY_OK);
  ASSERT_EQ(push(2, 1), TY_OK);
  EXPECT_EQ(ty_session_sum(session_, 3, 2, &outcome_), TY_INVALID);
  EXPECT_EQ(ty_session_finish(session_, 3, 2, &outcome_), TY_OK) << ty_error();
}

TEST_F(Sessions, AnotherModelIsRefused) {
  ty_model model = kGiven;
  model.count = 2;
  EXPECT_EQ(ty_session_declare(session_, &model), TY_REFUSED);
  EXPECT_THAT(ty_error(), HasSubstr("variable 2: none, here "));
}

TEST_F(Sessions, WhatTheJobFailedWithHasACodeOfItsOwn) {
  host_.failure = absl::FailedPreconditionError("the loss is nan");
  declare();
  EXPECT_EQ(next(), TY_JOB_FAILED);
  EXPECT_STREQ(ty_error(), "the loss is nan");
  EXPECT_EQ(next(), TY_UNREACHABLE);
}

TEST_F(Sessions, AProgramSaysWhyItCannotGoOn) {
  declare();
  ASSERT_EQ(ty_session_abort(session_, "train.py:12: ValueError"), TY_OK);
  member_.join();
  EXPECT_EQ(host_.aborted, "train.py:12: ValueError");
}

TEST_F(Sessions, AForkedChildIsNotItsParent) {
  declare();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool dead = next() == TY_DEAD && ty_session_value(session_, 0) == nullptr &&
                      ty_session_index(session_) == -1;
    ty_session_free(session_);
    // Longer than its parent.
    ::execlp("sleep", "sleep", dead ? "30" : "0", nullptr);
    ::_exit(1);
  }
  ASSERT_EQ(next(), TY_OK) << ty_error();
  // The child does not keep the session open.
  ty_session_free(std::exchange(session_, nullptr));
  member_.join();
  EXPECT_TRUE(absl::IsUnavailable(end_)) << end_;
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WNOHANG), 0) << "the handle was alive in the child";
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
}

TEST(SessionsWithoutAJob, SayWhereTheyLooked) {
  ty_session* session = nullptr;
  EXPECT_EQ(ty_session_open(nullptr, "a test", &session), TY_INVALID);
  EXPECT_EQ(ty_session_open("/nobody/there.sock", "a test", &session), TY_UNREACHABLE);
  EXPECT_THAT(ty_error(), HasSubstr("/nobody/there.sock"));
}

}  // namespace
}  // namespace trainyard::runtime::session
