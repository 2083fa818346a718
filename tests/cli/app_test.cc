#include "cli/app.h"

#include <sstream>

#include "base/core/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;

struct Answer {
  int code;
  std::string out, err;
};

Answer run(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const Console console{out, err};
  const int code = runApp(arguments, console);
  return {code, out.str(), err.str()};
}

TEST(AppTest, UnknownVerbIsAnsweredWithTheNearest) {
  const Answer answer = run({"pln", "-f", "x"});
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_THAT(answer.err, HasSubstr("there is no command \"pln\"; did you mean \"plan\"?"));
  EXPECT_EQ(answer.out, "");
  EXPECT_EQ(run({"frobnicate"}).err.find("did you mean"), std::string::npos);
}

TEST(AppTest, HelpIsNoFailure) {
  const Answer answer = run({"--help"});
  EXPECT_EQ(answer.code, kExitOk);
  for (const char* verb : {"run", "get", "describe", "logs", "suspend", "resume", "delete", "plan",
                           "validate", "checkpoint", "version"}) {
    EXPECT_THAT(answer.out, HasSubstr(verb));
  }
  EXPECT_EQ(answer.out.find("launch "), std::string::npos) << "not for users";
  EXPECT_THAT(run({"run", "--help"}).out, HasSubstr("--volume"));
  EXPECT_EQ(run({}).code, kExitUsage);
}

TEST(AppTest, WrongFlagsAreUsage) {
  EXPECT_EQ(run({"run"}).code, kExitUsage);
  EXPECT_EQ(run({"run", "-f", "x", "--set", "noequals"}).code, kExitUsage);
  EXPECT_EQ(run({"version", "-o", "xml"}).code, kExitUsage);
  EXPECT_EQ(run({"--wrong"}).code, kExitUsage);
}

TEST(AppTest, Version) {
  EXPECT_THAT(run({"version"}).out, HasSubstr("trainyard 0."));
  const auto json = nlohmann::json::parse(run({"version", "-o", "json"}).out);
  EXPECT_FALSE(json["version"].get<std::string>().empty());
}

TEST(AppTest, AMissingFileIsNamed) {
  const Answer answer = run({"run", "-f", "nowhere/job.yaml"});
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_THAT(answer.err, HasSubstr("nowhere/job.yaml"));
  EXPECT_EQ(answer.out, "");
}

}  // namespace
}  // namespace trainyard::cli
