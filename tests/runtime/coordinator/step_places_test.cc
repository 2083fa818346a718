#include "runtime/coordinator/step_places.h"

#include "gtest/gtest.h"

namespace trainyard::runtime {
namespace {

using Kind = StepPlaces::Answer::Kind;

StepPlan planOfFour(int backup_workers, std::int64_t first_step = 0) {
  StepPlan plan;
  plan.first_step = first_step;
  plan.step_samples = 8;
  plan.first_position = 8 * first_step;
  plan.steps = 100;
  plan.ranks = 4;
  plan.backup_workers = backup_workers;
  return plan;
}

TEST(StepPlaces, TheFirstGradientsGetThePlacesInTheOrderOfTheirQuestions) {
  StepPlaces places;
  places.startEpoch(planOfFour(1, 5));
  for (int place = 0; place < 3; ++place) {
    EXPECT_EQ(places.step(), 5);
    const auto answer = places.ask(5, true);
    ASSERT_EQ(answer.kind, Kind::kPlace);
    EXPECT_EQ(answer.place, place);
  }
  EXPECT_EQ(places.step(), 6);
  const auto late = places.ask(5, true);
  EXPECT_EQ(late.kind, Kind::kSkip);
  EXPECT_EQ(late.newest, 6);
  EXPECT_EQ(places.skipped(), 1);
  const auto next = places.ask(6, true);
  ASSERT_EQ(next.kind, Kind::kPlace);
  EXPECT_EQ(next.place, 0);
}

TEST(StepPlaces, WhoOnlyLooksForTheNewestVersionSkipsNothing) {
  StepPlaces places;
  places.startEpoch(planOfFour(1));
  const auto answer = places.ask(0, false);
  EXPECT_EQ(answer.kind, Kind::kSkip);
  EXPECT_EQ(answer.newest, 0);
  EXPECT_EQ(places.skipped(), 0);
  EXPECT_EQ(places.ask(0, true).place, 0);  // and takes no place
}

TEST(StepPlaces, AQuestionForAStepThatHasNotBegunWaits) {
  StepPlaces places;
  places.startEpoch(planOfFour(1));
  EXPECT_EQ(places.ask(1, true).kind, Kind::kWait);
  EXPECT_EQ(places.skipped(), 0);
}

TEST(StepPlaces, AfterFreezingNoStepBecomesComplete) {
  StepPlaces places;
  places.startEpoch(planOfFour(2));
  EXPECT_EQ(places.ask(0, true).kind, Kind::kPlace);
  places.freeze();
  EXPECT_EQ(places.ask(0, true).kind, Kind::kWait);
  EXPECT_EQ(places.step(), 0);
  // The next epoch gives the places of that step anew.
  places.startEpoch(planOfFour(2));
  EXPECT_EQ(places.ask(0, true).place, 0);
  EXPECT_EQ(places.ask(0, true).place, 1);
  EXPECT_EQ(places.step(), 1);
}

TEST(StepPlaces, AnEpochForgetsPlacesButNotWhatWasSkipped) {
  StepPlaces places;
  places.startEpoch(planOfFour(3));
  EXPECT_EQ(places.ask(0, true).kind, Kind::kPlace);
  EXPECT_EQ(places.ask(0, true).kind, Kind::kSkip);
  places.startEpoch(planOfFour(1, 1));
  EXPECT_EQ(places.step(), 1);
  EXPECT_EQ(places.ask(1, true).place, 0);
  EXPECT_EQ(places.skipped(), 1);
}

// Ten samples: a step of eight and one of two, in which two of four have a part.
TEST(StepPlaces, AShortLastStepTakesNoMoreThanHaveSamples) {
  StepPlan plan = planOfFour(1);
  plan.end_position = 10;
  plan.steps = 2;
  StepPlaces places;
  places.startEpoch(plan);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(places.ask(0, true).kind, Kind::kPlace);
  EXPECT_EQ(places.ask(1, true).kind, Kind::kPlace);
  EXPECT_EQ(places.step(), 1);
  EXPECT_EQ(places.ask(1, true).kind, Kind::kPlace);
  EXPECT_EQ(places.step(), 2);
}

}  // namespace
}  // namespace trainyard::runtime
