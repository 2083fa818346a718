#include "runtime/ps/payload.h"

#include <cstring>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"

namespace trainyard::runtime::ps {
namespace {

TEST(HeldPayload, IsCopiedAndAddedFromWhereItLies) {
  auto values = std::make_shared<std::vector<float>>(1000);
  std::iota(values->begin(), values->end(), 0.5f);
  {
    const HeldPayload payload(std::as_bytes(std::span<const float>(*values)), values);
    EXPECT_EQ(payload.sizeBytes(), 4000u);
    EXPECT_EQ(values.use_count(), 2);
    std::vector<float> out(1000, -1.0f);
    payload.copyTo(out, 0);
    EXPECT_EQ(out, *values);
    payload.addTo(out, 0);
    EXPECT_EQ(out[999], 2 * (*values)[999]);
    std::vector<float> part(10);
    payload.copyTo(part, 990);
    EXPECT_EQ(part[9], (*values)[999]);
    payload.addTo(part, 0);
    EXPECT_EQ(part[9], (*values)[999] + (*values)[9]);
  }
  EXPECT_EQ(values.use_count(), 1);
}

TEST(BodyPool, GivesMemoryThatCameBackAgain) {
  BodyPool pool;
  std::byte* first = nullptr;
  {
    const auto body = pool.take(64);
    first = body.get();
    EXPECT_NE(pool.take(64).get(), first) << "it is still held";
  }
  const auto again = pool.take(64);
  const auto other = pool.take(64);
  EXPECT_TRUE(again.get() == first || other.get() == first);
  EXPECT_NE(again.get(), other.get());
}

TEST(BodyPool, ShorterBodiesFitLongerMemoryButNotTheOtherWayRound) {
  BodyPool pool;
  std::byte* const first = pool.take(64).get();
  EXPECT_EQ(pool.take(16).get(), first);
  const auto longer = pool.take(128);
  std::memset(longer.get(), 1, 128);
  // As long as it was made, whatever was asked for since.
  EXPECT_EQ(pool.take(64).get(), first);
}

TEST(BodyPool, WhatWasGivenOutOutlivesIt) {
  auto pool = std::make_unique<BodyPool>();
  auto body = pool->take(64);
  pool.reset();
  std::memset(body.get(), 7, 64);
  std::thread([held = std::move(body)]() mutable { held.reset(); }).join();
}

}  // namespace
}  // namespace trainyard::runtime::ps
