#include "base/core/failpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/core/clock.h"
#include "base/core/strings.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

class FailpointTest : public testing::Test {
 protected:
  ~FailpointTest() override { EXPECT_TRUE(configureFailpoints("", "").ok()); }
  static Status configure(std::string_view config) {
    return configureFailpoints(config, "worker-1", "2.3");
  }
};

TEST_F(FailpointTest, ActsAtItsPlaceAndNumbersOnly) {
  ASSERT_TRUE(configure("a=nan@5-7;b=error").ok());
  EXPECT_EQ(hitFailpoint("a", 4), FailAction::kNone);
  EXPECT_EQ(hitFailpoint("a", 5), FailAction::kNan);
  EXPECT_EQ(hitFailpoint("a", 7), FailAction::kNan);
  EXPECT_EQ(hitFailpoint("a", 8), FailAction::kNone);
  EXPECT_EQ(hitFailpoint("b", 1000), FailAction::kError);
  EXPECT_EQ(hitFailpoint("c", 5), FailAction::kNone);
}

TEST_F(FailpointTest, IsMeantForATaskALifeAndANumberOfTimes) {
  ASSERT_TRUE(configure("task=nan,task=worker-1;other=nan,task=worker-2;life=nan,life=2.3;"
                        "first=nan,life=1.1;both=nan,task=worker-2,life=2.3;twice=nan,times=2")
                  .ok());
  EXPECT_EQ(hitFailpoint("task"), FailAction::kNan);
  EXPECT_EQ(hitFailpoint("other"), FailAction::kNone);
  EXPECT_EQ(hitFailpoint("life"), FailAction::kNan);
  EXPECT_EQ(hitFailpoint("first"), FailAction::kNone);
  EXPECT_EQ(hitFailpoint("both"), FailAction::kNone);
  EXPECT_EQ(hitFailpoint("twice"), FailAction::kNan);
  EXPECT_EQ(hitFailpoint("twice"), FailAction::kNan);
  EXPECT_EQ(hitFailpoint("twice"), FailAction::kNone);
}

TEST_F(FailpointTest, ActsAsLongAsAFileExists) {
  TempDir dir;
  const std::string file = (dir.path() / "there").string();
  ASSERT_TRUE(configure(("place=nan,while=" + file).c_str()).ok());
  EXPECT_EQ(hitFailpoint("place"), FailAction::kNone);
  std::ofstream(file).close();
  EXPECT_EQ(hitFailpoint("place"), FailAction::kNan);
  std::filesystem::remove(file);
  EXPECT_EQ(hitFailpoint("place"), FailAction::kNone);
}

// Whoever removes it lets go on who has come there.
TEST_F(FailpointTest, ADelayEndsWithItsFile) {
  TempDir dir;
  const std::string file = (dir.path() / "there").string();
  std::ofstream(file).close();
  ASSERT_TRUE(configure(("place=delay(600000),while=" + file).c_str()).ok());
  std::atomic<bool> passed = false;
  std::jthread held([&] {
    (void)hitFailpoint("place");
    passed = true;
  });
  EXPECT_FALSE(eventually([&] { return passed.load(); }, std::chrono::milliseconds(100)));
  std::filesystem::remove(file);
  EXPECT_TRUE(eventually([&] { return passed.load(); }));
}

TEST_F(FailpointTest, ADelayIsNoLongerThanItSaysWhileItsFileStays) {
  TempDir dir;
  const std::string file = (dir.path() / "there").string();
  std::ofstream(file).close();
  ASSERT_TRUE(configure(("place=delay(25),while=" + file).c_str()).ok());
  const auto began = systemClock().now();
  EXPECT_EQ(hitFailpoint("place"), FailAction::kNone);
  EXPECT_GE(systemClock().now() - began, std::chrono::milliseconds(25));
}

TEST_F(FailpointTest, NamesThePartThatDoesNotParse) {
  for (const char* part : {"a", "a=", "=nan", "a=burn", "a=delay", "a=delay(x)", "a=delay(5",
                           "a=pause(5)", "a=nan@x", "a=nan@1-x", "a=nan,times=x", "a=nan,what=1"}) {
    const Status status = configure(part);
    EXPECT_FALSE(status.ok()) << part;
    EXPECT_THAT(std::string(fromAbsl(status.message())), HasSubstr("failpoints")) << part;
  }
}

// In a process of its own, which the test watches.
pid_t childAt(const char* config) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (!configureFailpoints(config, "worker-1").ok()) ::_exit(2);
  (void)hitFailpoint("place");
  ::_exit(0);
}

TEST_F(FailpointTest, APauseLastsUntilTheProcessIsContinued) {
  const pid_t child = childAt("place=pause");
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status)) << status;
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(FailpointTest, ACrashIsAKill) {
  const pid_t child = childAt("place=crash");
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

}  // namespace
}  // namespace trainyard
