#include "agent/telling/telling.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::agent {
namespace {

using testing::HasSubstr;

std::string problemOf(const std::string& datagram) {
  return std::string(parseTelling(datagram).status().message());
}

TEST(Telling, TakesWhatItKnows) {
  const auto said = parseTelling(
      R"({"step": 7, "steps": 9.0, "examples": 448, "loss": -0.25, "accuracy": 0.5, "epoch": 1.5,
          "lr": [1, {"a": "b"}], "name": "mine"})");
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ(said->step, 7);
  EXPECT_EQ(said->steps, 9);
  EXPECT_EQ(said->examples, 448u);
  EXPECT_EQ(said->loss, -0.25);
  EXPECT_EQ(said->accuracy, 0.5);
  EXPECT_EQ(said->epoch, 1.5);
}

TEST(Telling, MayLeaveAnythingOut) {
  for (const char* text : {"{}", R"({"step": null, "loss": null})", R"({"other": "x"})"}) {
    const auto said = parseTelling(text);
    ASSERT_TRUE(said.ok()) << said.status();
    EXPECT_FALSE(said->step || said->examples || said->loss) << text;
  }
}

TEST(Telling, RefusesWhatIsDamaged) {
  for (const std::string text : {"", "junk", "{\"step\": 7", "[1]", "7", "\"step\"", "\xff{}"}) {
    EXPECT_EQ(problemOf(text), "no JSON object") << text;
  }
  EXPECT_EQ(problemOf("{\"x\": \"" + std::string(kMaxTellingBytes, 'x') + "\"}"),
            "more than 4096 bytes");
  EXPECT_EQ(problemOf(std::string(2000, '[')), "nested too deeply");
}

TEST(Telling, RefusesWhatIsNoSuchNumber) {
  EXPECT_EQ(problemOf(R"({"step": "7"})"), "step: is no number");
  EXPECT_EQ(problemOf(R"({"step": true})"), "step: is no number");
  EXPECT_EQ(problemOf(R"({"step": -1})"), "step: is below zero");
  EXPECT_EQ(problemOf(R"({"step": 1.5})"), "step: is no whole number");
  EXPECT_EQ(problemOf(R"({"examples": 1e300})"), "examples: is too large");
  EXPECT_EQ(problemOf(R"({"examples": 18446744073709551615})"), "examples: is too large");
  EXPECT_EQ(problemOf(R"({"accuracy": -0.5})"), "accuracy: is below zero");
  EXPECT_EQ(problemOf(R"({"epoch": []})"), "epoch: is no number");
  // What Python writes of numbers that are none is no JSON.
  EXPECT_EQ(problemOf(R"({"loss": NaN})"), "no JSON object");
  EXPECT_EQ(problemOf(R"({"loss": 1e999})"), "no JSON object");
}

}  // namespace
}  // namespace trainyard::agent
