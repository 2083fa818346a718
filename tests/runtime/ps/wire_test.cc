#include "runtime/ps/wire.h"

#include <cstring>

#include "gmock/gmock.h"
#include "runtime/tensor/reduce.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

constexpr std::size_t kCount = 5001;  // more than a block

Weights thirds(std::size_t n) {
  Weights values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = (static_cast<float>(i) - 100.0f) / 3.0f;
  return values;
}

Weights roundedTo(ElementType type, Weights values) {
  roundFloats(type, values);
  return values;
}

Weights widened(ElementType type, const lanes::BodyPiece& piece) {
  Weights values(piece.bytes.size() / sizeOf(type));
  widenFloats(type, reinterpret_cast<std::byte*>(values.data()), piece.bytes.data(),
              static_cast<std::int64_t>(values.size()));
  return values;
}

class WireTest : public testing::TestWithParam<ElementType> {
 protected:
  const ElementType type = GetParam();
  const std::shared_ptr<Weights> values = std::make_shared<Weights>(thirds(kCount));
  BodyPool pool;
};
INSTANTIATE_TEST_SUITE_P(Types, WireTest,
                         testing::Values(ElementType::kFloat16, ElementType::kBFloat16),
                         [](const auto& param) { return std::string(nameOf(param.param)); });

// The same numbers, whether they went over the wire or lie in shared memory.
TEST_P(WireTest, AGradientIsReadAsWhatItWasRoundedTo) {
  const auto body = wireBody(type, {{*values, values}}, pool);
  ASSERT_EQ(body.size(), 1u);
  EXPECT_EQ(bytesOf(body), 2 * kCount);
  const auto received = receivedPayload(type, body[0].bytes, body[0].owner);
  const auto shared = sharedPayload(type, std::as_bytes(std::span<const float>(*values)), values);
  EXPECT_EQ(received->sizeBytes(), 2 * kCount);
  EXPECT_EQ(received->elementBytes(), 2u);
  EXPECT_EQ(shared->sizeBytes(), 4 * kCount);
  EXPECT_EQ(shared->elementBytes(), 4u);
  const Weights want = roundedTo(type, *values);
  EXPECT_NE(want, *values);
  for (const GradientPayload* payload : {received.get(), shared.get()}) {
    Weights out(kCount);
    payload->copyTo(out, 0);
    EXPECT_EQ(out, want);
    payload->addTo(out, 0);
    EXPECT_THAT(out, Pointwise(testing::Truly([](const auto& pair) {
                                 return std::get<0>(pair) == 2 * std::get<1>(pair);
                               }),
                               want));
    Weights part(10, 1.0f);
    payload->addTo(part, kCount - 10);
    EXPECT_EQ(part[9], 1.0f + want[kCount - 1]);
    payload->copyTo(part, 3);
    EXPECT_EQ(part[9], want[12]);
  }
}

TEST_P(WireTest, PiecesFollowEachOtherInOneBody) {
  const std::span<const float> all(*values);
  const auto body = wireBody(type, {{all.first(3), values}, {all.subspan(7, 2), values}}, pool);
  ASSERT_EQ(body.size(), 1u);
  const Weights want = roundedTo(type, *values);
  EXPECT_THAT(widened(type, body[0]), ElementsAre(want[0], want[1], want[2], want[7], want[8]));
  EXPECT_EQ(values.use_count(), 1) << "what was rounded is held no longer";
  EXPECT_TRUE(wireBody(type, {}, pool).empty()) << "a pull";
}

TEST_P(WireTest, WeightsOfSeveralWorkersAreRoundedOnce) {
  WeightsBodies bodies(type, pool);
  const auto first = bodies.of(values);
  const auto again = bodies.of(values);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(again[0].bytes.data(), first[0].bytes.data());
  EXPECT_EQ(widened(type, first[0]), roundedTo(type, *values));
  const auto others = std::make_shared<const Weights>(kCount, 5.0f);
  EXPECT_EQ(widened(type, bodies.of(others)[0]), *others);
  EXPECT_EQ(widened(type, first[0]), roundedTo(type, *values)) << "still on its way";
}

// The server writes the next version into weights that nobody holds.
TEST_P(WireTest, WeightsThatWereForgottenMayBeWritten) {
  WeightsBodies bodies(type, pool);
  const auto before = bodies.of(values);
  EXPECT_EQ(values.use_count(), 2) << "so that nobody writes them";
  bodies.forget();
  EXPECT_EQ(values.use_count(), 1);
  values->assign(kCount, 5.0f);
  EXPECT_EQ(widened(type, bodies.of(values)[0]), *values);
}

TEST(Wire, Of32BitsLeavesFromWhereItLies) {
  BodyPool pool;
  const auto values = std::make_shared<Weights>(thirds(4));
  const std::span<const float> all(*values);
  const auto body =
      wireBody(ElementType::kFloat32, {{all.first(3), values}, {all.last(1), values}}, pool);
  ASSERT_EQ(body.size(), 2u);
  EXPECT_EQ(body[1].bytes.data(), std::as_bytes(all.last(1)).data());
  EXPECT_EQ(bytesOf(body), 16u);
  for (auto* make : {receivedPayload, sharedPayload}) {
    Weights out(4);
    make(ElementType::kFloat32, std::as_bytes(all), values)->copyTo(out, 0);
    EXPECT_EQ(out, *values);
  }
}

}  // namespace
}  // namespace trainyard::runtime::ps
