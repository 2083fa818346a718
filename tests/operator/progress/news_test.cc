#include "operator/progress/internal/news.h"

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "operator/progress/internal/pace.h"

namespace trainyard::control {

struct Change {
  std::string name;
  std::function<void(v1::TaskState*)> make;
  News news;
};

class NewsTest : public testing::TestWithParam<Change> {};

TEST_P(NewsTest, IsWhatAPlannerReads) {
  v1::TaskState known;
  known.set_created(1);
  known.set_start(1);
  known.mutable_report()->mutable_job()->set_step(7);
  v1::TaskState now = known;
  GetParam().make(&now);
  EXPECT_EQ(newsOf(known, now), GetParam().news);
}

v1::JobProgress* job(v1::TaskState* state) {
  return state->mutable_report()->mutable_job();
}

INSTANTIATE_TEST_SUITE_P(
    Changes, NewsTest,
    testing::Values(
        Change{"Nothing", [](auto*) {}, News::kNone},
        Change{"Traffic",
               [](auto* s) { s->mutable_report()->add_traffic()->set_received_bytes(9); },
               News::kNone},
        Change{"Phase", [](auto* s) { s->mutable_report()->set_phase("Training"); }, News::kNone},
        Change{"Revision", [](auto* s) { s->set_revision(3); }, News::kNone},
        Change{"Step", [](auto* s) { job(s)->set_step(8); }, News::kProgress},
        Change{"Loss", [](auto* s) { job(s)->set_loss(0.5); }, News::kProgress},
        Change{"NextCheckpoint", [](auto* s) { job(s)->set_checkpoint_step(5); }, News::kProgress},
        Change{"FirstCheckpoint", [](auto* s) { job(s)->set_has_checkpoint(true); }, News::kState},
        Change{"Outcome", [](auto* s) { job(s)->set_outcome("failed"); }, News::kState},
        Change{"Failure", [](auto* s) { job(s)->set_failure("why"); }, News::kState},
        Change{"Epoch", [](auto* s) { job(s)->set_epoch(2); }, News::kState},
        Change{"LostSteps", [](auto* s) { job(s)->set_lost_steps(1); }, News::kState},
        Change{"Start", [](auto* s) { s->set_start(2); }, News::kState},
        Change{"Life", [](auto* s) { s->set_created(2); }, News::kState},
        Change{"FirstWord", [](auto* s) { s->mutable_report()->mutable_told(); }, News::kState}),
    [](const auto& info) { return info.param.name; });

TEST(NewsTest, OfAProgramsOwnWordIsProgress) {
  v1::TaskState known;
  known.mutable_report()->mutable_told()->set_step(1);
  v1::TaskState now = known;
  now.mutable_report()->mutable_told()->set_step(2);
  EXPECT_EQ(newsOf(known, now), News::kProgress);
}

TEST(PaceTest, IsStretchedOverManyJobs) {
  const Duration second = std::chrono::seconds(1);
  EXPECT_EQ(stretched(second, 0, 250), second);
  EXPECT_EQ(stretched(second, 250, 250), second);
  EXPECT_EQ(stretched(second, 5000, 250), 20 * second);
  EXPECT_EQ(stretched(Duration{}, 100, 20), 5 * second);
}

TEST(PaceTest, HasAMomentForEachJob) {
  const Duration second = std::chrono::seconds(1);
  const TimePoint start{std::chrono::hours(1)};
  const std::size_t phase = 300'000'000;
  TimePoint at = ownMoment(start, second, phase);
  EXPECT_EQ(at, ownMoment(start + second / 10, second, phase)) << "whenever it was begun";
  for (int round = 0; round < 5; ++round) {
    const TimePoint next = ownMoment(at + second / 5, second, phase);
    EXPECT_EQ(next - at, second) << "however long it took";
    at = next;
  }
  for (int tenth = 0; tenth < 10; ++tenth) {
    const TimePoint began = start + tenth * second / 10;
    const Duration wait = ownMoment(began, second, phase) - began;
    EXPECT_GE(wait, second / 2);
    EXPECT_LE(wait, second * 3 / 2);
  }
  EXPECT_NE(ownMoment(start, second, 1), ownMoment(start, second, 2));
  EXPECT_EQ(ownMoment(start, Duration(0), 7), start);
}

}  // namespace trainyard::control
