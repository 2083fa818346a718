#include "runtime/client/letter_box.h"

#include <gmock/gmock.h>

#include <cstring>

#include "runtime/transport/transport.h"

namespace trainyard::runtime::client {
namespace {

class LetterBoxTest : public ::testing::Test {
 protected:
  std::shared_ptr<Work> post(std::vector<float>& into, int from, std::uint64_t tag,
                             TimePoint deadline = TimePoint::max()) {
    auto work = std::make_shared<Work>(monitor_);
    take(box_.post({collective::arrayOf(into), from, tag, deadline, work}));
    return work;
  }
  // A letter of these numbers comes from `from`.
  void comes(int from, std::uint64_t tag, const std::vector<float>& numbers) {
    Arrival arrival = box_.arriving(
        from, {ElementType::kFloat32, tag, static_cast<std::int64_t>(numbers.size())});
    std::memcpy(arrival.into, numbers.data(), numbers.size() * 4);
    take(box_.arrived(std::move(arrival)));
  }
  void take(const std::optional<Delivered>& delivered) {
    if (delivered) delivered->work->finish(delivered->status);
  }

  const std::shared_ptr<Monitor> monitor_ = std::make_shared<Monitor>();
  LetterBox box_;
  std::vector<float> a_ = {0, 0};
  std::vector<float> b_ = {0, 0};
};

TEST_F(LetterBoxTest, TheFirstThatFitsGetsTheLetter) {
  const auto other_tag = post(a_, 1, 7);
  const auto fits = post(b_, 1, 8);
  comes(1, 8, {1, 2});
  EXPECT_FALSE(other_tag->done());
  ASSERT_TRUE(fits->done());
  EXPECT_TRUE(fits->status().ok());
  EXPECT_EQ(b_, (std::vector<float>{1, 2}));
  EXPECT_EQ(fits->source(), 1);
}

TEST_F(LetterBoxTest, LettersOfOneTagKeepTheirOrder) {
  comes(2, 5, {1, 1});
  comes(2, 5, {2, 2});
  post(a_, 2, 5);
  post(b_, -1, 5);
  EXPECT_EQ(a_, (std::vector<float>{1, 1}));
  EXPECT_EQ(b_, (std::vector<float>{2, 2}));
}

TEST_F(LetterBoxTest, AReceiveFromAnyTellsWhose) {
  const auto any = post(a_, -1, 0);
  comes(3, 0, {4, 5});
  ASSERT_TRUE(any->done());
  EXPECT_EQ(any->source(), 3);
}

TEST_F(LetterBoxTest, OnePostedWhileTheBytesComeGetsThem) {
  Arrival arrival = box_.arriving(1, {ElementType::kFloat32, 0, 2});
  const auto work = post(a_, 1, 0);
  EXPECT_FALSE(work->done());
  const std::vector<float> numbers = {8, 9};
  std::memcpy(arrival.into, numbers.data(), 8);
  take(box_.arrived(std::move(arrival)));
  ASSERT_TRUE(work->done());
  EXPECT_EQ(a_, numbers);
}

TEST_F(LetterBoxTest, AnotherSizeIsRefusedAndTheNextComesThrough) {
  const auto wrong = post(a_, 1, 0);
  const auto right = post(b_, 1, 0);
  comes(1, 0, {1, 2, 3});
  comes(1, 0, {4, 5});
  ASSERT_TRUE(wrong->done());
  EXPECT_EQ(wrong->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(wrong->status().message()),
              ::testing::HasSubstr("receive of 2 float32 from rank 1: it has sent 3 float32"));
  ASSERT_TRUE(right->done());
  EXPECT_EQ(b_, (std::vector<float>{4, 5}));
  EXPECT_EQ(a_, (std::vector<float>{0, 0}));
}

TEST_F(LetterBoxTest, ALostRankFailsThoseThatWaitForItAlone) {
  const auto of_lost = post(a_, 1, 0);
  const auto of_any = post(b_, -1, 0);
  const Status why = absl::UnavailableError("rank 1 is lost");
  finishAll(box_.lose(1, why, false));
  EXPECT_TRUE(of_lost->done());
  EXPECT_FALSE(of_any->done());
  finishAll(box_.lose(2, why, true));
  EXPECT_TRUE(of_any->done());
}

TEST_F(LetterBoxTest, WhatIsLateFailsNamingTheRank) {
  const TimePoint start{std::chrono::hours(1)};
  const auto late = post(a_, 1, 3, start);
  EXPECT_EQ(box_.nextDeadline(), start);
  finishAll(box_.expire(start - std::chrono::seconds(1)));
  EXPECT_FALSE(late->done());
  finishAll(box_.expire(start));
  ASSERT_TRUE(late->done());
  EXPECT_EQ(late->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(transport::blamedRank(late->status()), 1);
}

TEST(Letter, IsReadBackAndDamageIsFound) {
  const Letter letter{ElementType::kInt8, 77, 1000};
  LetterBytes bytes = encodeLetter(letter);
  const auto read = decodeLetter(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->type, letter.type);
  EXPECT_EQ(read->tag, letter.tag);
  EXPECT_EQ(read->elements, letter.elements);
  for (const std::size_t at : {0, 4, 22, 30}) {
    LetterBytes damaged = bytes;
    damaged[at] = static_cast<std::byte>(0xEE);
    EXPECT_FALSE(decodeLetter(damaged).ok()) << at;
  }
}

}  // namespace
}  // namespace trainyard::runtime::client
