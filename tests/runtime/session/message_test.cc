#include "runtime/session/message.h"

#include <gmock/gmock.h>

#include <functional>

#include "runtime/session/score.h"
#include "runtime/session/session_memory.h"

namespace trainyard::runtime::session {
namespace {

Declaration smallModel() {
  return {.samples = 60000,
          .eval_samples = 10000,
          .variables = {{"conv1.weight", {32, 1, 5, 5}},
                        {"bn.running_mean", {32}, ElementType::kFloat32, false},
                        {"scale", {}},
                        {"bn.num_batches_tracked", {}, ElementType::kInt64, false}}};
}

TurnMessage trainTurn() {
  TurnMessage message;
  message.turn = {.step = 7,
                  .epoch = 2,
                  .rank = 1,
                  .ranks = 3,
                  .first_position = 900,
                  .samples = 3,
                  .step_samples = 9};
  message.samples = {5, 59999, 0};
  return message;
}

const std::vector<SessionTable> kTables{{"user", 3}, {"item", 1, Combining::kSqrtN}};
constexpr float kRow[] = {1, 2, 3};
constexpr std::uint8_t kRowLabels[] = {1, 0, 1};

bool readsRow(std::string_view body) {
  std::vector<float> rows(std::size(kRow));
  return decodeRows(body, rows).ok();
}

// A body, and whether it can be read.
struct Body {
  const char* name;
  std::string bytes;
  std::function<bool(std::string_view)> readable;
};

std::vector<Body> bodies() {
  return {
      {"Hello", encode(Hello{.program = "python"}), [](auto b) { return decodeHello(b).ok(); }},
      {"Welcome",
       encode(Welcome{.job = "mnist", .index = 1, .seed = 7, .tables = {{"user", 3}, {"item", 1}}}),
       [](auto b) { return decodeWelcome(b).ok(); }},
      {"Declare", encode(smallModel()), [](auto b) { return decodeDeclaration(b).ok(); }},
      {"Memory", encode(MemoryPlace{.pid = 12, .fd = 3, .bytes = 4096}),
       [](auto b) { return decodeMemoryPlace(b).ok(); }},
      {"Turn", encode(trainTurn()), [](auto b) { return decodeTurn(b).ok(); }},
      {"Turn to load",
       encode(TurnMessage{.turn = {.kind = Turn::Kind::kLoad, .step = 7},
                          .samples = {},
                          .state = {.pid = 12, .fd = 3, .bytes = 4096}}),
       [](auto b) { return decodeTurn(b).ok(); }},
      {"Save", encodeSave({.pid = 12, .fd = 3, .bytes = 4096}),
       [](auto b) { return decodeSave(b).ok(); }},
      {"Push", encodePush(2), [](auto b) { return decodePush(b, 3).ok(); }},
      {"LookUp", encode(LookUp{1, {7, 9}}), [](auto b) { return decodeLookUp(b, kTables).ok(); }},
      {"Rows", encodeRows(kRow), [](auto b) { return readsRow(b); }},
      {"PushRows", encode(PushRows{0, {7}, {2}, {0.5F, 1, 2}}),
       [](auto b) { return decodePushRows(b, kTables).ok(); }},
      {"LookAhead", encode(LookAhead{30, 10, {{7, 9}, {}}}),
       [](auto b) { return decodeLookAhead(b, kTables.size()).ok(); }},
      {"Finish", encode(Finish{1.5, 32, 7}), [](auto b) { return decodeFinish(b).ok(); }},
      {"Outcome", encode(Outcome{.complete = true, .step = 7, .loss = 0.5, .gradient_norm = 2}),
       [](auto b) { return decodeOutcome(b).ok(); }},
      {"Evaluated", encode(Score{90, 100, 12.5}), [](auto b) { return decodeScore(b).ok(); }},
      {"Clicks", encode(*scoreOfClicks(kRow, kRowLabels)),
       [](auto b) { return decodeScore(b).ok(); }},
      {"Failed", encode(absl::NotFoundError("no such file")),
       [](auto b) { return absl::IsNotFound(decodeFailure(b)); }},
  };
}

TEST(SessionMessage, BodiesOfAnotherLengthAreRefused) {
  for (const Body& body : bodies()) {
    EXPECT_TRUE(body.readable(body.bytes)) << body.name;
    for (std::size_t length = 0; length < body.bytes.size(); ++length)
      EXPECT_FALSE(body.readable(std::string_view(body.bytes).substr(0, length)))
          << body.name << " " << length;
    EXPECT_FALSE(body.readable(body.bytes + '\0')) << body.name;
  }
}

TEST(SessionMessage, NoByteMakesTheReaderReadElsewhere) {
  for (const Body& body : bodies()) {
    for (std::size_t at = 0; at < body.bytes.size(); ++at) {
      for (const char value : {'\0', '\x7f', '\x80', '\xff'}) {
        std::string damaged = body.bytes;
        damaged[at] = value;
        body.readable(damaged);  // must end, within its bytes
      }
    }
  }
}

TEST(SessionMessage, ATurnArrivesAsItWas) {
  const auto got = decodeTurn(encode(trainTurn()));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->turn.kind, Turn::Kind::kTrain);
  EXPECT_EQ(got->turn.step, 7);
  EXPECT_EQ(got->turn.epoch, 2);
  EXPECT_EQ(got->turn.rank, 1);
  EXPECT_EQ(got->turn.ranks, 3);
  EXPECT_EQ(got->turn.first_position, 900);
  EXPECT_EQ(got->turn.step_samples, 9);
  EXPECT_THAT(got->samples, testing::ElementsAre(5, 59999, 0));
}

TEST(SessionMessage, AStateIsSomewhereOrEmpty) {
  EXPECT_EQ(decodeSave(encodeSave({}))->bytes, 0U);
  EXPECT_EQ(decodeSave(encodeSave({.pid = 12, .fd = 3, .bytes = 9}))->fd, 3);
  EXPECT_TRUE(absl::IsDataLoss(decodeSave(encodeSave({.pid = 0, .fd = 3, .bytes = 9})).status()));
  EXPECT_TRUE(absl::IsDataLoss(decodeSave(encodeSave({.pid = 1, .fd = -1, .bytes = 9})).status()));
  EXPECT_TRUE(absl::IsDataLoss(
      decodeSave(encodeSave({.pid = 1, .fd = 3, .bytes = kMostStateBytes + 1})).status()));
}

TEST(SessionMessage, ATurnNamesAsManySamplesAsItHas) {
  TurnMessage message = trainTurn();
  message.samples.pop_back();
  EXPECT_TRUE(absl::IsDataLoss(decodeTurn(encode(message)).status()));
}

TEST(SessionMessage, RowsArriveAsTheyWere) {
  const auto welcome = decodeWelcome(encode(Welcome{.tables = kTables}));
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  ASSERT_EQ(welcome->tables.size(), 2U);
  EXPECT_EQ(welcome->tables[1].name, "item");
  EXPECT_EQ(welcome->tables[0].dim, 3U);
  EXPECT_EQ(welcome->tables[1].combiner, Combining::kSqrtN);
  const auto push =
      decodePushRows(encode(PushRows{1, {7, 9, 7}, {2, 1, 1}, {0.5F, 1, 2}}), kTables);
  ASSERT_TRUE(push.ok()) << push.status();
  EXPECT_EQ(push->table, 1U);
  EXPECT_THAT(push->ids, testing::ElementsAre(7, 9, 7));
  EXPECT_THAT(push->counts, testing::ElementsAre(2, 1, 1));
  EXPECT_THAT(push->sums, testing::ElementsAre(0.5F, 1, 2));
  const auto ahead = decodeLookAhead(encode(LookAhead{30, 10, {{7, 9}, {}}}), 2);
  ASSERT_TRUE(ahead.ok()) << ahead.status();
  EXPECT_EQ(ahead->first, 30);
  EXPECT_EQ(ahead->count, 10);
  EXPECT_THAT(ahead->ids[0], testing::ElementsAre(7, 9));
  EXPECT_THAT(ahead->ids[1], testing::IsEmpty());
}

TEST(SessionMessage, RowsThatNoProgramCanMeanAreRefused) {
  EXPECT_FALSE(decodeLookUp(encode(LookUp{2, {7}}), kTables).ok()) << "there are two tables";
  EXPECT_FALSE(decodePushRows(encode(PushRows{0, {7}, {1}, {1, 2}}), kTables).ok());
  EXPECT_FALSE(decodePushRows(encode(PushRows{0, {7}, {}, {1, 2, 3}}), kTables).ok());
  EXPECT_FALSE(decodeLookAhead(encode(LookAhead{-1, 10, {{}, {}}}), 2).ok());
  EXPECT_FALSE(decodeLookAhead(encode(LookAhead{0, 0, {{}, {}}}), 2).ok());
  EXPECT_FALSE(decodeWelcome(encode(Welcome{.tables = {{"", 3}}})).ok());
  EXPECT_FALSE(decodeWelcome(encode(Welcome{.tables = {{"user", 0}}})).ok());
}

TEST(SessionMessage, AnOutcomeArrivesAsItWas) {
  const auto with =
      decodeOutcome(encode(Outcome{.complete = true, .step = 7, .loss = 0.5, .gradient_norm = 2}));
  ASSERT_TRUE(with.ok());
  EXPECT_TRUE(with->complete);
  EXPECT_FALSE(with->too_late);
  EXPECT_EQ(with->step, 7);
  EXPECT_EQ(with->loss, 0.5);
  EXPECT_EQ(with->gradient_norm, 2);
  const auto without = decodeOutcome(encode(Outcome{.too_late = true, .step = 8}));
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE(without->complete);
  EXPECT_TRUE(without->too_late);
  EXPECT_EQ(without->gradient_norm, std::nullopt);
}

TEST(SessionMessage, AFailureKeepsItsCodeAndText) {
  EXPECT_EQ(decodeFailure(encode(absl::FailedPreconditionError("the job failed: NaN"))),
            absl::FailedPreconditionError("the job failed: NaN"));
  EXPECT_TRUE(absl::IsDataLoss(decodeFailure(encode(absl::OkStatus()))));
}

TEST(SessionMessage, AnotherProtocolIsKnownByItsNumberAlone) {
  const auto hello = decodeHello(encode(Hello{.protocol = 9, .program = "later"}) + "more");
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(hello->protocol, 9U);
  EXPECT_EQ(decodeWelcome(encode(Welcome{.protocol = 9}))->protocol, 9U);
}

TEST(SessionMessage, WhatNoProgramCanMeanIsRefused) {
  struct Row {
    const char* name;
    std::function<void(Declaration&)> change;
  };
  const Row rows[] = {
      {"no samples", [](auto& d) { d.samples = 0; }},
      {"fewer than no samples to evaluate", [](auto& d) { d.eval_samples = -1; }},
      {"no variables", [](auto& d) { d.variables.clear(); }},
      {"no name", [](auto& d) { d.variables[0].name.clear(); }},
      {"an empty side", [](auto& d) { d.variables[0].shape[1] = 0; }},
      {"a negative side", [](auto& d) { d.variables[0].shape[1] = -3; }},
      {"more elements than there can be",
       [](auto& d) {
         d.variables[0].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
       }},
      {"too many sides", [](auto& d) { d.variables[0].shape.assign(17, 1); }},
      {"no such type", [](auto& d) { d.variables[0].type = static_cast<ElementType>(9); }},
  };
  for (const Row& row : rows) {
    Declaration declaration = smallModel();
    row.change(declaration);
    EXPECT_TRUE(absl::IsDataLoss(decodeDeclaration(encode(declaration)).status())) << row.name;
  }
}

TEST(SessionDeclaration, ArrivesAsItWasAndHasADigest) {
  const Declaration model = smallModel();
  const auto got = decodeDeclaration(encode(model));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, model);
  EXPECT_EQ(digestOf(*got), digestOf(model));
  Declaration other = model;
  other.variables[0].shape = {16, 2, 5, 5};
  EXPECT_NE(digestOf(other), digestOf(model));
  other = model;
  other.own_update = true;
  EXPECT_NE(digestOf(other), digestOf(model));
  EXPECT_EQ(*decodeDeclaration(encode(other)), other);
  const std::string own_update = digestOf(other);
  other.has_state = true;
  EXPECT_NE(digestOf(other), own_update);
  EXPECT_EQ(*decodeDeclaration(encode(other)), other);
}

TEST(SessionDeclaration, TellsWhereAnotherDiffers) {
  const Declaration here = smallModel();
  EXPECT_EQ(difference(here, here), "");
  Declaration other = here;
  other.variables[0].shape[0] = 16;
  EXPECT_EQ(difference(other, here),
            "variable 0: conv1.weight float32 [16, 1, 5, 5], here conv1.weight float32 [32, 1, 5, "
            "5]");
  other = here;
  other.variables[1].trainable = true;
  EXPECT_EQ(difference(other, here),
            "variable 1: bn.running_mean float32 [32], here bn.running_mean float32 [32], not "
            "trained");
  other = here;
  other.variables.pop_back();
  EXPECT_EQ(difference(other, here),
            "variable 3: none, here bn.num_batches_tracked int64 [], not trained");
  other.has_state = true;
  EXPECT_EQ(difference(other, here), "state of the program's own, here none");
  EXPECT_EQ(difference(here, other), "no state of the program's own, here there is");
  other.own_update = true;
  EXPECT_EQ(difference(other, here), "an update of the program's own, here the job makes it");
  EXPECT_EQ(difference(here, other), "an update that the job makes, here the program's own");
  other.eval_samples = 5;
  EXPECT_EQ(difference(other, here), "5 samples to evaluate, here 10000");
  other.samples = 5;
  EXPECT_EQ(difference(other, here), "5 samples, here 60000");
}

TEST(SessionLayout, ArraysBeginAtCacheLinesAndDoNotOverlap) {
  const auto layout = layoutOf(smallModel());
  ASSERT_TRUE(layout.ok());
  // Label, 3200 bytes twice, 128, 4 twice, 8.
  EXPECT_THAT(layout->values,
              testing::ElementsAre(64, 64 + 6400, 64 + 6400 + 128, 64 + 6400 + 128 + 128));
  EXPECT_THAT(layout->gradients, testing::ElementsAre(64 + 3200, 0, 64 + 6400 + 128 + 64, 0));
  EXPECT_EQ(layout->bytes, 64U + 6400 + 128 + 128 + 64);
}

TEST(SessionLayout, AModelLargerThanAnyMachineIsRefused) {
  Declaration model = smallModel();
  model.variables.assign(300, {"w", {std::int64_t{1} << 40}});
  EXPECT_TRUE(absl::IsResourceExhausted(layoutOf(model).status()));
}

}  // namespace
}  // namespace trainyard::runtime::session
