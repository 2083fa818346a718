// The bounds that the paper proves, on streams of several shapes.
#include "runtime/rows/space_saving.h"

#include <algorithm>
#include <map>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::runtime::rows {
namespace {

using Stream = std::vector<std::uint64_t>;
using Counter = SpaceSaving::Counter;

constexpr std::size_t kCounters = 64;

// Ids 0, 1, ... of which the first come most often.
Stream skewed(std::uint64_t ids, std::size_t length) {
  Rng rng(1);
  Stream stream;
  for (std::size_t i = 0; i < length; ++i) stream.push_back(rng.below(1 + rng.below(ids)));
  return stream;
}

// All as often, and in turns: the worst case.
Stream even(std::uint64_t ids, std::size_t length) {
  Stream stream;
  for (std::size_t i = 0; i < length; ++i) stream.push_back(i % ids);
  return stream;
}

// Many that come once, and then one that is frequent.
Stream late(std::size_t length) {
  Stream stream;
  for (std::size_t i = 0; i < length; ++i) stream.push_back(i < length / 2 ? 1000 + i : 7);
  return stream;
}

std::map<std::uint64_t, std::uint64_t> truthOf(const Stream& stream) {
  std::map<std::uint64_t, std::uint64_t> truth;
  for (const std::uint64_t id : stream) ++truth[id];
  return truth;
}

// What the header says, of `counters` of so many observations.
void expectBounds(const std::vector<Counter>& counters, const Stream& stream) {
  auto truth = truthOf(stream);
  const std::uint64_t most_error = stream.size() / kCounters;
  EXPECT_LE(counters.size(), kCounters);
  std::map<std::uint64_t, Counter> by_id;
  for (const Counter& counter : counters) {
    EXPECT_TRUE(by_id.emplace(counter.id, counter).second) << counter.id << " twice";
    EXPECT_LE(truth[counter.id], counter.count) << counter.id;
    EXPECT_GE(truth[counter.id] + counter.error, counter.count) << counter.id;
    EXPECT_LE(counter.error, most_error);
  }
  for (const auto& [id, times] : truth) {
    if (times <= most_error) continue;
    EXPECT_TRUE(by_id.contains(id)) << id << " came " << times << " times";
  }
}

std::vector<Stream> streams() {
  return {skewed(2000, 20'000), even(1000, 20'000), even(kCounters + 1, 20'000), late(20'000),
          even(10, 5000)};
}

TEST(SpaceSaving, HasTheBoundsOfThePaper) {
  for (const Stream& stream : streams()) {
    SpaceSaving sketch(kCounters);
    for (const std::uint64_t id : stream) sketch.observe(id);
    const std::vector<Counter> counters(sketch.counters().begin(), sketch.counters().end());
    expectBounds(counters, stream);
    EXPECT_TRUE(std::ranges::is_sorted(counters, std::greater<>(), &Counter::count));
    std::uint64_t sum = 0;
    for (const Counter& counter : counters) sum += counter.count;
    EXPECT_EQ(sum, stream.size());
    EXPECT_EQ(sketch.observations(), stream.size());
  }
}

TEST(SpaceSaving, IsExactWhileEachIdHasACounter) {
  SpaceSaving sketch(kCounters);
  const Stream stream = skewed(kCounters, 5000);
  auto truth = truthOf(stream);
  for (const std::uint64_t id : stream) sketch.observe(id);
  for (const Counter& counter : sketch.counters()) {
    EXPECT_EQ(counter.count, truth[counter.id]);
    EXPECT_EQ(counter.error, 0);
  }
}

TEST(SpaceSaving, OneCounterIsAboutTheNewestId) {
  SpaceSaving sketch(1);
  for (const std::uint64_t id : {5, 6, 6, 9}) sketch.observe(id);
  ASSERT_EQ(sketch.counters().size(), 1U);
  EXPECT_EQ(sketch.counters()[0].id, 9U);
  EXPECT_EQ(sketch.counters()[0].count, 4U);
  EXPECT_EQ(sketch.counters()[0].error, 3U);
}

// As partitions deal ids to parts.
FrequentIds merged(const Stream& stream, std::size_t parts) {
  std::vector<SpaceSaving> sketches(parts, SpaceSaving(kCounters));
  for (const std::uint64_t id : stream) sketches[id % parts].observe(id);
  FrequentIds all(kCounters);
  for (const SpaceSaving& sketch : sketches) all.add(sketch);
  return all;
}

TEST(FrequentIds, OfPartsHaveTheBoundsOfTheWhole) {
  for (const Stream& stream : streams()) {
    for (const std::size_t parts : {1, 3, 16})
      expectBounds(merged(stream, parts).counters(), stream);
  }
}

TEST(FrequentIds, TheirShareIsNoMoreThanThatOfTheMostFrequent) {
  for (const Stream& stream : streams()) {
    std::vector<std::uint64_t> times;
    for (const auto& [id, count] : truthOf(stream)) times.push_back(count);
    std::ranges::sort(times, std::greater<>());
    times.resize(std::min(times.size(), kCounters));
    std::uint64_t most = 0;
    for (const std::uint64_t count : times) most += count;
    for (const std::size_t parts : {1, 3, 16}) {
      const double share = merged(stream, parts).share();
      EXPECT_LE(share, static_cast<double>(most) / static_cast<double>(stream.size()));
      EXPECT_GT(share, 0);
    }
  }
}

TEST(FrequentIds, AFewHotIdsAmongManyOthersAreSeen) {
  Rng rng(2);
  Stream stream;  // half of all goes to ten ids
  for (std::size_t i = 0; i < 100'000; ++i)
    stream.push_back(i % 2 == 0 ? rng.below(10) : 100 + rng.below(50'000));
  EXPECT_NEAR(merged(stream, 4).share(), 0.5, 0.01);
  EXPECT_EQ(merged(even(10, 5000), 4).share(), 1.0) << "each id has a counter";
  EXPECT_EQ(FrequentIds(kCounters).share(), 0.0);
}

}  // namespace
}  // namespace trainyard::runtime::rows
