#include "base/flags/usage.h"

#include <sstream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct Answer {
  int code = -1;
  std::string out, err;
};

Answer answer(std::vector<std::string> words) {
  CLI::App app("about", "program");
  app.require_subcommand(1);
  CLI::App* move = app.add_subcommand("move", "moves");
  int speed = 0;
  move->add_option("--speed", speed)->required()->check(wholeNumber(1, 9));
  CLI::App* group = app.add_subcommand("group", "of commands");
  group->require_subcommand(1);
  group->add_subcommand("one", "first");
  group->add_subcommand("two", "second");
  std::reverse(words.begin(), words.end());
  std::ostringstream out, err;
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const int code = answerParseError(app, error, out, err);
    return {code, out.str(), err.str()};
  }
  return {kExitOk, "", ""};
}

TEST(AnswerParseError, IsOneLineWithTheCommand) {
  const Answer missing = answer({"move"});
  EXPECT_EQ(missing.code, kExitUsage);
  EXPECT_EQ(missing.err, "program move: --speed is required (see program move --help)\n");
  EXPECT_EQ(answer({"move", "--speed", "3", "--frob"}).err,
            "program move: The following argument was not expected: --frob (see program move "
            "--help)\n");
}

TEST(AnswerParseError, NamesTheCommandsThereAre) {
  EXPECT_EQ(answer({}).err, "program: a command is missing: move, group (see program --help)\n");
  EXPECT_EQ(answer({"group"}).err,
            "program group: a command is missing: one, two (see program group --help)\n");
  EXPECT_EQ(answer({"group", "three", "x"}).err,
            "program group: there is no command \"three\"; there are one, two (see program group "
            "--help)\n");
}

TEST(AnswerParseError, ShowsNoControlCharacters) {
  EXPECT_THAT(answer({"move", "--speed", "3", "--a\n\x1b[2J"}).err, HasSubstr("--a\\n\\x1b[2J"));
}

TEST(AnswerParseError, HelpIsNoFailure) {
  const Answer help = answer({"move", "--help"});
  EXPECT_EQ(help.code, kExitOk);
  EXPECT_THAT(help.out, HasSubstr("--speed"));
  EXPECT_THAT(help.err, IsEmpty());
}

TEST(WholeNumber, NamesTheRange) {
  for (const char* wrong : {"0", "10", "-1", "x", "3.5", "99999999999999999999", ""}) {
    const Answer refused = answer({"move", "--speed", wrong});
    EXPECT_EQ(refused.code, kExitUsage) << wrong;
    EXPECT_THAT(refused.err, HasSubstr("--speed")) << wrong;
  }
  EXPECT_THAT(answer({"move", "--speed", "10"}).err,
              HasSubstr("--speed: expected a whole number from 1 to 9, got \"10\""));
  EXPECT_EQ(answer({"move", "--speed", "9"}).code, kExitOk);
}

}  // namespace
}  // namespace trainyard
