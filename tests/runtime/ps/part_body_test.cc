// A part of the tables as bytes of a lane, and back; and bytes that are no part.
#include "runtime/ps/part_body.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rows/row_pushes.h"
#include "tests/runtime/rows/replica_tables.h"

namespace trainyard::runtime::ps {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t kMostNumber = std::numeric_limits<std::uint32_t>::max();

// Two tables, the second without rows, and what is counted of ids without one.
std::vector<TableRows> someStores() {
  return {{.table = 0,
           .first = 64,
           .sizes = {1, 0, 2},
           .ids = {5, 7, ~std::uint64_t{0}},
           .steps = {8, 9, 3},
           .counts = {1, 2, ~std::uint32_t{0}},
           .weights = {1, 2, 3, 4, 5, 6},
           .slots = {{7, 8, 9, 10, 11, 12}, {13, 14, 15, 16, 17, -0.0F}}},
          {.table = 1,
           .first = 64,
           .sizes = {0, 0, 0},
           .ids = {},
           .steps = {},
           .counts = {},
           .weights = {},
           .slots = {{}}},
          {.table = 2,
           .first = 64,
           .sizes = {0, 2, 0},
           .ids = {3, 4},
           .steps = {9, 9},
           .counts = {1, 2},
           .weights = {},
           .slots = {}}};
}

std::vector<rows::RowGradients> someGradients(float first) {
  return {rows::RowGradients{{5, 9}, {1, 4}, {first, 2, 3, 4}}, rows::RowGradients{}};
}

std::shared_ptr<const rows::PartUpdate> someUpdate() {
  rows::PartUpdate update;
  update.point = 9;
  update.step = 10;
  update.push = {.worker = 3,
                 .created = 4'000'000'000,
                 .start = 5,
                 .number = std::int64_t{1} << 40,
                 .ticket = 7,
                 .first = std::int64_t{1} << 50,
                 .samples = 9};
  update.gradients = someGradients(0.1F);
  return std::make_shared<const rows::PartUpdate>(std::move(update));
}

// Of mode Sync: rows of the former version, and the step.
rows::GivenPart steppedPart() {
  rows::GivenPart part;
  part.point = part.version = 9;
  part.stores = someStores();
  part.update = someUpdate();
  return part;
}

// Of the modes without common steps.
rows::GivenPart pushedPart() {
  rows::GivenPart part;
  part.point = 20;
  part.version = 9;
  part.stores = someStores();
  part.applied = {{0, 1, 2, 3}, {4, 4'000'000'000, 1, std::int64_t{1} << 40}};
  part.tickets.add(0, 5);
  part.tickets.add(7);
  part.samples.add(100, 200);
  part.brought = {someGradients(1), {{}, {}}, someGradients(-1)};
  part.brought_samples = 12;
  return part;
}

// As a lane carries it.
struct PartWire {
  std::string header;
  std::vector<std::byte> body;
  std::uint32_t recordBytes() const {
    v1::FetchChunkReply reply;
    EXPECT_TRUE(reply.ParseFromString(header));
    return reply.record_bytes();
  }
};

PartWire wireOf(const ChunkFrame& frame) {
  PartWire wire{frame.header, {}};
  for (const lanes::BodyPiece& piece : frame.body)
    wire.body.insert(wire.body.end(), piece.bytes.begin(), piece.bytes.end());
  return wire;
}

StatusOr<rows::GivenPart> arrival(const PartWire& wire) {
  TY_ASSIGN_OR_RETURN(ArrivingPart arriving, ArrivingPart::make(wire.header, wire.body.size()));
  std::size_t at = 0;
  for (const std::span<std::byte> span : arriving.body()) {
    std::copy_n(wire.body.begin() + static_cast<std::ptrdiff_t>(at), span.size(), span.begin());
    at += span.size();
  }
  EXPECT_EQ(at, wire.body.size());
  return std::move(arriving).take();
}

// With its record changed, and all that is behind it as it was.
PartWire withRecord(PartWire wire, const std::function<void(v1::PartRecord&)>& change) {
  const auto length = static_cast<std::ptrdiff_t>(wire.recordBytes());
  v1::PartRecord record;
  EXPECT_TRUE(record.ParseFromArray(wire.body.data(), static_cast<int>(length)));
  change(record);
  const std::string changed = record.SerializeAsString();
  const auto bytes = std::as_bytes(std::span(changed));
  wire.body.erase(wire.body.begin(), wire.body.begin() + length);
  wire.body.insert(wire.body.begin(), bytes.begin(), bytes.end());
  v1::FetchChunkReply reply;
  reply.set_part(true);
  reply.set_record_bytes(static_cast<std::uint32_t>(changed.size()));
  wire.header = reply.SerializeAsString();
  return wire;
}

TEST(PartBody, ArrivesAsItLeft) {
  rows::GivenPart rows_alone = steppedPart();
  rows_alone.update = nullptr;
  rows::GivenPart update_alone = steppedPart();
  update_alone.stores.clear();
  rows::GivenPart nothing;
  nothing.point = nothing.version = 9;
  rows::GivenPart empty = steppedPart();  // no row in any table, and a step without gradients
  for (TableRows& rows : empty.stores)
    rows = {rows.table, 0, {0, 0}, {}, {}, {}, {}, std::vector<std::vector<float>>(2)};
  auto without = std::make_shared<rows::PartUpdate>(*someUpdate());
  without->gradients = {{}, {}};
  empty.update = without;
  for (const rows::GivenPart& part :
       {steppedPart(), pushedPart(), rows_alone, update_alone, nothing, empty, rows::GivenPart{}}) {
    const std::string bits = rows::bitsOf(part);
    const auto arrived = arrival(wireOf(frameOf(part)));
    ASSERT_TRUE(arrived.ok()) << arrived.status();
    EXPECT_TRUE(rows::bitsOf(*arrived) == bits) << bits;
    EXPECT_EQ(arrived->update == nullptr, part.update == nullptr);
  }
}

// With many tables, to who knows nothing and to who lacks the newest push.
TEST(PartBody, IsTakenOverAsItWasGiven) {
  const rows::ManyTables tables;
  Rng random(1);
  const auto make = [&] {
    return std::make_unique<rows::RowPushes>(tables.configs, rows::ManyTables::kRange, 3);
  };
  const auto part = make();
  const auto follows = make();
  for (std::int64_t i = 0; i < 20; ++i) {
    const rows::RowRequest::Push push{
        .worker = 1, .number = i + 1, .ticket = i, .first = i, .samples = 1};
    ASSERT_TRUE(part->takeAsReplica(std::make_shared<const rows::PartUpdate>(
        rows::PartUpdate{i, i / 3, push, tables.gradients(random)})));
    const auto fresh = make();
    auto all = arrival(wireOf(frameOf(part->give(-1))));
    auto newest = arrival(wireOf(frameOf(part->give(i))));
    ASSERT_TRUE(all.ok() && newest.ok()) << all.status() << newest.status();
    EXPECT_TRUE(newest->stores.empty());
    ASSERT_TRUE(fresh->takeOver(*std::move(all)).ok());
    ASSERT_TRUE(follows->takeOver(*std::move(newest)).ok());
    for (const rows::RowPushes* taken : {fresh.get(), follows.get()})
      EXPECT_TRUE(rows::bitsOf(taken->give(-1)) == rows::bitsOf(part->give(-1))) << i;
  }
}

TEST(PartBody, LeavesFromWhereItLies) {
  rows::GivenPart part = steppedPart();
  const void* ids = part.stores[0].ids.data();
  const void* weights = part.stores[0].weights.data();
  const std::weak_ptr<const rows::PartUpdate> update = part.update;
  ChunkFrame frame = frameOf(std::move(part));
  EXPECT_EQ(static_cast<const void*>(frame.body[1].bytes.data()), ids);
  EXPECT_EQ(static_cast<const void*>(frame.body[4].bytes.data()), weights);
  frame.body.clear();
  EXPECT_TRUE(update.expired()) << "kept until the last piece has left, and no longer";
}

TEST(PartBody, AHeaderMayBeShortHoweverLongTheRecord) {
  rows::GivenPart part = pushedPart();
  part.applied.resize(10'000);
  for (std::int64_t i = 0; i < 10'000; ++i) part.tickets.add(10 * i);
  const ChunkFrame frame = frameOf(part);
  EXPECT_LT(frame.header.size(), 64U);
  const auto arrived = arrival(wireOf(frame));
  ASSERT_TRUE(arrived.ok()) << arrived.status();
  EXPECT_EQ(arrived->applied.size(), 10'000U);
  EXPECT_EQ(arrived->tickets, part.tickets);
}

TEST(PartBody, IsNeitherShorterNorLongerThanItsRecordSays) {
  for (const rows::GivenPart& part : {steppedPart(), pushedPart(), rows::GivenPart{}}) {
    PartWire wire = wireOf(frameOf(part));
    wire.body.push_back({});
    EXPECT_TRUE(absl::IsDataLoss(arrival(wire).status())) << arrival(wire).status();
    wire.body.pop_back();
    ASSERT_TRUE(arrival(wire).ok());
    while (!wire.body.empty()) {
      wire.body.pop_back();
      EXPECT_FALSE(arrival(wire).ok()) << wire.body.size();
    }
  }
}

// Of numbers that only the record claims no memory is taken, and no sum of them overflows.
TEST(PartBody, ARecordThatLiesOfItsStoresIsRefused) {
  const PartWire wire = wireOf(frameOf(steppedPart()));
  const auto is_refused = [&](const std::function<void(v1::PartRecord&)>& change) {
    return !arrival(withRecord(wire, change)).ok();
  };
  EXPECT_FALSE(is_refused([](v1::PartRecord&) {}));
  constexpr std::int64_t kQuarter = std::int64_t{1} << 62;
  const std::vector<std::vector<std::int64_t>> all_sizes = {
      {1, 0, 3},      {1, 0, 1},        {},
      {-1, 2, 2},     {-kHuge - 1},     {kHuge},
      {kHuge, 5},     {kHuge, kHuge},   {kQuarter, kQuarter, kQuarter, kQuarter, 3},
      {1LL << 40, 0}, {(1LL << 32) + 3}};
  for (const std::vector<std::int64_t>& sizes : all_sizes) {
    EXPECT_TRUE(is_refused([&](v1::PartRecord& r) {
      r.mutable_stores(0)->mutable_sizes()->Assign(sizes.begin(), sizes.end());
    })) << testing::PrintToString(sizes);
  }
  for (const std::uint32_t dim : {0U, 1U, 3U, 1U << 16, 1U << 30, kMostNumber})
    EXPECT_TRUE(is_refused([&](v1::PartRecord& r) { r.mutable_stores(0)->set_dim(dim); })) << dim;
  for (const std::uint32_t slots : {0U, 1U, 3U, 4U, 5U, kMostNumber})
    EXPECT_TRUE(is_refused([&](v1::PartRecord& r) { r.mutable_stores(0)->set_slots(slots); }));
  EXPECT_TRUE(is_refused([](v1::PartRecord& r) { r.mutable_stores()->RemoveLast(); }));
  EXPECT_TRUE(is_refused([](v1::PartRecord& r) { *r.add_stores() = v1::PartStore(r.stores(0)); }));
}

TEST(PartBody, ARecordThatLiesOfItsPushesIsRefused) {
  const PartWire stepped = wireOf(frameOf(steppedPart()));
  const PartWire pushed = wireOf(frameOf(pushedPart()));
  const auto first = [](v1::PartPush& p) { return p.mutable_header()->mutable_tables(0); };
  const std::vector<std::function<void(v1::PartPush&)>> lies = {
      [](v1::PartPush& p) { p.set_dims(0, 3); },
      [](v1::PartPush& p) { p.set_dims(0, 0); },
      [](v1::PartPush& p) { p.set_dims(0, kMostNumber); },
      [](v1::PartPush& p) { p.add_dims(1); },
      [](v1::PartPush& p) { p.clear_dims(); },
      [&](v1::PartPush& p) { first(p)->set_brought(1); },
      [&](v1::PartPush& p) { first(p)->set_brought(kMostNumber); },
      [&](v1::PartPush& p) {
        first(p)->set_brought(kMostNumber);
        p.set_dims(0, kMostNumber);
      },
      [&](v1::PartPush& p) {  // 2^30 rows of 12 + 4 (2^32 - 3) bytes: 2^64
        first(p)->set_brought(1U << 30);
        p.set_dims(0, kMostNumber - 2);
      },
      [&](v1::PartPush& p) { first(p)->set_wanted(1); },
      [&](v1::PartPush& p) { first(p)->set_wanted(kMostNumber); },
      [](v1::PartPush& p) { p.mutable_header()->mutable_tables()->RemoveLast(); },
      [](v1::PartPush& p) { p.mutable_header()->add_tables()->set_brought(1); },
      [](v1::PartPush& p) { p.mutable_header()->set_samples(0); },
      [](v1::PartPush& p) { p.mutable_header()->set_pull_only(true); },
      [](v1::PartPush& p) { p.clear_header(); },
  };
  for (std::size_t i = 0; i < lies.size(); ++i) {
    EXPECT_FALSE(
        arrival(withRecord(stepped, [&](v1::PartRecord& r) { lies[i](*r.mutable_update()); })).ok())
        << i;
    EXPECT_FALSE(
        arrival(withRecord(pushed, [&](v1::PartRecord& r) { lies[i](*r.mutable_brought(0)); }))
            .ok())
        << i;
  }
  EXPECT_FALSE(arrival(withRecord(stepped, [](v1::PartRecord& r) { r.clear_update(); })).ok());
  EXPECT_FALSE(arrival(withRecord(pushed, [](v1::PartRecord& r) { r.clear_brought(); })).ok());
}

TEST(PartBody, WhatIsNoPartIsRefused) {
  const auto refusal = [](const v1::FetchChunkReply& reply, std::uint64_t bytes) {
    return ArrivingPart::make(reply.SerializeAsString(), bytes).status();
  };
  EXPECT_TRUE(absl::IsDataLoss(ArrivingPart::make("\xff", 0).status()));
  v1::FetchChunkReply reply;
  EXPECT_THAT(refusal(reply, 0).ToString(), HasSubstr("cannot be read")) << "a chunk";
  reply.set_part(true);
  EXPECT_TRUE(refusal(reply, 0).ok());
  reply.set_record_bytes(8);
  EXPECT_THAT(refusal(reply, 7).ToString(), HasSubstr("7 bytes of a part, 8 of its record"));
  reply.set_record_bytes(kMostNumber);
  EXPECT_TRUE(absl::IsDataLoss(refusal(reply, 1000)));

  reply.set_record_bytes(3);
  PartWire garbage{reply.SerializeAsString(), std::vector<std::byte>(3, std::byte{0xff})};
  EXPECT_TRUE(absl::IsDataLoss(arrival(garbage).status()));
  EXPECT_THAT(arrival(garbage).status().ToString(), HasSubstr("cannot be read"));
}

// Whatever comes is read or refused, and no byte beyond it is looked at.
TEST(PartBody, DamagedBytesAreReadOrRefused) {
  Rng random(1);
  int refused = 0;
  for (const PartWire& whole : {wireOf(frameOf(steppedPart())), wireOf(frameOf(pushedPart()))}) {
    for (int i = 0; i < 5000; ++i) {
      PartWire wire = whole;
      for (std::uint64_t n = 0; n <= random.below(4); ++n) {
        // Most of all in the record.
        const std::uint64_t end = random.below(4) == 0 ? wire.body.size() : wire.recordBytes();
        wire.body[random.below(end)] = static_cast<std::byte>(random.below(256));
      }
      if (random.below(4) == 0) wire.body.resize(random.below(wire.body.size()) + 1);
      refused += !arrival(wire).ok();
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace trainyard::runtime::ps
