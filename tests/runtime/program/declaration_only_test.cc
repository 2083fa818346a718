// Programs that are run until they have declared a model: a shell that hangs, ends, or never comes.
#include "runtime/program/declaration_only.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

using ::testing::HasSubstr;

class DeclarationOnlyTest : public testing::Test {
 protected:
  StatusOr<session::Declaration> ask(const std::string& script, Duration limit) {
    auto program = ProgramProcess::start(
        {.argv = {"/bin/sh", "-c", script}, .env = {"PATH=/usr/bin:/bin"}, .working_dir = ""},
        dir_.path().string());
    if (!program.ok()) return program.status();
    StatusOr<session::Declaration> declared = declarationOf(**program, {.job = "j"}, limit);
    EXPECT_TRUE((*program)->ended());
    return declared;
  }

  TempDir dir_;
};

TEST_F(DeclarationOnlyTest, OfAProgramThatEndsItIsToldHow) {
  const auto ended = ask("exit 7", std::chrono::seconds(60));
  EXPECT_TRUE(absl::IsUnavailable(ended.status()));
  EXPECT_THAT(std::string(ended.status().message()),
              HasSubstr("ended before it opened a session: exit code 7"));
}

TEST_F(DeclarationOnlyTest, OneThatDeclaresNothingIsEnded) {
  const auto late = ask("exec sleep 600", std::chrono::milliseconds(200));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
}

TEST_F(DeclarationOnlyTest, TheSocketIsToldToTheProgramWhereverItCanBe) {
  const auto told =
      ask("case $TRAINYARD_SESSION in /*session.sock) exit 8;; esac", std::chrono::seconds(60));
  EXPECT_THAT(std::string(told.status().message()), HasSubstr("exit code 8"));
}

TEST_F(DeclarationOnlyTest, OneThatCannotBeStartedIsNamed) {
  const auto absent = ProgramProcess::start(
      {.argv = {"/absent/program"}, .env = {}, .working_dir = ""}, dir_.path().string());
  EXPECT_THAT(std::string(absent.status().message()), HasSubstr("/absent/program"));
}

}  // namespace
}  // namespace trainyard::runtime
