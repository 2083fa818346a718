// What a user's program tells its agent.
#include <cmath>

#include "agent/telling/telling.h"
#include "base/core/check.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {

void runTelling(std::string_view input) {
  const auto said = agent::parseTelling(input);
  if (!said.ok()) {
    TY_CHECK(absl::IsInvalidArgument(said.status()), "what is wrong is told so");
    return;
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  TY_CHECK(input.size() <= agent::kMaxTellingBytes, "it is short");
  for (const auto& count : {said->step, said->steps}) {
    TY_CHECK(!count || (*count >= 0 && *count < kMost), "a count is one");
  }
  TY_CHECK(!said->examples || *said->examples < std::uint64_t{kMost}, "a count is one");
  for (const auto& amount : {said->accuracy, said->epoch}) {
    TY_CHECK(!amount || (std::isfinite(*amount) && *amount >= 0), "an amount is one");
  }
  TY_CHECK(!said->loss || std::isfinite(*said->loss), "a loss is a number");
}

std::vector<std::string> tellingSeeds() {
  std::vector<std::string> seeds;
  for (const char* const text :
       {"", "{", "[]", "{}",
        R"({"step":7,"steps":9.0,"examples":448,"loss":-0.25,"accuracy":0.5,)"
        R"("epoch":1.5,"lr":[1,{"a":"b"}]})",
        R"({"step":-1})", R"({"step":1.5})", R"({"step":"7"})", R"({"step":null})",
        R"({"examples":18446744073709551615})", R"({"examples":9007199254740991})",
        R"({"loss":1e999})", R"({"loss":-1e308,"accuracy":-0.0})"}) {
    seeds.emplace_back(text);
  }
  return seeds;
}

}  // namespace trainyard::fuzz
